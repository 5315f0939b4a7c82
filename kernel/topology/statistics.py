"""Statistics: the figures of a running system, collected when they are asked for.

On the path of a message each thread adds to counters of its own, without a lock.  Here another thread reads
them while they change.  A counter is one Python object, so each value that is read is one that the counter
has had.  But two counters are read at different moments: a message may be in neither or in both of them.

What has been closed still counts: the dispatcher adds the figures of a closed port or pipe to ``past``, so
that a sum never goes down and its differences are rates.  docs/figures.md says what each figure means.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeVar

import msgspec

from kernel.contracts.lazy_figures import made
from kernel.contracts.thread import EngineStatus, EngineThread, ThreadApart
from kernel.dispatcher.dispatcher import Dispatcher
from kernel.dispatcher.past_figures import figures_of_pipe
from kernel.dispatcher.route import RouteSpec
from kernel.pipes.pipe import Pipe, PipeStatistics

_NO_THREADS: Mapping[str, ThreadApart] = MappingProxyType({})
_LATE, _SOON = 1.0, 0.1
"""Seconds that another process may take to send its figures, for an application and for an
engine that asks."""

_Figures = TypeVar("_Figures", bound=msgspec.Struct)


class EngineStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """One engine."""

    name: str
    state: str
    """``starting``, ``running``, ``failed``, ``ended`` or ``stopped``."""
    address: str
    failures: int
    last_failure: str
    next_try: float | None
    """Seconds from a failure until the engine is started again."""
    counters: dict[str, Any]
    """Its own counters, by the standard names; empty while it is not running."""


class PortStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """The sums of all ports of one engine or API, in messages.

    Closed connections are included.  The row stays when the last port has left, or the sums would fall.
    """

    name: str
    ports: int
    """The number of ports now: one, or one for each connection; 0 if all have left."""
    unrouted: int
    """Sent, but there was no route, or no route whose filter accepted them."""
    abandoned: int
    """Left by a destination that was closed, and not taken over by another one."""


class RouteStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """The sums of all pipes and source ports of one route, closed ones included.

    In messages, except ``bytes``.
    """

    name: str
    pipes: int
    depth: int
    """Messages in its pipes now."""
    written: int
    bytes: int
    """Bytes of the messages that were taken from its pipes."""
    dropped: int
    """Dropped because a pipe was full (``when_full``)."""
    unrouted: int
    """Dropped because its router found no destination."""
    refused: int
    """Refused by a destination, and sent to the dead letters or dropped."""
    held: int
    """Messages that wait now for a pipe that can take them: pending and deferred ones."""


class ThreadStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """One thread: a row and a column of the matrix."""

    name: str
    engines: tuple[str, ...]
    """Empty for a thread of the application."""
    pipes_in: int
    pipes_out: int
    depth: int
    """Messages that wait for it."""
    turns: int
    """Turns of its loop so far; 0 for a thread of the application."""


class SystemStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """A kernel at one moment."""

    engines: tuple[EngineStatistics, ...]
    ports: tuple[PortStatistics, ...]
    routes: tuple[RouteStatistics, ...]
    pipes: tuple[PipeStatistics, ...]
    threads: tuple[ThreadStatistics, ...]
    """In the order of the matrix."""
    matrix: tuple[tuple[int, ...], ...]
    """How many pipes lead from one thread (row) to another (column)."""
    cells: tuple[tuple[int, int], ...]
    """Of each of ``pipes`` its cell of the matrix: the thread that writes it, and the one that reads it."""


def gather(
    dispatcher: Dispatcher,
    threads: Sequence[EngineThread],
    apart: Mapping[str, ThreadApart] = _NO_THREADS,
    *,
    lazily: bool = False,
) -> SystemStatistics:
    """Collect all figures; ``lazily``: those of many things when they are read (``LazyFigures``).

    Any thread.  They are not all of exactly the same moment, because nothing is stopped.  Threads in other
    processes are asked; those that do not answer soon are left out.
    """
    figures = _gather_here(dispatcher, threads, lazily)
    for name, thread in apart.items():
        # An engine that asks has a thread of its own to care for, and waits less.
        there = thread.statistics(_SOON if lazily else _LATE)
        if there is not None:
            figures = _joined(figures, name, msgspec.convert(there, SystemStatistics))
    return figures


def _joined(here: SystemStatistics, name: str, there: SystemStatistics) -> SystemStatistics:
    """Add the figures of the process of the thread ``name``.

    Here it is a row of the matrix, without pipes.
    """
    numbers = {thread.name: number for number, thread in enumerate(here.threads)}
    # The thread has a row here already, without pipes. It is filled with the figures from there; threads that
    # only the process has get rows of their own.
    threads = list(here.threads)
    place: list[int] = []
    for thread in there.threads:
        if thread.name == name and name in numbers:
            place.append(numbers[name])
            engines = here.threads[numbers[name]].engines
            threads[numbers[name]] = msgspec.structs.replace(thread, engines=engines)
        else:
            place.append(len(threads))
            threads.append(thread)
    matrix = [[0] * len(threads) for _ in threads]
    for i, row in enumerate(here.matrix):
        for j, count in enumerate(row):
            matrix[i][j] += count
    for i, row in enumerate(there.matrix):
        for j, count in enumerate(row):
            matrix[place[i]][place[j]] += count
    known = {engine.name: engine.counters for engine in there.engines}
    return SystemStatistics(
        engines=tuple(
            # Its state is from here, where it is also known while there is no process. Counters are only
            # there.
            msgspec.structs.replace(engine, counters=known[engine.name])
            if not engine.counters and engine.name in known
            else engine
            for engine in here.engines
        ),
        ports=_summed(here.ports, there.ports),
        routes=_summed(here.routes, there.routes),
        pipes=(*here.pipes, *there.pipes),
        threads=tuple(threads),
        matrix=tuple(map(tuple, matrix)),
        cells=(*here.cells, *((place[writer], place[reader]) for writer, reader in there.cells)),
    )


def _summed(here: tuple[_Figures, ...], there: tuple[_Figures, ...]) -> tuple[_Figures, ...]:
    """Join rows; those of one name are added up."""
    # By name: the port of a link end has the name of the engine that it stands for, whose own port is at the
    # other side.
    rows: dict[str, _Figures] = {}
    for row in (*here, *there):
        values = msgspec.structs.asdict(row)
        known = rows.get(values["name"])
        if known is not None:
            values = {
                field: value if field == "name" else value + getattr(known, field)
                for field, value in values.items()
            }
        rows[values["name"]] = type(row)(**values)
    return tuple(rows.values())


def _gather_here(dispatcher: Dispatcher, threads: Sequence[EngineThread], lazily: bool) -> SystemStatistics:
    # Once, so that the figures of routes, threads and pipes are about the same pipes.
    pipes = dispatcher.pipes()
    return SystemStatistics(
        engines=tuple(
            # A copy: engines are added to a thread and removed from it in the meantime.
            _engine(thread, state, lazily)
            for thread in threads
            for state in list(thread.states.values())
        ),
        ports=_ports(dispatcher),
        routes=_routes(dispatcher, pipes),
        pipes=tuple(pipe.statistics() for _, _, _, pipe in pipes),
        threads=_threads(dispatcher, pipes, threads),
        matrix=tuple(tuple(row) for row in dispatcher.matrix()),
        cells=tuple((writer, reader) for writer, reader, _, _ in pipes),
    )


def _ports(dispatcher: Dispatcher) -> tuple[PortStatistics, ...]:
    sums = dispatcher.port_figures()
    return tuple(_filled(PortStatistics, name, figures) for name, figures in sums.items())


def _routes(
    dispatcher: Dispatcher, pipes: list[tuple[int, int, RouteSpec, Pipe]]
) -> tuple[RouteStatistics, ...]:
    # By name: routes that are equal in name share a row, since nobody could tell their rows apart.
    sums = {spec.name: dispatcher.past.of_route(spec.name) for spec in dispatcher.routes()}
    for _, _, spec, pipe in pipes:
        # A route that was added or removed since ``sums`` was made is left out.
        # ``update`` of a ``Counter`` adds, here and below; that of a dict would replace.
        if spec.name in sums:
            sums[spec.name].update({"pipes": 1, "depth": pipe.waiting(), **figures_of_pipe(pipe)})
    for port in dispatcher.ports():
        # A copy, since the port's own thread changes the list.
        for route in list(port.routes):
            if route.spec.name in sums:
                sums[route.spec.name].update({"unrouted": route.unrouted, "held": route.waiting})
    return tuple(_filled(RouteStatistics, name, figures) for name, figures in sums.items())


def _threads(
    dispatcher: Dispatcher, pipes: list[tuple[int, int, RouteSpec, Pipe]], threads: Sequence[EngineThread]
) -> tuple[ThreadStatistics, ...]:
    sums: list[Counter[str]] = [Counter() for _ in dispatcher.threads]
    for writer, reader, _, pipe in pipes:
        # A thread may have joined since the rows were counted.
        if writer < len(sums) and reader < len(sums):
            sums[writer]["pipes_out"] += 1
            sums[reader].update({"pipes_in": 1, "depth": pipe.waiting()})
    # Rows without a host are threads of the application.
    hosts = {thread.number: thread for thread in threads}
    found = []
    # Not strict: a thread that has joined since has no sums yet.
    for slot, figures in zip(dispatcher.threads, sums, strict=False):
        host = hosts.get(slot.number)
        engines = tuple(host.states) if host is not None else ()
        figures["turns"] = host.turns if host is not None else 0
        found.append(_filled(ThreadStatistics, slot.name, figures, engines=engines))
    return tuple(found)


def _filled(kind: type[_Figures], name: str, figures: Mapping[str, int], **others: Any) -> _Figures:
    """Make a struct of figures, with 0 for those that are missing."""
    own = [field for field in kind.__struct_fields__ if field != "name" and field not in others]
    return kind(name=name, **others, **{field: figures.get(field, 0) for field in own})


def _engine(thread: EngineThread, state: EngineStatus, lazily: bool) -> EngineStatistics:
    counters = thread.counters(state.name)
    return EngineStatistics(
        name=state.name,
        state=state.state,
        address=state.address,
        failures=state.failures,
        last_failure=state.last_failure,
        next_try=state.next_try,
        counters=counters if lazily else made(counters),
    )
