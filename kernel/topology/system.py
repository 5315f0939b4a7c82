"""Kernel: a running system.  Builds it from a plan, changes it while messages flow, and closes it.

States: ``new``, ``running``, ``closing`` (after ``close``), ``closed`` (after ``join``).

``plan`` is at any moment what is running: ``_start`` begins with an empty plan and adds each part as it is
started.  The methods that change it may be called by any thread, engines' threads included, so they take the
lock ``_changing``.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from functools import partial, wraps
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, Literal, ParamSpec, TypeVar, cast, overload

import msgspec

from kernel.contracts.api import Api, ApiSetup
from kernel.contracts.engine import Engine, EngineEvent
from kernel.contracts.errors import KernelClosed, KernelError, UnknownName
from kernel.contracts.key_trie import key_filter
from kernel.contracts.kinds import ApiKind, BoundSockets, EngineKind, EngineSetup
from kernel.contracts.thread import EngineStatus, EngineThread, ThreadSetup
from kernel.dispatcher.dead_letter import dead_letter_route
from kernel.dispatcher.dispatcher import Dispatcher
from kernel.dispatcher.route import RouteSpec
from kernel.plugins import PluginRegistry
from kernel.threads.caller_thread import CallerThread
from kernel.topology.guests import is_guest, refuse_guests
from kernel.topology.inspection import Inspection, inspect
from kernel.topology.operation import operate
from kernel.topology.option_check import nearest
from kernel.topology.plan import DEFAULT_THREAD, EnginePlan, Plan, RoutePlan, ThreadPlan, diff
from kernel.topology.statistics import SystemStatistics, gather
from kernel.topology.system_for_engines import SystemForEngines

if TYPE_CHECKING:  # the kernel imports no plugin, but it tells type checkers what its own kinds open
    from kernel.contracts.thread import GuestThread
    from plugins.apis.direct.channel import DirectChannel
    from plugins.apis.native.channel import Channel
    from plugins.apis.native.trio_channel import TrioChannel
    from plugins.engines.broker.local.client import BrokerClient

AnyApi = TypeVar("AnyApi", bound=Api)

_log = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")

LINGER = 5.0
"""Seconds that a closing kernel may take to write what is queued."""


def _one_at_a_time(method: Callable[Concatenate[Kernel, P], T]) -> Callable[Concatenate[Kernel, P], T]:
    """Hold the lock ``_changing`` in a method: engines change the kernel from their threads (``contracts.system``)."""

    @wraps(method)
    def alone(self: Kernel, /, *args: P.args, **kwargs: P.kwargs) -> T:
        with self._changing:
            return method(self, *args, **kwargs)

    return alone


class Kernel:
    """Threads, engines and routes.  No global state: two kernels in one process share nothing.

    ``with Kernel(plan) as kernel:`` starts it.  After the block no thread, descriptor or task is left.
    The constructor raises ``PlanError`` with all mistakes of a plan.
    """

    def __init__(self, plan: Plan | None = None, registry: PluginRegistry | None = None) -> None:
        self.plan: Plan = plan or Plan()
        self.registry: PluginRegistry = registry or PluginRegistry.load()
        self._check(self.plan)
        self.dispatcher: Dispatcher = Dispatcher()
        self.events: list[Callable[[EngineEvent], Any]] = []
        """Callbacks for events of engines (connected, failed, retrying ...).  Called in the engines'
        threads."""
        self._threads: dict[str, EngineThread] = {}
        self._homes: dict[str, EngineThread] = {}
        self._bound: dict[str, BoundSockets] = {}
        """Listening sockets that the application has bound for engines, by the engine's name."""
        self._released: list[BoundSockets] = []
        """The same for engines that were removed and have not ended yet."""
        self._apis: list[Api] = []
        self._specs: list[tuple[RoutePlan, RouteSpec]] = []
        self._state = "new"
        self._guests: Any = None
        self._lock = threading.Lock()
        self._changing = threading.RLock()
        """Held while the plan and the running system are changed.  Reentrant: ``_start`` calls
        ``add_route``."""
        self._for_engines = SystemForEngines(self, lambda: list(self._threads.values()))

    def _check(self, plan: Plan) -> None:
        """Raise ``PlanError`` for mistakes of a plan made in Python.

        A plan from a file was checked when it was read.
        """
        if not plan.file and (plan.engines or plan.routes or plan.threads):
            from kernel.topology.check_plan import check_plan

            check_plan(plan, self.registry)

    @classmethod
    def from_file(cls, path: str | Path, registry: PluginRegistry | None = None) -> Kernel:
        """Read and check a topology file; ``PlanError`` has all complaints."""
        from kernel.topology.check import load_plan

        registry = registry or PluginRegistry.load()
        return cls(load_plan(path, registry), registry)

    # ------------------------------------------------------------------ start and close

    def start(self) -> Kernel:
        """Start the threads and engines of the plan.  Does not wait until engines run (see ``wait_running``).

        Raises ``PlanError`` for a plan with guest threads, which need ``async with``.
        """
        refuse_guests(self.plan.threads, self.registry, self.plan.file)
        return self._start()

    def _start(self) -> Kernel:
        if self._state != "new":
            raise KernelError(f"a kernel is started once; this one is {self._state}")
        self._state = "running"
        plan, self.plan = self.plan, Plan(file=self.plan.file)
        try:
            for thread in plan.threads or (ThreadPlan(name=DEFAULT_THREAD),):
                self._add_thread(thread)
            for route in plan.routes:  # before the engines: their first messages already need the routes
                self.add_route(route)
            for engine in plan.engines:
                self.add_engine(engine)
        except BaseException:
            self.close(linger=0)
            self.join()
            raise
        self.registry.kernel_started(self)
        return self

    def close(self, linger: float = LINGER, reason: str = "the kernel was closed") -> None:
        """Begin to close; returns at once.  Any thread.

        Calls of the application that wait raise ``KernelClosed``.  Threads have ``linger`` seconds to write
        what is queued.
        """
        with self._lock:
            if self._state in ("closing", "closed"):
                return
            self._state = "closing"
        self.registry.kernel_stopping(self, reason)
        for api in self._apis:
            api.kernel_closed(reason)
        for thread in self._threads.values():
            if linger > 0:
                thread.linger(linger, self._written_out)
            else:
                thread.stop()

    def join(self, timeout: float | None = None) -> bool:
        """Wait after ``close`` until all threads have ended.

        False if a thread has not within ``timeout`` seconds.
        """
        if not all(thread.join(timeout) for thread in self._threads.values()):
            return False
        for bound in (*self._bound.values(), *self._released):
            bound.close()
        for api in self._apis:
            api.dispose()
        self.dispatcher.dispose()
        self._apis.clear()
        self._state = "closed"
        return True

    def __enter__(self) -> Kernel:
        return self.start() if self._state == "new" else self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(linger=LINGER if error is None else 0)
        self.join()

    async def __aenter__(self) -> Kernel:
        """Start as ``with`` does, in a trio task.  Threads of kind ``guest`` run in this task's trio run."""
        import trio

        if self._state == "new":
            self._start()
        self._guests = trio.open_nursery()
        nursery = await self._guests.__aenter__()
        try:
            for thread in self.plan.threads:
                if is_guest(thread, self.registry):
                    await nursery.start(cast("GuestThread", self._threads[thread.name]).serve)
        except BaseException as error:  # ``__aexit__`` is not called if ``__aenter__`` raises
            await self.__aexit__(type(error), error, error.__traceback__)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        import trio

        self.close(linger=LINGER if error is None else 0)
        try:
            # guests stop by themselves; the error is the caller's
            await self._guests.__aexit__(None, None, None)
        finally:
            if not all(is_guest(thread, self.registry) for thread in self.plan.threads):
                with trio.CancelScope(shield=True):
                    await trio.to_thread.run_sync(self._join_threads)
            self.join()

    def _join_threads(self) -> None:
        for thread in self._threads.values():
            thread.join()

    def _written_out(self) -> bool:
        """Return whether nothing is left to write.

        Every closing thread calls this after each of its turns.
        """
        homes = {thread.number for thread in self._threads.values()}
        for _, reader, _, pipe in self.dispatcher.pipes():
            if reader in homes and pipe.more():
                return False
        if any(thread.pending() for thread in self._threads.values()):
            return False
        for thread in self._threads.values():  # the others may be asleep and would not ask
            thread.stop()
        return True

    def wait_running(self, timeout: float | None = 10.0) -> None:
        """Wait until every engine is running or has ended without a failure.

        ``KernelError`` names the others.
        """
        changed = threading.Event()

        def told(_: EngineEvent) -> None:
            changed.set()

        self.events.append(told)
        try:
            self._wait_running(changed, timeout)
        finally:
            self.events.remove(told)

    def _wait_running(self, changed: threading.Event, timeout: float | None) -> None:
        import time

        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            changed.clear()
            late = [state for state in self.engine_states() if not state.came_up()]
            if not late:
                return
            left = None if deadline is None else deadline - time.monotonic()
            if (left is not None and left <= 0) or not changed.wait(left):
                said = "; ".join(
                    f"{state.name} is {state.state} {state.last_failure}".rstrip() for state in late
                )
                raise KernelError(f"not running after {timeout} s: {said}")

    # ------------------------------------------------------------------ application code

    @overload
    def open(self, name: str, api: Literal["native"] | None = None, **options: Any) -> Channel: ...

    @overload
    def open(self, name: str, api: Literal["trio"], **options: Any) -> TrioChannel: ...

    @overload
    def open(self, name: str, api: Literal["direct"], **options: Any) -> DirectChannel: ...

    @overload
    def open(self, name: str, api: Literal["broker-client"], **options: Any) -> BrokerClient: ...

    @overload
    def open(self, name: str, api: type[AnyApi], **options: Any) -> AnyApi: ...

    @overload
    def open(self, name: str, api: str, **options: Any) -> Any: ...

    def open(self, name: str, api: str | type[Api] | None = None, **options: Any) -> Any:
        """Open an API by its name in the topology, for use in the calling thread.

        ``options`` override the plan's.

        ``api`` is the name of its kind; without it, the plan's kind is used, or else ``native``.  It may also
        be the expected class, for type checkers: the kind is then that of the plan.  ``UnknownName`` if
        neither the plan's engines nor a route has the name, since an API without a route would wait for ever.
        """
        self._running()
        planned = self.plan.engine(name)
        if planned is None and name in self._homes:
            raise UnknownName(f"{name!r} is an engine: applications open APIs")
        if planned is not None and planned.kind not in self.registry.apis:
            raise UnknownName(f"{name!r} is an engine of kind {planned.kind!r}: applications open APIs")
        wanted = api if isinstance(api, type) else None
        kind_name = api if isinstance(api, str) else planned.kind if planned else "native"
        kind: ApiKind = self.registry.kind("apis", kind_name)
        if planned is None and kind.routed:
            self._refuse_unknown(name)
        merged = {**(planned.options if planned else {}), **options}
        setup = ApiSetup(
            name=name,
            options=msgspec.convert(merged, kind.options),
            join=partial(CallerThread, self.dispatcher, name),
            rendezvous=self.dispatcher.rendezvous,
            make_protocol=self.registry.protocol_maker(),
        )
        opened = kind.create(setup)
        self._apis = [*(kept for kept in self._apis if not kept.closed), opened]
        if wanted is not None and not isinstance(opened, wanted):
            opened.dispose()
            raise KernelError(
                f"{name!r} is of kind {kind_name!r}, which opens a {type(opened).__name__}, not a {wanted.__name__}"
            )
        return opened

    def _refuse_unknown(self, name: str) -> None:
        """Raise ``UnknownName`` for a name that no route knows."""
        known = {end for route in self.plan.routes for end in route.ends}
        if name not in known:
            known |= {engine.name for engine in self.plan.engines if engine.kind in self.registry.apis}
            raise UnknownName(
                f"nothing is called {name!r}, and no route leads there or begins there; {nearest(name, known)}"
            )

    # ------------------------------------------------------------------ changes while running

    def add_thread(self, plan: ThreadPlan) -> None:
        """Start a thread that hosts engines.  Any thread; ``KernelClosed`` if the kernel is not running."""
        self._running()
        refuse_guests((plan,), self.registry)
        self._add_thread(plan)

    @_one_at_a_time
    def _add_thread(self, plan: ThreadPlan) -> None:
        kind = self.registry.kind("thread_kinds", plan.kind)
        options = msgspec.convert(plan.options, kind.options, strict=False)
        thread: EngineThread = kind.create(
            ThreadSetup(name=plan.name, options=options, dispatcher=self.dispatcher, report=self._report)
        )
        self._threads[plan.name] = thread
        thread.start()
        self.plan = msgspec.structs.replace(self.plan, threads=(*self.plan.threads, plan))

    @_one_at_a_time
    def add_engine(self, plan: EnginePlan, bound: BoundSockets | None = None) -> None:
        """Start an engine, or add a name that applications may open.  Any thread.

        ``bound`` has listening sockets for the engine (``kernel.hosting.listener.listen_on``).  If the
        address is in use, the caller gets the error there.  The kernel closes the sockets when the engine is
        removed.
        """
        self._running()
        self._refuse_known(plan.name)
        self.plan = msgspec.structs.replace(self.plan, engines=(*self.plan.engines, plan))
        if plan.kind in self.registry.apis:
            return
        installed = self.registry.engine_for(plan.kind, plan.options)
        kind: EngineKind = installed.kind if installed else self.registry.kind("engines", plan.kind)
        options = msgspec.convert(plan.options, kind.options, strict=False)
        self._add(plan.name, options, kind.create, plan.thread, bound, plan)

    @_one_at_a_time
    def host(
        self,
        name: str,
        make_engine: Callable[[EngineSetup], Engine],
        thread: str | None = None,
        bound: BoundSockets | None = None,
    ) -> None:
        """Start an engine that the caller makes, without a kind.  Any thread.

        ``make_engine`` is called in the thread with the name ``thread`` (or in the one with the fewest
        engines), and again after each failure.  Routes lead to and from ``name`` as to any engine.  The
        engine is not part of ``plan``: ``apply`` does not touch it unless its thread is removed, and
        ``remove_engine`` removes it.  ``bound``: as for ``add_engine``.
        """
        self._running()
        self._refuse_known(name)
        self._add(name, None, make_engine, thread, bound)

    def _refuse_known(self, name: str) -> None:
        if self.plan.engine(name) is not None or name in self._homes:
            raise KernelError(f"there is an engine {name!r} already")

    def _add(
        self,
        name: str,
        options: Any,
        make_engine: Callable[[EngineSetup], Engine],
        thread_name: str | None,
        bound: BoundSockets | None,
        plan: EnginePlan | None = None,
    ) -> None:
        setup = EngineSetup(
            name=name,
            options=options,
            make_protocol=self.registry.protocol_maker(),
            bound=bound,
            system=self._for_engines,
            kinds=self.registry.kinds,
        )
        if thread_name and thread_name not in self._threads:
            raise UnknownName(f"there is no thread {thread_name!r}")
        thread = self._threads[thread_name] if thread_name else self._least_loaded()
        self._homes[name] = thread
        if bound is not None:
            self._bound[name] = bound
        thread.add(name, lambda: make_engine(setup), plan=plan)

    @_one_at_a_time
    def remove_engine(self, name: str, linger: float = 0.0, on_gone: Callable[[], Any] | None = None) -> None:
        """Stop an engine; returns at once.  Its routes stay.  Any thread.

        The engine has ``linger`` seconds to write what waits for it.  ``on_gone()`` is called in its thread
        when it has ended; it must not wait or raise.
        """
        self._running()
        if self.plan.engine(name) is None and name not in self._homes:
            raise UnknownName(f"there is no engine {name!r}")
        kept = tuple(engine for engine in self.plan.engines if engine.name != name)
        self.plan = msgspec.structs.replace(self.plan, engines=kept)
        home = self._homes.pop(name, None)
        bound = self._bound.pop(name, None)
        if bound is not None:
            self._released.append(bound)

        def gone() -> None:
            if bound is not None:
                bound.close()
                self._released.remove(bound)
            if on_gone is not None:
                on_gone()

        if home is not None:
            home.remove(name, gone, linger)
        else:
            gone()

    @_one_at_a_time
    def add_route(self, plan: RoutePlan) -> None:
        """Connect engines: those that are running, and those that will be added.  Any thread."""
        self._running()
        kind = self.registry.kind("routers", plan.router)
        options = msgspec.convert(plan.router_options, kind.options, strict=False)
        letters = None
        if plan.dead_letters is not None:
            chooser = self.registry.kind("routers", "round-robin")
            letters = dead_letter_route(
                plan.source,
                plan.label,
                plan.dead_letters,
                plan.marks,
                lambda: chooser.create(chooser.options()),
            )
            self.dispatcher.add_route(letters)
        spec = RouteSpec(
            name=plan.label,
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
        self._specs.append((plan, spec))
        self.dispatcher.add_route(spec)
        self.plan = msgspec.structs.replace(self.plan, routes=(*self.plan.routes, plan))

    @_one_at_a_time
    def remove_route(self, plan: RoutePlan) -> None:
        """Remove a route; what is in its pipes is still delivered.

        ``UnknownName`` if there is none.  Any thread.

        Several routes may have the label of ``plan``.  The one that is equal to ``plan`` is removed, or else
        the first.
        """
        self._running()
        alike = [pair for pair in self._specs if pair[0].label == plan.label]
        if not alike:
            raise UnknownName(f"there is no route {plan.label!r}")
        pair = next((pair for pair in alike if pair[0] == plan), alike[0])
        self._specs.remove(pair)
        self.dispatcher.remove_route(pair[1])
        if pair[1].dead_letters is not None:
            self.dispatcher.remove_route(pair[1].dead_letters)
        routes = list(self.plan.routes)
        routes.remove(pair[0])
        self.plan = msgspec.structs.replace(self.plan, routes=tuple(routes))

    def apply(self, plan: Plan) -> list[str]:
        """Change the running system to ``plan``, without touching what both have in common.

        Returns a line for each change.  Raises ``PlanError`` before any change if the plan has mistakes.
        """
        self._check(plan)
        new = plan if plan.threads else msgspec.structs.replace(plan, threads=self.plan.threads)
        change = diff(self.plan, new, {name: thread.name for name, thread in self._homes.items()})
        refuse_guests((*change.threads_removed, *change.threads_added), self.registry, plan.file)
        for route in change.routes_removed:
            self.remove_route(route)
        for engine in change.engines_removed:
            self.remove_engine(engine.name)
        for thread in change.threads_removed:
            gone = self._threads.pop(thread.name)
            gone.stop()
            gone.join()
            gone.dispose()
            for name in [name for name, home in self._homes.items() if home is gone]:  # started with ``host``
                del self._homes[name]
            with self._changing:
                kept = tuple(kept for kept in self.plan.threads if kept.name != thread.name)
                self.plan = msgspec.structs.replace(self.plan, threads=kept)
        for thread in change.threads_added:
            self.add_thread(thread)
        for route in change.routes_added:
            self.add_route(route)
        for engine in change.engines_added:
            self.add_engine(engine)
        return change.lines()

    # ------------------------------------------------------------------ for operators

    def engine_states(self) -> list[EngineStatus]:
        """Return the state of each engine.  Any thread."""
        return [state for thread in self._threads.values() for state in list(thread.states.values())]

    def address_of(self, name: str) -> str:
        """Return the address at which an engine listens, with the port that the system chose."""
        for state in self.engine_states():
            if state.name == name:
                return state.address
        raise UnknownName(f"there is no running engine {name!r}")

    def statistics(self) -> SystemStatistics:
        """Return the figures of engines, ports, routes, pipes and threads (``docs/figures.md``).

        Any thread.
        """
        return gather(self.dispatcher, self._threads)

    def inspect(self, what: str, timeout: float = 2.0) -> Inspection:
        """Ask every engine for its rows of a table: ``queues``, ``connections`` ...

        Threads that do not answer within ``timeout`` seconds are named in ``failed``.  Not for an engine's
        thread.
        """
        return inspect(list(self._threads.values()), what, timeout)

    def operate(self, engine: str, what: str, argument: Any = None, timeout: float = 30.0) -> Any:
        """Call an operation of an engine (``kernel.contracts.engine.Operable``); return its result."""
        return operate(list(self._threads.values()), engine, what, argument, timeout)

    def _running(self) -> None:
        if self._state != "running":
            raise KernelClosed(f"the kernel is {self._state}")

    def _least_loaded(self) -> EngineThread:
        return min(self._threads.values(), key=lambda thread: len(thread.states))

    def _report(self, event: EngineEvent) -> None:
        for listener in list(self.events):
            try:
                listener(event)
            except Exception:  # a fault of the application must not stop an engine or a thread
                _log.exception("a listener of kernel.events failed at %s", event)


def _filter_of(plan: RoutePlan) -> Callable[[], Callable[[Any], bool]] | None:
    """Return a function that makes the filter of a route (``RouteSpec.make_filter``).

    None for a route without one.
    """
    if not plan.match and plan.exchange is None:
        return None
    exchange = plan.exchange

    def make() -> Callable[[Any], bool]:
        matches = key_filter(plan.match) if plan.match else None
        return lambda envelope: (
            (exchange is None or envelope.exchange == exchange) and (matches is None or matches(envelope.key))
        )

    return make
