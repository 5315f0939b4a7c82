"""Round trips of tasks: our channels and sockets for trio and asyncio beside pyzmq's sockets for asyncio; default settings."""

from __future__ import annotations

from functools import partial

from benchmarks import tasks
from benchmarks.processes import round_trip
from benchmarks.scenario import Figures, Row, Scenario, Side

SIZE = 64
COUNT = 8_000
THEIRS = "pyzmq REQ/REP, asyncio"


def _ours(kind: str, scale: float) -> Figures:
    return round_trip(tasks.echo, tasks.ask, int(COUNT * scale), SIZE, kind)


def _our_sockets(kind: str, scale: float) -> Figures:
    return round_trip(tasks.sockets_echo, tasks.sockets_ask, int(COUNT * scale), SIZE, kind)


def _theirs(scale: float) -> Figures:
    return round_trip(tasks.pyzmq_echo, tasks.pyzmq_ask, int(COUNT * scale), SIZE)


def _side(kind: str) -> str:
    return f"kernel, {kind}"


def _sockets_side(kind: str) -> str:
    return f"kernel.sockets REQ/REP, {kind}"


def _row(name: str, what: str, ours: str) -> Row:
    return Row(
        name=f"latency_{name}_p50",
        what=f"round trip, {SIZE} B, {what} on both sides, p50",
        figure="p50",
        unit="µs",
        bar="<= 1.0",
        ours=ours,
        peers=(THEIRS,),
    )


SCENARIO = Scenario(
    name="roundtrip_tasks",
    sides=(
        *(Side(_side(kind), partial(_ours, kind)) for kind in tasks.RUNS),
        *(Side(_sockets_side(kind), partial(_our_sockets, kind)) for kind in tasks.RUNS),
        Side(THEIRS, _theirs),
    ),
    rows=(
        *(_row(kind, f"a task of {kind}", _side(kind)) for kind in tasks.RUNS),
        *(
            _row(f"sockets_{kind}", f"a socket in a task of {kind}", _sockets_side(kind))
            for kind in tasks.RUNS
        ),
    ),
)
