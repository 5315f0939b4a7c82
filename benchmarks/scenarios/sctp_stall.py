"""Three feeds while the destination of a fourth takes nothing, over SCTP and TCP.

It runs ``examples/stalled_stream``.
"""

from __future__ import annotations

import runpy
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path

from benchmarks.processes import Child
from benchmarks.scenario import Figures, Row, Scenario, Side

EXAMPLE = Path(__file__).parents[2] / "examples" / "stalled_stream" / "main.py"


def trial(link: Connection, transport: str, stalled: bool) -> None:
    """Say the 99th percentile of the healthy feeds while one stalls, or before."""
    example = runpy.run_path(str(EXAMPLE))
    points = example["Trial"](example["PLACES"][transport]).run()
    phase = example["PHASE"]
    first, last = (phase, 2 * phase) if stalled else (0.2 * phase, phase)
    link.send({"p99": 1000 * example["p99"](points, first, last)})


def _measure(transport: str, *, stalled: bool) -> Callable[[float], Figures]:
    def run(scale: float) -> Figures:
        with Child(trial, transport, stalled) as child:
            figures: Figures = child.hear()
            return figures

    return run


SCENARIO = Scenario(
    name="sctp_stall",
    sides=(
        Side("kernel, while one stalls", _measure("SCTP", stalled=True)),
        Side("kernel, none stalls", _measure("SCTP", stalled=False)),
        Side("kernel over TCP, while one stalls", _measure("TCP", stalled=True)),
    ),
    rows=(
        Row(
            name="sctp_stall_p99",
            what="SCTP, p99 of three feeds while a fourth stalls, as without",
            figure="p99",
            unit="µs",
            bar="<= 1.2",
            ours="kernel, while one stalls",
            peers=("kernel, none stalls",),
            also=("kernel over TCP, while one stalls",),
        ),
    ),
)
