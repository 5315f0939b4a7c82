"""Plan: a whole system as data: threads, engines, routes.

A plan comes from a topology file (``check.py``), or is made in Python from these structs.  ``diff`` compares
two plans and says how to change a running system from one to the other.  ``line``, the line in the file, is
not compared.

Options stay as they were written and are converted to the options class of their kind when the part is made.
So a plan needs no plugin, can be compared by value, and can be sent to another process.

What differs between two plans is removed and added again, and what they have in common is not touched.  So an
engine needs no code for a change of its options, and goes on undisturbed while they stay the same.  The
exception are the options that a kind names as ``live_options``: its engines take them while they run.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from msgspec.structs import replace

from kernel.contracts.errors import PlanError
from kernel.pipes.water_marks import WaterMarks

if TYPE_CHECKING:
    from kernel.plugins import PluginRegistry

DEFAULT_THREAD = "poll-1"
"""The poll thread that a plan without threads gets."""
PROCESS = "process"
"""The kind of threads that are processes, for drawings."""

_DEFAULT_MARKS = WaterMarks()
_NOWHERE: Mapping[str, str] = MappingProxyType({})


class ThreadPlan(msgspec.Struct, frozen=True, kw_only=True):
    """One thread that hosts engines."""

    name: str
    kind: str = "poll"
    options: dict[str, Any] = {}
    """As in the file; converted to the kind's options class when the thread is made."""
    line: int = 0


class EnginePlan(msgspec.Struct, frozen=True, kw_only=True):
    """One engine, or one name that application code will open (``kind`` is then the name of an API)."""

    name: str
    kind: str
    thread: str | None = None
    """None: the least loaded poll thread."""
    options: dict[str, Any] = {}
    """As in the file; converted to the kind's options class when the engine is made."""
    line: int = 0


class RoutePlan(msgspec.Struct, frozen=True, kw_only=True):
    """A route from one engine to one or more others.  One router chooses between all targets."""

    source: str
    targets: tuple[str, ...]
    match: tuple[str, ...] = ()
    """Key patterns, one of which has to match; empty: all messages."""
    exchange: str | None = None
    """Only messages of this exchange; None: of any."""
    router: str = "fan-out"
    router_options: dict[str, Any] = {}
    confirm: bool = False
    echo: bool = False
    """Whether a route from an engine to itself also brings messages back to the connection they came from."""
    dead_letters: str | None = None
    """The engine that gets messages that targets refuse; None: they are counted and dropped.  Needs
    ``confirm``."""
    marks: WaterMarks = _DEFAULT_MARKS
    line: int = 0

    def __post_init__(self) -> None:
        # A text is a sequence of texts, too.  ``targets="bb"`` would lead to two engines ``b``, and the
        # complaint about these would only confuse.
        for field, value in (("targets", self.targets), ("match", self.match)):
            if isinstance(value, str):
                raise PlanError(
                    [
                        f"route from {self.source!r}: {field} = {value!r} is a text, and has to be a tuple of texts; "
                        f"write {field}=({value!r},)"
                    ]
                )

    @property
    def ends(self) -> tuple[str, ...]:
        """The names of all engines that the route connects."""
        letters = () if self.dead_letters is None else (self.dead_letters,)
        return (self.source, *self.targets, *letters)

    @property
    def label(self) -> str:
        """The name of the route in drawings, logs and errors."""
        # Not unique: exchange, router and confirmation are not in it, and two routes may be equal.
        text = f"{self.source} -> {', '.join(self.targets)}"
        return f"{text} [{' '.join(self.match)}]" if self.match else text


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """A whole system."""

    threads: tuple[ThreadPlan, ...] = ()
    engines: tuple[EnginePlan, ...] = ()
    routes: tuple[RoutePlan, ...] = ()
    file: str = ""
    """Where it was read from; empty for a plan made in Python."""
    left_out: tuple[str, ...] = ()
    """A line, with its place in the file, for each part that is left out because its ``when`` is empty or its
    kind not installed, and for what is left out with it."""

    def thread(self, name: str) -> ThreadPlan | None:
        """Return the thread of that name."""
        return next((thread for thread in self.threads if thread.name == name), None)

    def engine(self, name: str) -> EnginePlan | None:
        """Return the engine of that name."""
        return next((engine for engine in self.engines if engine.name == name), None)

    def process_of(self, name: str) -> str:
        """Return the thread of kind ``process`` that an engine is in.

        Empty: it is in the main process, or nowhere.
        """
        engine = self.engine(name)
        return "" if engine is None or engine.thread is None else self.process_named(engine.thread)

    def process_named(self, thread: str) -> str:
        """Return the name of a thread if it is of kind ``process``; empty: it is not."""
        found = self.thread(thread)
        return "" if found is None or found.kind != "process" else found.name

    def why_not_asked(self, name: str, asked: str) -> str:
        """Return why an engine cannot ask another one for something (``System.operate``); empty: it can.

        Who is in the main process can ask all.
        """
        if self.engine(asked) is None:
            # In a plan made in Python the engine may be added later.
            return "is no engine of this file" if self.file else ""
        process = self.process_of(name)
        if not process or process == self.process_of(asked):
            return ""
        return f"is outside of its process {process!r}, and cannot be asked from there"

    def routes_of(self, name: str) -> tuple[RoutePlan, ...]:
        """Return the routes that begin or end at an engine."""
        return tuple(
            route
            for route in self.routes
            if name == route.source or name in route.targets or name == route.dead_letters
        )


