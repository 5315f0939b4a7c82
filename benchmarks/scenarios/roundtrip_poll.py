"""Round trips of 64 B through poll threads on both sides; pyzmq has a thread between caller and socket, too.

The rows ``roundtrip_...`` are with ``spin`` (kernel/threads/options.py): after work our threads poll for 60 us before they
sleep.  Those named ``latency_native_...`` are with the default settings: the application's threads then lease the
connection (decision 46).
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


SPINNING, DEFAULT, THEIRS = (
    "kernel, poll threads that spin",
    "kernel, poll threads by default",
    "pyzmq REQ/REP",
)


def _row(figure: str) -> Row:
    return Row(
        name=f"roundtrip_64B_poll_{figure}",
        what=f"round trip, {SIZE} B, poll threads on both sides, {figure}",
        figure=figure,
        unit="µs",
        bar="<= 1.0",
        ours=SPINNING,
        peers=(THEIRS,),
        also=(DEFAULT,),
    )


def _row_by_default(figure: str, bar: str) -> Row:
    return Row(
        name=f"latency_native_{figure}",
        what=f"round trip, {SIZE} B, native API with the default settings, {figure}",
        figure=figure,
        unit="µs",
        bar=bar,
        ours=DEFAULT,
        peers=(THEIRS,),
    )


SCENARIO = Scenario(
    name="roundtrip_poll",
    sides=(
        Side(SPINNING, _ours),
        Side(THEIRS, _pyzmq),
        Side(DEFAULT, _ours_by_default),
    ),
    rows=(_row("p50"), _row("p99"), _row_by_default("p50", "<= 0.6"), _row_by_default("p99", "<= 1.0")),
)
