"""Round trips of 64 B through poll threads on both sides; pyzmq has a thread between caller and socket, too.

Ours run with ``spin`` (kernel/threads/options.py): after work they poll for 60 us before they sleep.  Their
result without it is printed too.
"""

from __future__ import annotations

from benchmarks import kernels
from benchmarks.peers import pyzmq_sockets
from benchmarks.processes import round_trip
from benchmarks.scenario import Figures, Row, Scenario, Side

SIZE = 64
COUNT = 15_000
SPIN = 60e-6


def _ours(scale: float) -> Figures:
    return round_trip(kernels.echo, kernels.ask, int(COUNT * scale), SIZE, SPIN)


def _ours_by_default(scale: float) -> Figures:
    return round_trip(kernels.echo, kernels.ask, int(COUNT * scale), SIZE)


def _pyzmq(scale: float) -> Figures:
    return round_trip(pyzmq_sockets.echo, pyzmq_sockets.ask, int(COUNT * scale), SIZE)


def _row(figure: str) -> Row:
    return Row(
        name=f"roundtrip_64B_poll_{figure}",
        what=f"round trip, {SIZE} B, poll threads on both sides, {figure}",
        figure=figure,
        unit="µs",
        bar="<= 1.0",
        ours="kernel, poll threads that spin",
        peers=("pyzmq REQ/REP",),
        also=("kernel, poll threads by default",),
    )


SCENARIO = Scenario(
    name="roundtrip_poll",
    sides=(
        Side("kernel, poll threads that spin", _ours),
        Side("pyzmq REQ/REP", _pyzmq),
        Side("kernel, poll threads by default", _ours_by_default),
    ),
    rows=(_row("p50"), _row("p99")),
)
