"""Kernel: a running system.  Starts the parts of a plan, opens APIs for applications, and closes everything.

States: ``new``, ``running``, ``closing`` (after ``close``), ``closed`` (after ``join``).  A state is never
entered twice: a kernel is started once.  In a child process that was forked, a kernel that was running is
``forked``: its threads are the parent's (``kernel/hosting/forking.py``).

The one idea of this module is the life of a system: the order in which its parts start and end, and who waits
for whom.  ``parts.py`` has the parts themselves and the changes to them while the system runs.  The methods
of ``Kernel`` that change or ask something only pass it on.

A start does not wait for engines, and ``close`` does not wait for threads: ``wait_running`` and ``join`` do.
So an application may start several kernels at once, and an engine's thread may close its own kernel.

A program that ends without closing its kernel has it write out what is queued, too (``_write_out_at_exit``).

At the end the threads write out what is queued before they stop (``linger``).  A thread cannot decide alone
that it is done: what is in a pipe to it may come from a thread that still works.  So each closing thread
asks after each of its turns whether the whole system has written everything, and the one that finds so stops
all (``_written_out``).
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from threading import get_ident
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast, overload
from weakref import WeakSet

import msgspec

from kernel.contracts.durations import in_seconds
from kernel.contracts.engine import Engine, EngineEvent
from kernel.contracts.errors import KernelClosed, KernelError, UnknownName, nearest
from kernel.contracts.kinds import ApiKind, BoundSockets, EngineSetup
from kernel.contracts.thread import NEVER_STARTED, Done, EngineStatus, EngineThread
from kernel.dispatcher.dispatcher import Dispatcher
from kernel.hosting.exiting import call_at_exit
from kernel.hosting.forking import FORKED, OfThisProcess, call_in_children
from kernel.hosting.uninterrupted import UNINTERRUPTED
from kernel.plugins import PluginRegistry
from kernel.topology.border import needs_thread
from kernel.topology.guests import is_guest, refuse_guests
from kernel.topology.inspection import Inspection, inspect
from kernel.topology.lingering import Lingering
from kernel.topology.operation import operate
from kernel.topology.parts import Parts
from kernel.topology.plan import (
    DEFAULT_THREAD,
    EnginePlan,
    Plan,
    RoutePlan,
    ThreadPlan,
    shards_of,
    with_shards,
)
from kernel.topology.statistics import SystemStatistics, gather
from kernel.topology.system_for_engines import SystemForEngines
from kernel.topology.waits import Waits

# The kernel imports no plugin when it runs.  Here it tells type checkers what the plugins of its own
# distribution open.
if TYPE_CHECKING:
    from kernel.contracts.api import Api
    from kernel.contracts.thread import GuestThread
    from kernel.topology.explaining import Explanation, Question
    from kernel.topology.tap import Tap, TapWanted
    from plugins.apis.direct.channel import DirectChannel
    from plugins.apis.native.asyncio_channel import AsyncioChannel
    from plugins.apis.native.channel import Channel
    from plugins.apis.native.trio_channel import TrioChannel
    from plugins.engines.broker.local.client import BrokerClient

AnyApi = TypeVar("AnyApi", bound="Api")

_log = logging.getLogger(__name__)

LINGER = 5.0
"""Seconds that a closing kernel may take to write what is queued."""

_STOPPED_WITHIN = 1.0
"""Seconds that the threads of a kernel may take to stop at the end of a process, after they have lingered."""

_LOOKED_AT = 8
"""How many APIs are looked at, in turn, whether they were closed, when one more is opened."""


class Kernel(OfThisProcess):
    """Threads, engines and routes.  No global state: two kernels in one process share nothing.

    ``with Kernel(plan) as kernel:`` starts it.  After the block no thread, descriptor or task is left.
    The constructor raises ``PlanError`` with all mistakes of a plan.
    """

    def __init__(self, plan: Plan | None = None, registry: PluginRegistry | None = None) -> None:
        self.registry: PluginRegistry = registry or PluginRegistry.load()
        plan = self._checked(plan or Plan())
        self._dispatcher: Dispatcher = Dispatcher()
        self.events: list[Callable[[EngineEvent], Any]] = []
        """Listeners: functions that are called with each event of an engine (connected, failed, retrying),
        in the engine's thread.  ``events.append(print)`` shows all of them.  While there is none, failures
        are logged as warnings."""
        self._parts: Parts = Parts(
            plan,
            self.registry,
            self._dispatcher,
            self._report,
            SystemForEngines(self, self._threads, self._look, self._planned_engines),
            self._running,
        )
        self._lingering: Lingering = Lingering(
            self._dispatcher.pipes, self._threads, self._parts.border.moved
        )
        self.linger_at_exit: Callable[[], float] = lambda: LINGER
        """Returns for how many seconds it writes out what is queued if the process ends and nobody has closed
        it."""
        self._apis: list[Api] = []
        self._waits = Waits()
        self._state = "new"
        self._guests: Any = None
        self._lock = threading.RLock()
        """Held while the state and the list of APIs are changed, which any thread may do.

        Reentrant: a signal's handler that calls ``close`` may interrupt ``open`` while it is held.
        """
        self._freeing = 0
        """The thread that frees what the threads of the kernel have left; 0: they have not ended."""
        self._freed = threading.Event()
        call_in_children(self, Kernel._forked)

    @property
    def plan(self) -> Plan:
        """What is running now.  Before the start: what will be started.  Any thread."""
        return self._parts.plan

    def _planned_engines(self) -> tuple[EnginePlan, ...]:
        return self._parts.planned_engines()

    def _threads(self) -> list[EngineThread]:
        return self._parts.all_threads()

    def _checked(self, plan: Plan) -> Plan:
        """Return a plan with the shards of its engines; ``PlanError`` for mistakes of one made in Python.

        A plan from a file was checked, and has got its shards, when it was read.
        """
        if not isinstance(plan, Plan):
            raise TypeError(
                f"a kernel is made of a Plan, not of {type(plan).__name__}; Kernel.from_file(path) reads a file"
            )
        if not plan.file and (plan.engines or plan.routes or plan.threads):
            from kernel.topology.check_plan import check_plan

            check_plan(plan, self.registry)
        return with_shards(plan, self.registry)

    @classmethod
    def from_file(cls, path: str | Path, registry: PluginRegistry | None = None) -> Kernel:
        """Read and check a topology file; ``PlanError`` has all complaints."""
        # Here, so that a kernel without a file imports no parser of files.
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
        _refuse_greenlets()
        try:
            with UNINTERRUPTED:
                self._start_parts()
        except BaseException:
            # The block of ``with`` is not entered then, so nobody else ends the threads that have started.
            self.close(linger=0)
            self.join()
            raise
        return self

    def _start_parts(self) -> None:
        # First, because ``Parts`` refuses every step while the kernel is not running.
        self._state = "running"
        parts = self._parts
        plan = parts.empty()
        # Not ``self.add_thread``, which refuses guests: ``__aenter__`` comes here too.
        parts.has_default_thread = needs_thread(plan, self.registry)
        given = (ThreadPlan(name=DEFAULT_THREAD),) if parts.has_default_thread else ()
        for thread in (*given, *plan.threads):
            parts.add_thread(thread)
        parts.assign_engines(plan)
        # Before the engines: their first messages already need the routes.
        for route in plan.routes:
            parts.add_route(route)
        parts.add_engines(plan.engines)
        _STARTED.add(self)
        call_at_exit(_write_out_at_exit)
        self.registry.kernel_started(self)

    def close(self, linger: float = LINGER, reason: str = "the kernel was closed") -> None:
        """Begin to close; returns at once.  Any thread.

        Calls of the application that wait raise ``KernelClosed``.  Threads have ``linger`` seconds to write
        what is queued.
        """
        with UNINTERRUPTED:
            if not self._begin_to_close(reason):
                return
            # The APIs first, so that no more messages come from the application while the threads write out.
            # The list is replaced and never changed while the kernel runs (``_enter``), so it may be read
            # without the lock.
            for api in self._apis:
                api.kernel_closed(reason)
            self._waits.end()
            self._end_threads(linger)

    def _begin_to_close(self, reason: str) -> bool:
        """Start and open nothing more; whether that is new."""
        if self._state == "forked":
            return False
        # ``changing`` first: a thread that is being added now is in the list below, and one that is added
        # later is refused.  Otherwise nobody would stop it, and ``join`` would wait for it for ever.
        with self._parts.changing, self._lock:
            if self._state in ("closing", "closed"):
                return False
            # An API that is opened after this finds the state, and ``open`` tells it.
            self._state = "closing"
        # Outside the lock: a plugin's hook may wait for another thread, which may be waiting for the lock.
        self.registry.kernel_stopping(self, reason)
        return True

    def _end_threads(self, linger: float) -> None:
        for thread in self._threads():
            if linger > 0:
                thread.linger(linger, partial(self._written_out, thread.number))
            else:
                thread.stop()
        if linger > 0:
            self._parts.border.linger(linger, self._written_out)

    def join(self, timeout: float | None = None) -> bool:
        """Wait after ``close`` until all threads have ended.

        False if a thread has not within ``timeout`` seconds.
        """
        if self._state == "forked":
            return True
        if not all(thread.join(timeout) for thread in self._threads()):
            return False
        # Not before all threads have ended: a thread that still works accepts on the sockets, and rings the
        # doorbells of applications and of other threads.
        with UNINTERRUPTED:
            self._free()
        return True

    def _free(self) -> None:
        """Free what the threads have left.  Of several that call it one does it, and the others wait."""
        with self._lock:
            first, self._freeing = not self._freeing, self._freeing or get_ident()
            # An API that is opened after this finds the state, and ``open`` disposes of it.
            self._state = "closed"
            apis, self._apis = self._apis, []
        if not first:
            # It may be called by a handler of a signal in the middle of itself.
            if self._freeing != get_ident():
                self._freed.wait()
            return
        try:
            self._parts.close_sockets()
            for api in apis:
                api.dispose()
        finally:
            self._dispatcher.dispose()
            self._freed.set()

    def __enter__(self) -> Kernel:
        # ``with kernel.start():`` and ``with`` around a kernel that runs already: the block only closes it.
        return self.start() if self._state == "new" else self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        linger = LINGER if error is None else 0
        try:
            self.close(linger)
        except BaseException:
            # A handler of a signal has raised.  If ``close`` has begun, the second one does nothing.
            self.close(linger)
            self.join()
            raise
        self.join()

    async def __aenter__(self) -> Kernel:
        """Start as ``with`` does, in a task of trio or of asyncio.

        Threads of kind ``guest`` run in this task's trio run; asyncio has none.
        """
        if _in_asyncio():
            return self.start() if self._state == "new" else self
        import trio

        if self._state == "new":
            self._start()
        self._guests = trio.open_nursery()
        nursery = await self._guests.__aenter__()
        try:
            for thread in self.plan.threads:
                if is_guest(thread, self.registry):
                    await nursery.start(cast("GuestThread", self._parts.threads[thread.name]).serve)
        except BaseException as error:
            # ``async with`` does not call ``__aexit__`` if ``__aenter__`` raises, and the nursery must be
            # left.
            await self.__aexit__(type(error), error, error.__traceback__)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(linger=LINGER if error is None else 0)
        if self._guests is None:
            await self._join_in_asyncio()
            return
        import trio

        try:
            # ``close`` has told the guests to stop, so the nursery ends by itself.  It gets no error, because
            # it would wrap it in an ``ExceptionGroup``: the caller's error is passed on by ``async with`` as
            # it is.
            await self._guests.__aexit__(None, None, None)
        finally:
            # Guests have ended with the nursery.  Threads of the kernel are waited for in a worker thread, so
            # that the caller's other tasks go on.  Shielded: a cancelled caller must leave no thread, either.
            if not all(is_guest(thread, self.registry) for thread in self.plan.threads):
                with trio.CancelScope(shield=True):
                    await trio.to_thread.run_sync(self._join_threads)
            self.join()

    async def _join_in_asyncio(self) -> None:
        """Wait for the threads in a worker thread, so that the caller's other tasks go on."""
        import asyncio

        waiting = asyncio.ensure_future(asyncio.to_thread(self._join_threads))
        cancelled: asyncio.CancelledError | None = None
        while not waiting.done():
            try:
                # ``wait`` does not cancel what it waits for: a cancelled caller must leave no thread, either.
                await asyncio.wait([waiting])
            except asyncio.CancelledError as error:
                cancelled = error
        self.join()
        if cancelled is not None:
            raise cancelled

    def _join_threads(self) -> None:
        for thread in self._threads():
            thread.join()

    def _written_out(self, number: int) -> bool:
        """Return whether nothing is left to write, and stop all threads if so.

        Every closing thread calls this after each of its turns, with its number.
        """
        if not self._lingering.is_over(number):
            return False
        # The other threads may be asleep.  They take no turn, so they would never ask.
        for thread in self._threads():
            thread.stop()
        return True

    def wait_running(self, timeout: float | None = 10.0, *, engine: str | None = None) -> None:
        """Wait until every engine is running or has ended without a failure; ``engine``: only this one.

        ``KernelError`` names the others.  It is a ``KernelClosed`` if the kernel closes meanwhile.
        """
        self._refuse_if_forked()
        # Set by every event of an engine.  An engine's state changes before its event is reported, so that
        # whoever clears the flag and then looks at the states misses no change.
        changed = threading.Event()

        def told(_: EngineEvent) -> None:
            changed.set()

        # For programs that add many engines one by one, as sockets are: none of them has to look at all
        # others.
        def one() -> list[EngineStatus]:
            return self._parts.states_of(engine or "")

        self.events.append(told)
        try:
            with self._waits.waiting(changed.set):
                self._wait_running(changed, timeout, self.engine_states if engine is None else one)
        finally:
            self.events.remove(told)

    def _wait_running(
        self, changed: threading.Event, timeout: float | None, states: Callable[[], list[EngineStatus]]
    ) -> None:
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            changed.clear()
            late = [state for state in states() if not state.came_up()]
            if not late:
                return
            if self._waits.over:
                # No event tells of an engine that was stopped.
                raise KernelClosed(f"the kernel was closed: {_states(late)}")
            left = None if deadline is None else deadline - time.monotonic()
            if (left is not None and left <= 0) or not changed.wait(left):
                said = _states(late, f"({NEVER_STARTED})")
                raise KernelError(f"not running after {in_seconds(timeout or 0)}: {said}")

    # ------------------------------------------------------------------ application code

    @overload
    def open(self, name: str, api: Literal["native"] | None = None, **options: Any) -> Channel: ...

    @overload
    def open(self, name: str, api: Literal["trio"], **options: Any) -> TrioChannel: ...

    @overload
    def open(self, name: str, api: Literal["asyncio"], **options: Any) -> AsyncioChannel: ...

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
        # Three sorts of names: an API of the plan, an engine (refused), and a name that only a route has.
        planned = self.plan.engine(name)
        if planned is None and name in self._parts.homes:
            raise UnknownName(
                f"{name!r} is an engine, and applications can only open APIs; {self._hint(name)}"
            )
        if planned is not None and planned.kind not in self.registry.apis:
            raise UnknownName(
                f"{name!r} is an engine of kind {planned.kind!r}, and applications can only open APIs; "
                f"{self._hint(name)}"
            )
        wanted = api if isinstance(api, type) else None
        kind_name = api if isinstance(api, str) else planned.kind if planned else "native"
        kind: ApiKind = self.registry.kind("apis", kind_name)
        # Kinds whose messages take no routes, such as a client of a broker, may be opened by any name.
        if planned is None and kind.routed:
            self._refuse_unknown(name)
        merged = {**(planned.options if planned else {}), **options}
        # Imported here: most brokers, bridges and feeders run without an API.
        from kernel.contracts.api import ApiSetup
        from kernel.threads.caller_thread import CallerThread

        setup = ApiSetup(
            name=name,
            options=self._options(name, kind, merged),
            join=partial(CallerThread, self._dispatcher, name),
            rendezvous=self._dispatcher.rendezvous,
            make_protocol=self.registry.protocol_maker(),
            waiting=self._waits.waiting,
        )
        opened: Api | None = None
        try:
            # One that is half open would be in the matrix, and be sent messages that nobody receives.  Kinds
            # without routes may wait for their peer, and are told of signals meanwhile.
            with UNINTERRUPTED if kind.routed else nullcontext():
                opened = kind.create(setup)
                # Before it is in the list: ``join`` disposes of what is there, and no API is disposed of
                # twice.
                if wanted is None or isinstance(opened, wanted):
                    self._enter(opened)
        except BaseException:
            if opened is not None:
                opened.dispose()
            raise
        if wanted is not None and not isinstance(opened, wanted):
            opened.dispose()
            raise KernelError(
                f"{name!r} is of kind {kind_name!r}, which opens a {type(opened).__name__}, not a {wanted.__name__}"
            )
        return opened

    def _enter(self, opened: Api) -> None:
        """Have an API told when the kernel closes."""
        # Under the lock, because other threads open APIs at the same time: one that is not in the list would
        # never hear that the kernel closes.  Those that the application has closed meanwhile are forgotten
        # here, or a system that opens many would grow without bound.
        with self._lock:
            # A few of them in turn: however many are open, one more costs the same.
            looked_at, others = self._apis[:_LOOKED_AT], self._apis[_LOOKED_AT:]
            self._apis = [*others, *(kept for kept in looked_at if not kept.closed), opened]
            state = self._state
        if state != "running":
            opened.kernel_closed("the kernel was closed")
        if state == "closed":
            # Nobody else would (``join``).
            opened.dispose()

    def _options(self, name: str, kind: ApiKind, options: dict[str, Any]) -> msgspec.Struct:
        """Return the checked options of an API that is opened."""
        try:
            return msgspec.convert(options, kind.options_class())
        except msgspec.ValidationError as error:
            known = ", ".join(sorted(kind.options_class().__struct_fields__)) or "none"
            raise KernelError(
                f"cannot open {name!r}: {error}; the options of {kind.name!r} are: {known}"
            ) from error

    def _refuse_unknown(self, name: str) -> None:
        """Raise ``UnknownName`` for a name that no route knows."""
        if not any(name in route.ends for route in self.plan.routes):
            raise UnknownName(
                f"nothing is called {name!r}, and no route leads there or begins there; {self._hint(name)}"
            )

    def _hint(self, name: str) -> str:
        """Say which name was probably meant, and which names applications can open."""
        plan = self.plan
        engines = {engine.name: engine.kind for engine in plan.engines}
        known = {each for each, kind in engines.items() if kind in self.registry.apis}
        # A name that only routes have can be opened as well, unless it is that of an engine.
        known |= {end for route in plan.routes for end in route.ends if end not in engines}
        known -= {*self._parts.homes, name}
        if not known:
            return "the running system has no name that can be opened; add an engine of kind 'native', or a route"
        listed = f"names that can be opened: {', '.join(sorted(known))}"
        near = nearest(name, known)
        # Without a similar name ``nearest`` lists them itself.
        return f"{near} {listed}" if near.startswith("did you mean") else listed

    # ------------------------------------------------------------------ changes while running

    def add_thread(self, plan: ThreadPlan) -> None:
        """Start a thread that hosts engines.  Any thread; ``KernelClosed`` if the kernel is not running."""
        self._running()
        refuse_guests((plan,), self.registry)
        self._parts.add_thread(plan)

    def add_engine(self, plan: EnginePlan, bound: BoundSockets | None = None) -> None:
        """Start an engine, or add a name that applications may open.  Any thread.

        ``bound`` has listening sockets for the engine (``kernel.hosting.listener.listen_on``).  If the
        address is in use, the caller gets the error there.  The kernel closes the sockets when the engine is
        removed.
        """
        self._parts.add_engine(plan, bound)
        # A plan that is started or applied has its shards already (``_checked``). One engine that is added
        # has not.
        for shard in shards_of(plan, self.registry):
            self._parts.add_engine(shard, None)

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
        self._parts.host(name, make_engine, thread, bound)

    def remove_engine(self, name: str, linger: float = 0.0, on_gone: Callable[[], Any] | None = None) -> None:
        """Stop an engine; returns at once.  Its routes stay.  Any thread.

        The engine has ``linger`` seconds to write what waits for it.  ``on_gone()`` is called in its thread
        when it has ended; it must not wait or raise.
        """
        # Before it is removed: its plan says which shards go with it.
        plan = self.plan.engine(name)
        self._parts.remove_engine(name, linger, on_gone)
        for shard in () if plan is None else shards_of(plan, self.registry):
            self._parts.remove_engine(shard.name, linger, None)

    def add_route(self, plan: RoutePlan) -> None:
        """Connect engines: those that are running, and those that will be added.  Any thread."""
        self._parts.add_route(plan)

    def remove_route(self, plan: RoutePlan) -> None:
        """Remove a route; what is in its pipes is still delivered.

        ``UnknownName`` if there is none.  Any thread.

        Several routes may have the label of ``plan``.  The one that is equal to ``plan`` is removed, or else
        the first.
        """
        self._parts.remove_route(plan)

    def apply(self, plan: Plan) -> list[str]:
        """Change the running system to ``plan``, without touching what both have in common.

        Returns a line for each change.  Raises ``PlanError`` before any change if the plan has mistakes.
        Waits for the threads that it removes, so it is not for an engine's thread.
        """
        return self._parts.apply(self._checked(plan))

    def change_options(self, engine: str, options: dict[str, Any], answer: Callable[[Done], Any]) -> None:
        """Give a running engine other options, of those that it takes (``EngineKind.live_options``).

        ``answer`` is called by the engine's thread when it has taken them.
        """
        self._parts.change_options(engine, options, answer)

    # ------------------------------------------------------------------ for operators

    def engine_states(self) -> list[EngineStatus]:
        """Return the state of each engine.  Any thread."""
        return self._parts.engine_states()

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
        return gather(self._dispatcher, self._parts.all_threads(), self._parts.border.apart())

    def _look(self) -> SystemStatistics:
        """Return the same for an engine, which reads figures of many things in pieces."""
        return gather(self._dispatcher, self._parts.all_threads(), self._parts.border.apart(), lazily=True)

    def inspect(self, what: str, timeout: float = 2.0) -> Inspection:
        """Ask every engine for its rows of a table: ``queues``, ``connections`` ...

        Threads that do not answer within ``timeout`` seconds are named in ``failed``.  Not for an engine's
        thread.
        """
        self._refuse_if_forked()
        return inspect(self._threads(), what, timeout)

    def operate(self, engine: str, what: str, argument: Any = None, timeout: float = 30.0) -> Any:
        """Call an operation of an engine (``kernel.contracts.engine.Operable``); return its result.

        ``KernelClosed`` if the kernel closes before it is done.
        """
        self._refuse_if_forked()
        try:
            return operate(self._threads(), engine, what, argument, timeout, self._waits.waiting)
        except KernelError as error:
            # A refusal of the engine has a cause.  Without one there was nobody to ask.
            if self._waits.over and error.__cause__ is None and not isinstance(error, KernelClosed):
                raise KernelClosed(f"the kernel was closed: {error}") from error
            raise

    def engines_with(self, operation: str) -> list[str]:
        """Return the names of the engines whose kind has an operation (``EngineKind.operations``)."""
        from kernel.topology.asking import engines_with

        return engines_with(self.plan, self.registry, operation)

    def tap(self, wanted: TapWanted) -> Tap:
        """Watch messages pass, in the calling thread.  Close it.

        ``KernelError`` if there is nothing of that name to watch.  Not for the thread of an engine, as
        ``operate``.
        """
        # Imported here, as in ``explain``: most systems are never looked at so.
        from kernel.topology.tap import open_tap

        self._running()
        return open_tap(self, self._parts, self._dispatcher, wanted, self._enter)

    def explain(self, question: Question, timeout: float = 30.0) -> Explanation:
        """Say who would get a message, and for those who would not, why.  Nothing is sent.

        Not for the thread of an engine, as ``operate``.
        """
        from kernel.topology.explaining import explain

        return explain(self, question, timeout)

    def _forked(self) -> None:
        """This process is a child that was forked: its parent goes on, and nothing is done here any more."""
        freeing = self._freeing and not self._freed.is_set()
        if self._state in ("running", "closing") or freeing:
            self._state = "forked"
            # Threads of the parent may have held them.
            self._lock, self._parts.changing = threading.RLock(), threading.RLock()
            self._dispatcher.forked(FORKED)
            self._parts.threads.clear()

    def _running(self) -> None:
        self._refuse_if_forked()
        if self._state == "new":
            raise KernelClosed("the kernel is not started: use it in a `with` block, or call start()")
        if self._state != "running":
            raise KernelClosed(f"the kernel is {self._state}")

    def _refuse_if_forked(self) -> None:
        if self._state == "forked":
            raise KernelClosed(FORKED)

    def _report(self, event: EngineEvent) -> None:
        # A copy: listeners are added and removed by other threads, and by listeners.
        listeners = list(self.events)
        if not listeners and event.what == "failed":
            # Otherwise an application would only find that nothing comes.
            _log.warning("engine %s has failed: %s", event.engine, event.detail)
        for listener in listeners:
            try:
                listener(event)
            except Exception:
                # In an engine's thread: a fault of the application must stop neither the engine nor the
                # thread.
                _log.exception("a listener of kernel.events failed at %s", event)


