"""Round trips between two threads of one process: request and reply, beside REQ and REP over inproc."""

from __future__ import annotations

from functools import partial

from benchmarks import inprocess
from benchmarks.processes import Child, Role, percentiles
from benchmarks.scenario import Figures, Row, Scenario, Side

COUNT = 15_000
OURS, THEIRS = "kernel, request and reply", "pyzmq REQ/REP, inproc"


def _measure(role: Role, scale: float) -> Figures:
    with Child(role, int(COUNT * scale)) as child:
        return percentiles(child.hear())


SCENARIO = Scenario(
    name="roundtrip_inprocess",
    sides=(
        Side(OURS, partial(_measure, inprocess.channel_round_trips)),
        Side(THEIRS, partial(_measure, inprocess.pyzmq_round_trips)),
    ),
    rows=(
        Row(
            name="latency_inprocess_p50",
            what="round trip between two threads, 100 B, p50",
            figure="p50",
            unit="µs",
            bar="<= 1.0",
            ours=OURS,
            peers=(THEIRS,),
        ),
    ),
)
