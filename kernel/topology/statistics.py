"""Statistics: the figures of a running system, put together when somebody asks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from kernel.dispatcher.dispatcher import Dispatcher
from kernel.pipes.pipe import PipeStatistics


class EngineStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """One engine."""

    name: str
    state: str
    address: str
    failures: int
    last_failure: str
    next_try: float | None
    counters: dict[str, Any]


class RouteStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """One route, over all its pipes and source ports.  Messages."""

    name: str
    pipes: int
    depth: int
    written: int
    dropped: int
    unrouted: int
    held: int


class SystemStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """A kernel at one moment."""

    engines: tuple[EngineStatistics, ...]
    routes: tuple[RouteStatistics, ...]
    pipes: tuple[PipeStatistics, ...]
    threads: tuple[str, ...]
    matrix: tuple[tuple[int, ...], ...]


def gather(dispatcher: Dispatcher, states: Iterable[Any]) -> SystemStatistics:
    """Ask everybody.  Any thread; the figures of busy pipes are a moment apart."""
    pipes = dispatcher.pipes()
    routes: dict[str, dict[str, int]] = {}
    for _, _, spec, pipe in pipes:
        sums = routes.setdefault(
            spec.name, dict.fromkeys(("pipes", "depth", "written", "dropped", "unrouted", "held"), 0)
        )
        sums["pipes"] += 1
        sums["depth"] += pipe.depth()
        sums["written"] += pipe.written
        sums["dropped"] += pipe.dropped
    for port in dispatcher.ports():
        for route in list(port.routes):
            sums = routes.setdefault(
                route.spec.name,
                dict.fromkeys(("pipes", "depth", "written", "dropped", "unrouted", "held"), 0),
            )
            sums["unrouted"] += route.unrouted
            sums["held"] += len(route.held)
    return SystemStatistics(
        engines=tuple(_engine(state) for state in states),
        routes=tuple(RouteStatistics(name=name, **sums) for name, sums in routes.items()),
        pipes=tuple(pipe.statistics() for _, _, _, pipe in pipes),
        threads=tuple(slot.name for slot in dispatcher.threads),
        matrix=tuple(tuple(row) for row in dispatcher.matrix()),
    )


def _engine(state: Any) -> EngineStatistics:
    engine = state.engine
    return EngineStatistics(
        name=state.name,
        state=state.state,
        address=state.address,
        failures=state.failures,
        last_failure=state.last_failure,
        next_try=state.next_try,
        counters=dict(engine.statistics()) if engine is not None else {},
    )