_STARTED: WeakSet[Kernel] = WeakSet()


def _states(engines: list[EngineStatus], otherwise: str = "") -> str:
    """Return what to say of engines: their state and their last failure; ``otherwise`` if there is none."""
    return "; ".join(
        f"{each.name} is {each.state} {each.last_failure or otherwise}".rstrip() for each in engines
    )


def _write_out_at_exit() -> None:
    """Have kernels that nobody has closed write out what is queued: the process ends.

    APIs are not told.  Threads that still wait in them are daemons, or the process would not end.  They would
    only print that their calls have failed.
    """
    until = time.monotonic()
    kernels = [kernel for kernel in _STARTED if kernel._begin_to_close("the process ends")]
    for kernel in kernels:
        linger = kernel.linger_at_exit()
        until = max(until, time.monotonic() + linger + _STOPPED_WITHIN)
        kernel._end_threads(linger)
    for kernel in kernels:
        for thread in kernel._threads():
            thread.join(max(0.0, until - time.monotonic()))


def _refuse_greenlets() -> None:
    # They would run a thread of ours, and with it its trio, as a greenlet: nothing would ever be ready, and
    # the application would wait for it.
    for library, module, question in (
        ("gevent", "gevent.monkey", "is_module_patched"),
        ("eventlet", "eventlet.patcher", "is_monkey_patched"),
    ):
        patcher = sys.modules.get(module)
        if patcher is not None and any(map(getattr(patcher, question), ("threading", "thread", "select"))):
            raise KernelError(
                f"{library} has replaced the threads or the polling of Python's library in this process, "
                "and a kernel needs the real ones: start it in a process without that"
            )


def _in_asyncio() -> bool:
    """Whether the calling task is one of asyncio, and not one of trio."""
    # Neither is imported for the question: whoever runs in one of them has imported it.
    asyncio, trio = sys.modules.get("asyncio"), sys.modules.get("trio")
    if asyncio is None or asyncio._get_running_loop() is None:
        return False
    # Trio may run as a guest of asyncio's loop.
    return trio is None or not trio.lowlevel.in_trio_task()
