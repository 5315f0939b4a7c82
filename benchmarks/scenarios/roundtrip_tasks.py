"""Round trips of tasks: channels of trio and of asyncio beside pyzmq's sockets for asyncio; default settings."""

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


def _theirs(scale: float) -> Figures:
    return round_trip(tasks.pyzmq_echo, tasks.pyzmq_ask, int(COUNT * scale), SIZE)


def _side(kind: str) -> str:
    return f"kernel, {kind}"


def _row(kind: str) -> Row:
    return Row(
        name=f"latency_{kind}_p50",
        what=f"round trip, {SIZE} B, a task of {kind} on both sides, p50",
        figure="p50",
        unit="µs",
        bar="<= 1.0",
        ours=_side(kind),
        peers=(THEIRS,),
    )


SCENARIO = Scenario(
    name="roundtrip_tasks",
    sides=(*(Side(_side(kind), partial(_ours, kind)) for kind in tasks.RUNS), Side(THEIRS, _theirs)),
    rows=tuple(map(_row, tasks.RUNS)),
)
