"""Plan: a whole system as data: threads, engines, routes.  No file, no plugin and no thread in here.

A plan comes from a topology file (``file.py``), or from Python: every struct can simply be written down.
Two plans are compared by ``diff``, which says what to do in a running system to get from one to the other.
Where something stands in its file (``line``) is part of its history, not of its meaning: it is never compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, TypeVar

import msgspec

from kernel.pipes.water_marks import WaterMarks

DEFAULT_THREAD = "poll-1"
"""The poll thread that a plan without threads gets."""

_DEFAULT_MARKS = WaterMarks()
_NOWHERE: Mapping[str, str] = MappingProxyType({})


class ThreadPlan(msgspec.Struct, frozen=True, kw_only=True):
    """One thread that hosts engines."""

    name: str
    kind: str = "poll"
    options: dict[str, Any] = {}
    """As written; they become the kind's options class when the thread is made."""
    line: int = 0


class EnginePlan(msgspec.Struct, frozen=True, kw_only=True):
    """One engine, or one name that application code will open (``kind`` is then an API's)."""

    name: str
    kind: str
    thread: str | None = None
    """None: the least loaded poll thread."""
    options: dict[str, Any] = {}
    """As written; they become the kind's options class when the engine is made."""
    line: int = 0


class RoutePlan(msgspec.Struct, frozen=True, kw_only=True):
    """From one engine to others.  All targets share one router: it chooses between them."""

    source: str
    targets: tuple[str, ...]
    match: tuple[str, ...] = ()
    """Key patterns of which one has to fit; empty: every key does."""
    exchange: str | None = None
    """Only messages of this exchange; None: of any."""
    router: str = "fan-out"
    router_options: dict[str, Any] = {}
    confirm: bool = False
    echo: bool = False
    """Whether a route back to its own engine brings messages also to the connection that they came from."""
    dead_letters: str | None = None
    """The engine that gets what targets refuse; None: that is counted and dropped.  Needs ``confirm``."""
    marks: WaterMarks = _DEFAULT_MARKS
    line: int = 0

    @property
    def ends(self) -> tuple[str, ...]:
        """The names of all engines that the route connects."""
        letters = () if self.dead_letters is None else (self.dead_letters,)
        return (self.source, *self.targets, *letters)

    @property
    def label(self) -> str:
        """How drawings, logs and errors call the route."""
        text = f"{self.source} -> {', '.join(self.targets)}"
        return f"{text} [{' '.join(self.match)}]" if self.match else text


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """A whole system."""

    threads: tuple[ThreadPlan, ...] = ()
    engines: tuple[EnginePlan, ...] = ()
    routes: tuple[RoutePlan, ...] = ()
    file: str = ""
    """Where it was read from; empty for a plan made in Python."""

    def thread(self, name: str) -> ThreadPlan | None:
        """Return the thread of that name."""
        return next((thread for thread in self.threads if thread.name == name), None)

    def engine(self, name: str) -> EnginePlan | None:
        """Return the engine of that name."""
        return next((engine for engine in self.engines if engine.name == name), None)

    def routes_of(self, name: str) -> tuple[RoutePlan, ...]:
        """Return the routes that begin or end at an engine."""
        return tuple(
            route
            for route in self.routes
            if name == route.source or name in route.targets or name == route.dead_letters
        )


class PlanChange(msgspec.Struct, frozen=True, kw_only=True):
    """What leads from one plan to another; to be applied in the order of the fields.

    What is changed is taken away and added anew.  A route goes with an engine that goes, and an engine
    with its thread, so that applying never meets a route without its ends.
    """

    routes_removed: tuple[RoutePlan, ...] = ()
    engines_removed: tuple[EnginePlan, ...] = ()
    threads_removed: tuple[ThreadPlan, ...] = ()
    threads_added: tuple[ThreadPlan, ...] = ()
    engines_added: tuple[EnginePlan, ...] = ()
    routes_added: tuple[RoutePlan, ...] = ()

    def __bool__(self) -> bool:
        return any(getattr(self, field) for field in self.__struct_fields__)

    def lines(self) -> list[str]:
        """One line for each thing that changes, for logs."""
        return [
            *(f"- route {route.label}" for route in self.routes_removed),
            *(f"- engine {engine.name}" for engine in self.engines_removed),
            *(f"- thread {thread.name}" for thread in self.threads_removed),
            *(f"+ thread {thread.name}" for thread in self.threads_added),
            *(f"+ engine {engine.name}" for engine in self.engines_added),
            *(f"+ route {route.label}" for route in self.routes_added),
        ]


def diff(old: Plan, new: Plan, homes: Mapping[str, str] = _NOWHERE) -> PlanChange:
    """Return what to do to get from ``old`` to ``new``; what both have is not touched.

    ``homes``: the threads of engines for which ``old`` says none, as a running system has chosen them.
    """
    threads_removed, threads_added = _compare(old.threads, new.threads)
    gone = {thread.name for thread in threads_removed}
    engines_removed, engines_added = _compare(
        old.engines, new.engines, lambda it: (it.thread or homes.get(it.name)) in gone
    )
    moved = {engine.name for engine in engines_removed}
    routes_removed, routes_added = _compare(old.routes, new.routes, lambda it: not moved.isdisjoint(it.ends))
    return PlanChange(
        routes_removed=routes_removed,
        engines_removed=engines_removed,
        threads_removed=threads_removed,
        threads_added=threads_added,
        engines_added=engines_added,
        routes_added=routes_added,
    )


_Item = TypeVar("_Item", ThreadPlan, EnginePlan, RoutePlan)


def _compare(
    old: Iterable[_Item], new: Iterable[_Item], uprooted: Any = lambda item: False
) -> tuple[tuple[_Item, ...], tuple[_Item, ...]]:
    """Return what is only in ``old`` and only in ``new``; an item that is uprooted is in neither.

    Equal items are paired off one to one: two routes may well be written down twice.
    """
    unmatched = [(item, _meaning(item)) for item in new]
    removed: list[_Item] = []
    for item in old:
        meaning = _meaning(item)
        index = next((i for i, (_, other) in enumerate(unmatched) if other == meaning), None)
        if index is None or uprooted(item):
            removed.append(item)
        else:
            del unmatched[index]
    return tuple(removed), tuple(item for item, _ in unmatched)


def _meaning(item: _Item) -> _Item:
    return msgspec.structs.replace(item, line=0)
