"""Parts: the threads, engines and routes of a running system, and the plan that says which they are.

``Kernel`` (``system.py``) owns the life of a system: when it starts, how it closes, what applications open in
it.  This module owns what runs in it.

The invariant is that ``plan`` describes at any moment what is running.  It begins empty, and each part is
entered when it is started and taken out when it is removed.  Engines change the system from their own
threads (``contracts.system``), so every change holds the lock ``changing`` for the step in which the part
and the plan change together.  ``Kernel.close`` takes the same lock: no step is under way when it collects the
threads that it has to stop, and each later step is refused.

Two rules follow from that.  No step waits for another thread while it holds the lock, because that thread
may be waiting for the lock: an engine is removed, and not waited for.  And ``apply``, which has to wait for
threads that end, is a sequence of steps and not one step: another thread may change the system in between.

Engines that ``host`` starts are parts without an entry in the plan, since a plan can only name kinds.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager
from functools import partial, wraps
from queue import Empty, SimpleQueue
from typing import Any, Concatenate, ParamSpec, TypeVar

import msgspec

from kernel.contracts.engine import Engine, EngineEvent
from kernel.contracts.errors import KernelError, PlanError, PluginError, UnknownName
from kernel.contracts.key_trie import key_filter
from kernel.contracts.kinds import BoundSockets, EngineKind, EngineSetup, Kind
from kernel.contracts.thread import Done, EngineStatus, EngineThread, ThreadSetup
from kernel.dispatcher.dead_letter import dead_letter_route
from kernel.dispatcher.dispatcher import Dispatcher
from kernel.dispatcher.route import RouteSpec
from kernel.hosting.uninterrupted import UNINTERRUPTED
from kernel.plugins import PluginRegistry
from kernel.topology.border import HERE, Border, is_apart, needs_thread
from kernel.topology.guests import refuse_guests
from kernel.topology.plan import DEFAULT_THREAD, EnginePlan, Plan, RoutePlan, ThreadPlan, diff
from kernel.topology.system_for_engines import SystemForEngines

P = ParamSpec("P")
T = TypeVar("T")

_OPTIONS_SECONDS = 30.0
"""Seconds that an engine's thread may take until it has given the engine its changed options."""


def _one_at_a_time(method: Callable[Concatenate[Parts, P], T]) -> Callable[Concatenate[Parts, P], T]:
    """Refuse a method unless the kernel is running; hold the lock ``changing`` and signals' handlers."""

    @wraps(method)
    def alone(self: Parts, /, *args: P.args, **kwargs: P.kwargs) -> T:
        # The state is looked at under the lock, which ``Kernel.close`` takes to change it: a step is either
        # seen by ``close``, or refused.
        # A handler that raises runs when the step is done.
        with UNINTERRUPTED, self.changing:
            self._check_running()
            return method(self, *args, **kwargs)

    return alone