def shards_of(plan: EnginePlan, registry: PluginRegistry) -> Sequence[EnginePlan]:
    """Return the engines that have parts of an engine in other threads (``EngineKind.shards``)."""
    installed = registry.engine_for(plan.kind, plan.options)
    shards = None if installed is None else installed.kind.shards
    return () if shards is None else [replace(each, line=plan.line) for each in shards(plan)]


def with_shards(plan: Plan, registry: PluginRegistry) -> Plan:
    """Return a plan with the shards of its engines; those that it has already stay as they are."""
    # A plan that was read from a file has its shards by now, and the kernel that gets it asks for them again.
    known = {engine.name for engine in plan.engines}
    missing = [
        shard for engine in plan.engines for shard in shards_of(engine, registry) if shard.name not in known
    ]
    return replace(plan, engines=(*plan.engines, *missing)) if missing else plan


class PlanChange(msgspec.Struct, frozen=True, kw_only=True):
    """The changes from one plan to another.  ``Parts.apply`` removes in the order of the fields.

    Something that differs is removed and added again, but for engines that take changed options.  If a thread
    is removed, so are its engines; if an engine is removed, so are its routes.  So no route is left behind
    whose engines have gone.
    """

    routes_removed: tuple[RoutePlan, ...] = ()
    engines_removed: tuple[EnginePlan, ...] = ()
    threads_removed: tuple[ThreadPlan, ...] = ()
    engines_changed: tuple[EnginePlan, ...] = ()
    """The new plans of engines that take their changed options while they run."""
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
            *(f"~ engine {engine.name}" for engine in self.engines_changed),
            *(f"+ thread {thread.name}" for thread in self.threads_added),
            *(f"+ engine {engine.name}" for engine in self.engines_added),
            *(f"+ route {route.label}" for route in self.routes_added),
        ]


def diff(
    old: Plan,
    new: Plan,
    homes: Mapping[str, str] = _NOWHERE,
    live: Callable[[EnginePlan], Collection[str]] = lambda engine: (),
) -> PlanChange:
    """Return the changes from ``old`` to ``new``; what both have in common is not in them.

    ``homes``: the threads that a running system has chosen for engines without a thread in ``old``.
    ``live(engine)``: the options that the engine takes while it runs.
    """
    # From the outside in: what lives in something that goes has to go with it, although it did not change.
    threads_removed, threads_added = _compare(old.threads, new.threads)
    gone = {thread.name for thread in threads_removed}
    engines_removed, engines_added = _compare(
        # An engine without a thread of its own goes with the thread that the kernel has chosen for it.
        old.engines,
        new.engines,
        lambda it: (it.thread or homes.get(it.name)) in gone,
    )
    # An engine whose thread goes has to be started again in any case.
    staying = [engine for engine in engines_removed if (engine.thread or homes.get(engine.name)) not in gone]
    # An engine that both plans have, with other options, is in both lists by now.
    engines_changed = tuple(
        after
        for before in staying
        for after in engines_added
        if before.name == after.name and _differ_only_in(live(before), before, after)
    )
    changed = {engine.name for engine in engines_changed}
    engines_removed = tuple(engine for engine in engines_removed if engine.name not in changed)
    engines_added = tuple(engine for engine in engines_added if engine.name not in changed)
    moved = {engine.name for engine in engines_removed}
    routes_removed, routes_added = _compare(old.routes, new.routes, lambda it: not moved.isdisjoint(it.ends))
    return PlanChange(
        routes_removed=routes_removed,
        engines_removed=engines_removed,
        threads_removed=threads_removed,
        engines_changed=engines_changed,
        threads_added=threads_added,
        engines_added=engines_added,
        routes_added=routes_added,
    )


_Item = TypeVar("_Item", ThreadPlan, EnginePlan, RoutePlan)


def _compare(
    old: Iterable[_Item], new: Iterable[_Item], uprooted: Any = lambda item: False
) -> tuple[tuple[_Item, ...], tuple[_Item, ...]]:
    """Return what is only in ``old``, and what is only in ``new``.

    An item for which ``uprooted`` is true counts as different, even if both have it.  Equal items are paired
    one to one, because a plan may have two equal routes.
    """
    # A search from the front for each item: options are tables, which have no hash to look them up by.
    # ``_meaning`` once for each item of ``new``, not once for each comparison.
    unmatched = [(item, _meaning(item)) for item in new]
    removed: list[_Item] = []
    for item in old:
        meaning = _meaning(item)
        index = next((i for i, (_, other) in enumerate(unmatched) if other == meaning), None)
        # If it is uprooted its twin stays in ``unmatched``, and so is removed and added again.
        if index is None or uprooted(item):
            removed.append(item)
        else:
            del unmatched[index]
    return tuple(removed), tuple(item for item, _ in unmatched)


def _differ_only_in(options: Collection[str], before: EnginePlan, after: EnginePlan) -> bool:
    """Whether two plans of an engine are equal but for these options."""

    def rest(engine: EnginePlan) -> EnginePlan:
        kept = {name: value for name, value in engine.options.items() if name not in options}
        return msgspec.structs.replace(_meaning(engine), options=kept)

    return rest(before) == rest(after)


def _meaning(item: _Item) -> _Item:
    # A part that has only moved to another line of its file has not changed.
    return msgspec.structs.replace(item, line=0)