class Parts:
    """What runs, by name.  ``Kernel`` documents the methods that it passes on."""

    def __init__(
        self,
        plan: Plan,
        registry: PluginRegistry,
        dispatcher: Dispatcher,
        report: Callable[[EngineEvent], Any],
        for_engines: SystemForEngines,
        check_running: Callable[[], None],
    ) -> None:
        self.plan: Plan = plan
        """What is running.  Before the kernel has started: what it will start."""
        self.threads: dict[str, EngineThread] = {}
        self.homes: dict[str, EngineThread] = {}
        """The thread of each engine, also of those that ``host`` has started.  Not of APIs."""
        self.has_default_thread: bool = False
        """Whether the first plan had no threads, and so got one."""
        self._registry = registry
        self._dispatcher = dispatcher
        self._report = report
        self._for_engines = for_engines
        self._check_running = check_running
        """Raises ``KernelClosed`` unless the kernel is running."""
        self._setups: dict[str, EngineSetup] = {}
        """What each engine is made with, by its name, also after a failure."""
        self._bound: dict[str, BoundSockets] = {}
        """Listening sockets that the application has bound for engines, by the engine's name."""
        self._released: list[BoundSockets] = []
        """The same for engines that were removed and have not ended yet."""
        self._specs: dict[str, list[tuple[RoutePlan, RouteSpec | None]]] = {}
        """By label, what the dispatcher knows of each route; None for one that the border has divided.
        Lists, because two routes may be equal."""
        self._legs: dict[str, RouteSpec] = {}
        self._coming: tuple[EnginePlan, ...] = ()
        """The engines that ``add_engines`` adds."""
        self._threads_wanted: dict[str, str] = {}
        self._beside: dict[str, str] = {}
        """The engine or API that each link end stands beside."""
        self.border: Border = Border(self, registry)
        # Reentrant: ``remove_engine`` calls ``on_gone`` at once for the name of an API, and that callback may
        # change the system again.
        self.changing: AbstractContextManager[Any] = threading.RLock()
        """Held for each step.  ``Kernel.close`` holds it while it changes the state that each step checks."""

    def empty(self) -> Plan:
        """Return the plan and begin with an empty one, to which the parts are added as they start."""
        plan, self.plan = self.plan, Plan(file=self.plan.file)
        return plan

    def all_threads(self) -> list[EngineThread]:
        """Return the threads, in a list of its own.  Any thread, also while threads are added and removed."""
        return list(self.threads.values())

    def engine_states(self) -> list[EngineStatus]:
        """Return the state of each engine.  Any thread."""
        return [state for thread in self.all_threads() for state in list(thread.states.values())]

    def states_of(self, engine: str) -> list[EngineStatus]:
        """Return the state of one engine; none if it is not there.  Any thread."""
        home = self.homes.get(engine)
        state = None if home is None else home.states.get(engine)
        return [] if state is None else [state]

    def close_sockets(self) -> None:
        """Close the sockets that were bound for engines, after all threads have ended."""
        self.border.close()
        for bound in (*self._bound.values(), *self._released):
            bound.close()

    # ------------------------------------------------------------------ threads and engines

    @_one_at_a_time
    def add_thread(self, plan: ThreadPlan) -> None:
        """Start a thread that hosts engines."""
        if plan.name in self.threads:
            raise KernelError(f"there is a thread {plan.name!r} already; choose another name")
        kind = self._registry.kind("thread_kinds", plan.kind)
        options = _checked(plan.options, kind, f"thread {plan.name!r}")
        thread: EngineThread = kind.create(
            ThreadSetup(
                name=plan.name,
                options=options,
                dispatcher=self._dispatcher,
                report=self._report,
                changed=partial(self.border.changed, plan.name),
                renew=self.border.renew,
                at_rest=self.border.at_rest,
                plugins=self._registry.modules() if kind.apart else {},
            )
        )
        # Entered before ``start``: a signal handler may raise in it when the thread already runs, and
        # ``Kernel.close`` and ``join`` have to find the thread then.
        before = self.plan
        self.threads[plan.name] = thread
        self.plan = msgspec.structs.replace(before, threads=(*before.threads, plan))
        try:
            thread.start()
        except Exception:
            # The system gave no thread.  An engine in a thread that does not run would never start.
            del self.threads[plan.name]
            self.plan = before
            thread.dispose()
            raise

    def add_engines(self, plans: Sequence[EnginePlan]) -> None:
        """Start engines, or add names that applications may open, one after the other."""
        self._coming = tuple(plans)
        try:
            for plan in plans:
                self.add_engine(plan, None)
        finally:
            self._coming = ()

    def planned_engines(self) -> tuple[EnginePlan, ...]:
        """Return the engines of the plan, and those that ``add_engines`` is about to add.  Any thread."""
        # The plan last: an engine that is added in between is in it then.
        coming = self._coming
        return tuple({engine.name: engine for engine in (*coming, *self.plan.engines)}.values())

    @_one_at_a_time
    def add_engine(self, plan: EnginePlan, bound: BoundSockets | None) -> None:
        """Start an engine, or add a name that applications may open."""
        self._refuse_known(plan.name)
        entered = msgspec.structs.replace(self.plan, engines=(*self.plan.engines, plan))
        # An API is made by ``Kernel.open``, in the thread of its caller.  Here only its name is entered.
        if plan.kind in self._registry.apis:
            self.plan = entered
            return
        kind = self._engine_kind(plan)
        options = _checked(plan.options, kind, f"engine {plan.name!r}")
        thread = self._thread_for(plan.name, plan.thread)
        where = thread.name if thread.name in self.border.apart() else HERE
        if bound is not None and where != HERE:
            raise KernelError(
                f"engine {plan.name!r} has sockets of this process, and thread {where!r} is another process; name a "
                "thread of another kind"
            )
        # Routes that are there already lead to where the engine was, or was expected.
        if self.border.move(plan.name, where):
            self._make_again(lambda route: plan.name in route.ends)
        # After everything that can raise, so that the plan has no engine that does not run; and before the
        # thread is told, so that the engine finds itself in the plan when it asks.
        self.plan = entered
        self._add(plan.name, options, partial(self._made, plan), thread, bound, plan)

    @_one_at_a_time
    def host(
        self,
        name: str,
        make_engine: Callable[[EngineSetup], Engine],
        thread: str | None,
        bound: BoundSockets | None,
    ) -> None:
        """Start an engine that the caller makes, without a kind and without an entry in the plan."""
        self._refuse_known(name)
        home = self._thread_for(name, thread)
        if home.name in self.border.apart():
            raise KernelError(
                f"engine {name!r} is made by code of this process, and thread {home.name!r} is another process; "
                "name a thread of another kind"
            )
        self._add(name, None, make_engine, home, bound)

    def _engine_kind(self, plan: EnginePlan) -> EngineKind:
        installed = self._registry.engine_for(plan.kind, plan.options)
        kind: EngineKind = installed.kind if installed else self._registry.kind("engines", plan.kind)
        return kind

    def _made(self, plan: EnginePlan, setup: EngineSetup) -> Engine:
        kind = self._engine_kind(plan)
        engine: Engine = kind.create(setup)
        # Said here: what follows would fail in the middle of the kernel, as if that were at fault.
        if not callable(getattr(engine, "run", None)):
            installed = self._registry.engine_for(plan.kind, plan.options)
            raise PluginError(
                f"kind {plan.kind!r} of {installed.origin if installed else 'an API'}: create has returned "
                f"{engine!r:.80}, which is no engine: it has no method `run`"
            )
        return engine

    def _live_options(self, plan: EnginePlan) -> Collection[str]:
        """Return the options that an engine takes while it runs; none while it does not run."""
        home = self.homes.get(plan.name)
        state = None if home is None else home.states.get(plan.name)
        # An engine that is not running cannot take options. It is made anew then, with the new ones.
        if state is None or state.state != "running" or plan.kind in self._registry.apis:
            return ()
        return self._engine_kind(plan).live_options

    def change_options(self, engine: str, options: dict[str, Any], answer: Callable[[Done], Any]) -> None:
        """Give an engine other options, which were checked."""
        plan = self.plan.engine(engine)
        if plan is None:
            raise UnknownName(f"there is no engine {engine!r}")
        self._change_engine(msgspec.structs.replace(plan, options=options), answer)

    @_one_at_a_time
    def _change_engine(self, plan: EnginePlan, answer: Callable[[Done], Any]) -> None:
        """Give an engine the options of its new plan."""
        options = _checked(plan.options, self._engine_kind(plan), f"engine {plan.name!r}")
        home = self.homes[plan.name]
        # Also for the next time that it is made, if it should fail.
        self._setups[plan.name] = msgspec.structs.replace(self._setups[plan.name], options=options)
        engines = tuple(plan if engine.name == plan.name else engine for engine in self.plan.engines)
        self.plan = msgspec.structs.replace(self.plan, engines=engines)
        # Posted: the answer comes from the engine's thread, when it has taken them or has refused.
        home.take_options(plan.name, options, answer)

    def _change_engine_and_wait(self, plan: EnginePlan) -> None:
        answers: SimpleQueue[Done] = SimpleQueue()
        self._change_engine(plan, answers.put)
        # Without the lock, as for a thread that ends.
        try:
            _, failure = answers.get(timeout=_OPTIONS_SECONDS)
        except Empty:
            raise KernelError(f"engine {plan.name!r} has not taken its options in time") from None
        if failure is not None:
            raise KernelError(f"engine {plan.name!r}: {failure}") from failure

    def _refuse_known(self, name: str) -> None:
        # In the plan are APIs as well, and in ``homes`` engines that ``host`` has started.
        if self.plan.engine(name) is not None or name in self.homes:
            raise KernelError(f"there is an engine {name!r} already; choose another name, or remove it first")

    def _add(
        self,
        name: str,
        options: Any,
        make_engine: Callable[[EngineSetup], Engine],
        thread: EngineThread,
        bound: BoundSockets | None,
        plan: EnginePlan | None = None,
    ) -> None:
        setup = EngineSetup(
            name=name,
            options=options,
            make_protocol=self._registry.protocol_maker(),
            bound=bound,
            system=self._for_engines,
            kinds=self._registry.kinds,
        )
        # Before the thread is told: the engine may ask for its own state, or be removed, as soon as it runs.
        self.homes[name] = thread
        if bound is not None:
            self._bound[name] = bound
        self._setups[name] = setup
        # The thread makes the engine, and makes another one after each failure: this call only posts it.  The
        # setup is looked up each time, since options may change meanwhile.
        thread.add(name, lambda: make_engine(self._setups[name]), plan=plan)

    def _thread_for(self, engine: str, wanted: str | None) -> EngineThread:
        """Return the thread that an engine names, or else the one in this process with the fewest engines."""
        if not wanted:
            apart = self.border.apart()
            here = [thread for name, thread in self.threads.items() if name not in apart]
            # By the number of engines, which is all that is known before they run. There is at least one
            # thread (``needs_thread``).
            return min(here, key=lambda thread: len(thread.states))
        if wanted not in self.threads:
            known = ", ".join(self.threads)
            raise UnknownName(f"engine {engine!r}: there is no thread {wanted!r}; the threads are {known}")
        return self.threads[wanted]

    @_one_at_a_time
    def remove_engine(self, name: str, linger: float, on_gone: Callable[[], Any] | None) -> None:
        """Stop an engine, without waiting for its end.  Its routes stay."""
        planned = self.plan.engine(name)
        if planned is None and name not in self.homes:
            raise UnknownName(f"there is no engine {name!r}")
        # The plan first: from here on its name is free, although the engine has not ended yet. Its thread
        # starts another one of that name when it has.
        kept = list(self.plan.engines)
        if planned is not None:
            kept.remove(planned)
            self.plan = msgspec.structs.replace(self.plan, engines=tuple(kept))
        home = self.homes.pop(name, None)
        setup = self._setups.get(name)
        # The engine accepts on its sockets until it has ended, so they are closed by ``gone`` and not here.
        # If the kernel is closed before that, ``close_sockets`` finds them among those released.
        bound = self._bound.pop(name, None)
        if bound is not None:
            self._released.append(bound)

        def gone() -> None:
            # Not before: it is made again if it fails while it lingers.  There may be
            # another one of the name.
            if setup is not None and self._setups.get(name) is setup:
                del self._setups[name]
            if bound is not None:
                bound.close()
                self._released.remove(bound)
            if on_gone is not None:
                on_gone()

        if home is not None:
            home.remove(name, gone, linger)
        else:
            gone()

    # ------------------------------------------------------------------ routes

    @_one_at_a_time
    def add_route(self, plan: RoutePlan) -> None:
        """Connect engines: those that are running, and those that will be added."""
        divided = self.border.add(plan)
        label = plan.label
        pair = (plan, None if divided else self._lead(plan, label))
        self._specs.setdefault(label, []).append(pair)
        self.plan = msgspec.structs.replace(self.plan, routes=(*self.plan.routes, plan))

    def _lead(self, plan: RoutePlan, label: str) -> RouteSpec:
        """Add a route to the dispatcher."""
        kind = self._registry.kind("routers", plan.router)
        options = _checked(plan.router_options, kind, f"route {label}")
        letters = None
        if plan.dead_letters is not None:
            chooser = self._registry.kind("routers", "round-robin")
            letters = dead_letter_route(
                plan.source,
                label,
                plan.dead_letters,
                plan.marks,
                lambda: chooser.create(chooser.options_class()()),
            )
            # First, because a message can be refused as soon as the route itself carries one.
            self._dispatcher.add_route(letters)
        spec = RouteSpec(
            name=label,
            source=plan.source,
            targets=plan.targets,
            make_router=lambda: kind.create(options),
            one_of_many=kind.one_of_many,
            by_content=kind.by_content,
            make_filter=_filter_of(plan),
            marks=plan.marks,
            confirm=plan.confirm,
            echo=plan.echo,
            dead_letters=letters,
        )
        self._dispatcher.add_route(spec)
        return spec

    @_one_at_a_time
    def remove_route(self, plan: RoutePlan) -> None:
        """Remove the route that is equal to ``plan``, or else the first one with its label."""
        # A label has neither exchange nor router nor confirmation in it, so that several routes may share it.
        label = plan.label
        alike = self._specs.get(label)
        if not alike:
            raise UnknownName(f"there is no route {label!r}")
        pair = next((pair for pair in alike if pair[0] == plan), alike[0])
        alike.remove(pair)
        if not alike:
            del self._specs[label]
        self._take_away(*pair)
        # ``pair[0]`` and not ``plan``: the plan must lose the same route as the dispatcher.
        routes = list(self.plan.routes)
        routes.remove(pair[0])
        self.plan = msgspec.structs.replace(self.plan, routes=tuple(routes))

    def _take_away(self, plan: RoutePlan, spec: RouteSpec | None) -> None:
        if spec is None:
            self.border.remove(plan)
        else:
            self._dispatcher.remove_route(spec)

    def _make_again(self, which: Callable[[RoutePlan], bool]) -> None:
        """Make routes again, because something is in another process or thread now."""
        for label, pairs in self._specs.items():
            for number, (plan, spec) in enumerate(pairs):
                if which(plan):
                    # The object in the plan stays the same: the border finds the route by it.
                    self._take_away(plan, spec)
                    divided = self.border.add(plan)
                    pairs[number] = (plan, None if divided else self._lead(plan, label))

    # ------------------------------------------------------------------ legs and link ends (``border.py``)

    def add_leg(self, name: str, label: str, plan: RoutePlan) -> None:
        """Add the part of a route in this process."""
        self._legs[name] = self._lead(plan, label)

    def remove_leg(self, name: str) -> None:
        """Remove it."""
        self._dispatcher.remove_route(self._legs.pop(name))

    def host_link(self, name: str, make_engine: Callable[[EngineSetup], Engine], beside: str) -> EngineThread:
        """Host a link end in the thread of the engine ``beside``: its messages then cross no other thread."""
        home = self.homes.get(beside)
        # At the start routes come before engines.
        wanted = self._threads_wanted.get(beside)
        apart = self.border.apart()
        if home is None or home.name in apart:
            home = self.threads[wanted] if wanted in self.threads and wanted not in apart else None
        # Beside the engine; for an API, which has no thread of the kernel, beside the other links of that
        # API.
        thread = home or self._thread_of_links(beside) or self._thread_for(name, None)
        self._add(name, None, make_engine, thread, None)
        self._beside[name] = beside
        return thread

    def _thread_of_links(self, beside: str) -> EngineThread | None:
        """Return the thread of another link end of the same API: one lease may have both (``Lease``)."""
        homes = [self.homes.get(link) for link, other in self._beside.items() if other == beside]
        # A thread that is being removed is in ``homes`` still.
        return next((thread for thread in self.threads.values() if thread in homes), None)

    def remove_link(self, name: str, linger: float) -> None:
        """Remove a link end."""
        home = self.homes.pop(name, None)
        self._beside.pop(name, None)
        if home is not None:
            home.remove(name, None, linger)

    def assign_engines(self, plan: Plan) -> None:
        """Say in which threads the engines of a plan will be, before its routes are added."""
        self._threads_wanted = {engine.name: engine.thread for engine in plan.engines if engine.thread}
        self.border.assign_engines(plan)

    # ------------------------------------------------------------------ from one plan to another

    def apply(self, plan: Plan) -> list[str]:
        """Change what runs to ``plan``, which was checked; return a line for each change."""
        # Compared with what runs at this moment. Other threads may change the system between two steps below:
        # a step whose part has gone by then raises, and those before it stay.
        new = msgspec.structs.replace(plan, threads=self._threads_of(plan))
        homes = {name: thread.name for name, thread in self.homes.items()}
        change = diff(self.plan, new, homes, self._live_options)
        # A guest thread belongs to the trio run of ``async with``: its start and its end are not ours.
        refuse_guests((*change.threads_removed, *change.threads_added), self._registry, plan.file)
        for route in change.routes_removed:
            self.remove_route(route)
        for engine in change.engines_removed:
            self.remove_engine(engine.name, 0.0, None)
        for thread in change.threads_removed:
            self._remove_thread(thread.name)
        for engine in change.engines_changed:
            self._change_engine_and_wait(engine)
        # Before the routes: where their ends are says whether and how they are divided.
        self.assign_engines(new)
        for thread in change.threads_added:
            self.add_thread(thread)
        # Routes before engines, as at the start: the first messages of an engine already need them.
        for route in change.routes_added:
            self.add_route(route)
        self.add_engines(change.engines_added)
        return change.lines()

    def _threads_of(self, plan: Plan) -> tuple[ThreadPlan, ...]:
        apart = {thread.name for thread in self.plan.threads if is_apart(thread.kind, self._registry)}
        # A plan without threads gets those that run, as at the start it gets one.
        if not plan.threads:
            return tuple(thread for thread in self.plan.threads if thread.name not in apart)
        # The thread that the first plan got stays beside the threads that a later one names: without it, each
        # engine that lives there would be started anew.
        given = self.plan.thread(DEFAULT_THREAD) if self.has_default_thread else None
        if given is None and needs_thread(plan, self._registry):
            given, self.has_default_thread = ThreadPlan(name=DEFAULT_THREAD), True
        if given is None or plan.thread(DEFAULT_THREAD) is not None:
            return plan.threads
        return (given, *plan.threads)

    def _remove_thread(self, name: str) -> None:
        # Out of ``threads`` before it stops, so that ``_thread_for`` gives it no engine any more.  Under the
        # lock: other threads choose among ``threads``, and change ``homes`` below.
        with self.changing:
            gone = self.threads.pop(name)
            # Link ends of routes that stay may be in it, since no engine of these routes is in this process.
            hosted = self.border.hosted_by(gone.number)
            if hosted and self.threads:
                self._make_again(lambda route: any(route is each for each in hosted))
        gone.stop()
        # Without the lock: an engine of that thread may be waiting for it, to change a route as it ends.
        gone.join()
        gone.dispose()
        with self.changing:
            # ``apply`` has removed the engines of the plan.  Those that ``host`` started have ended with it.
            for engine in [engine for engine, home in self.homes.items() if home is gone]:
                del self.homes[engine]
            kept = tuple(kept for kept in self.plan.threads if kept.name != name)
            self.plan = msgspec.structs.replace(self.plan, threads=kept)


def _checked(options: dict[str, Any], kind: Kind, whose: str) -> Any:
    """Return the options of a part that is added by itself; those of a plan were checked as a whole."""
    wanted = kind.options_class()
    try:
        return msgspec.convert(options, wanted, strict=False)
    except msgspec.ValidationError as error:
        known = ", ".join(sorted(wanted.__struct_fields__)) or "none"
        raise PlanError([f"{whose}: {error}; the options of {kind.name!r} are: {known}"]) from error


def _filter_of(plan: RoutePlan) -> Callable[[], Callable[[Any], bool]] | None:
    """Return a function that makes the filter of a route (``RouteSpec.make_filter``).

    None for a route without one.
    """
    if not plan.match and plan.exchange is None:
        return None
    exchange = plan.exchange

    # Each source port makes a filter of its own: ``key_filter`` remembers its answers, and is changed by a
    # call, so that two threads must not share one.
    def make() -> Callable[[Any], bool]:
        matches = key_filter(plan.match) if plan.match else None
        return lambda envelope: (
            (exchange is None or envelope.exchange == exchange) and (matches is None or matches(envelope.key))
        )

    return make
