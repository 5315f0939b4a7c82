"""Engine thread: what all kinds of threads that host engines have in common.

An engine thread has a loop, a slot in the matrix, and engines.  ``states`` is for other threads: an entry
appears with ``add`` and disappears with ``remove``, at once.  ``_lives`` belongs to this thread: a life ends
when its engine's task has ended, which may be much later.  So an engine that was removed and an engine of the
same name that was added meanwhile exist at the same time.  The second one waits until the first has ended
(``_live``), because both may need the same address or file.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import trio

from kernel.contracts.engine import Engine, EngineEvent
from kernel.contracts.errors import KernelError
from kernel.contracts.thread import Done, Rows, Shown
from kernel.dispatcher.dispatcher import Dispatcher, ThreadSlot
from kernel.hosting.backoff import BackoffOptions
from kernel.pipes.mailbox import Mailbox
from kernel.threads.host import EngineHost
from kernel.threads.loop import Loop
from kernel.threads.supervisor import EngineState, supervise

if TYPE_CHECKING:
    import socket

    from kernel.contracts.engine import TakesOver
    from kernel.topology.plan import EnginePlan

_log = logging.getLogger(__name__)

LINGER_LOOK = 0.01
"""Seconds between two looks whether an engine that lingers has written everything."""


class _Life:
    """One life of one engine in this thread.  The next engine of its name starts when it has ended."""

    __slots__ = ("gone", "linger_until", "on_gone", "scope", "state")

    def __init__(self, state: EngineState) -> None:
        self.state = state
        self.scope = trio.CancelScope()
        self.gone = trio.Event()
        self.linger_until = 0.0
        self.on_gone: Callable[[], Any] | None = None


class EngineThread:
    """Engines in one thread.

    ``run`` is the thread's life; the other methods may be called from any thread.
    """

    def __init__(self, name: str, dispatcher: Dispatcher, report: Callable[[EngineEvent], Any]) -> None:
        self.name = name
        self.mailbox: Mailbox = Mailbox()
        # At once, not in ``run``: other threads may post to this one before it runs, and find it in the
        # matrix.
        self.slot: ThreadSlot = dispatcher.add_thread(name, self.mailbox)
        self.states: dict[str, EngineState] = {}
        self._dispatcher = dispatcher
        self._report = report
        self._lives: dict[str, _Life] = {}
        self._lingering: dict[int, EngineState] = {}
        """Removed engines that still write what they have, by ``id``."""
        self._nursery: trio.Nursery | None = None
        self._loop: Loop | None = None
        self._leaving = False
        self._linger_until = 0.0

    async def run(self, *, own_thread: bool, spin: float | None = None) -> None:
        """Host engines until stopped."""
        self._loop = Loop(self.mailbox, own_thread=own_thread, spin=spin)
        try:
            async with trio.open_nursery() as self._nursery:
                await self._loop.run()
                # ``stop`` ends the loop only. Engines are ended by cancellation.
                self._nursery.cancel_scope.cancel()
                await self._wait_for_engines(self._loop, self._nursery)
        finally:
            self._nursery = None
            # What the engines posted while they ended: their ports have left, and pipes of other threads end.
            self.mailbox.process()
            self.mailbox.ring_all()
            self._loop.close()

    async def _wait_for_engines(self, loop: Loop, nursery: trio.Nursery) -> None:
        """Take turns until the engines have ended: some wait for their peer's answer to a close."""
        # From here on ``stop`` does nothing. A second one would otherwise end these last turns, and engines
        # whose close needs the loop would never end.
        self._leaving = True
        # The loop runs again, because engines that end still need their descriptors and timers.
        loop.stop_when(lambda: not nursery.child_tasks)
        with trio.CancelScope(shield=True):
            await loop.run()

    def add(
        self,
        name: str,
        make_engine: Callable[[], Engine],
        restart: BackoffOptions | None = None,
        *,
        plan: EnginePlan | None = None,
    ) -> EngineState:
        """Host one more engine.

        ``plan`` is for threads in other processes, which cannot call ``make_engine``.  Here it says the kind,
        which an engine that code has made does not have.
        """
        state = self.states[name] = EngineState(name, "" if plan is None else plan.kind)
        self.mailbox.post(partial(self._start, state, make_engine, restart or BackoffOptions()))
        return state

    def remove(self, name: str, on_gone: Callable[[], Any] | None = None, linger: float = 0.0) -> None:
        """End an engine; ``on_gone`` is called in this thread when it has ended.

        It has ``linger`` seconds to write what it holds, and what waits in the pipes that lead to it.
        """
        # At once, in the caller's thread, so that an engine of the same name may be added.
        state = self.states.pop(name, None)
        if state is not None and linger > 0:
            self._lingering[id(state)] = state
        self.mailbox.post(partial(self._remove, state, on_gone, linger))

    def counters(self, engine: str) -> dict[str, Any]:
        """Return what an engine counts itself; empty while it does not live.  Any thread."""
        state = self.states.get(engine)
        living = None if state is None else state.engine
        if living is None:
            return {}
        try:
            return dict(living.statistics())
        except Exception as error:
            # The figures of the other engines are still wanted.
            return {"error": f"{type(error).__name__}: {error}"}

    def inspect(self, what: str, answer: Callable[[Shown], Any]) -> None:
        """Ask the engines, in this thread.  Any thread."""
        self.mailbox.post(partial(self._inspect, what, answer))

    def operate(self, engine: str, what: str, argument: Any, answer: Callable[[Done], Any]) -> None:
        """Have an engine do something, in this thread.  Any thread."""
        state = self.states.get(engine)
        if state is None:
            raise KernelError(f"there is no engine {engine!r}")
        # Looked up in the caller's thread, so that the caller gets the error at once. The call itself is made
        # in the engine's thread.
        do = getattr(state.engine, "operate", None)
        if do is None or state.state != "running":
            raise KernelError(f"engine {engine!r} ({state.state}) has no operations to ask for")
        self.mailbox.post(partial(self._operate, state, partial(do, what, argument), answer))

    def hand_over(self, engine: str, what: Mapping[str, Any], connected: socket.socket) -> None:
        """Give an engine a connection, in this thread.  Any thread."""
        state = self.states.get(engine)
        if state is None or state.state != "running" or not hasattr(state.engine, "take_over"):
            raise KernelError(f"engine {engine!r} is not running, or takes no connections of others")
        self.mailbox.post(partial(self._hand_over, state, what, connected))

    def take_options(self, engine: str, options: Any, answer: Callable[[Done], Any]) -> None:
        """Give a running engine changed options, in this thread.  Any thread."""
        state = self.states.get(engine)
        take = None if state is None else getattr(state.engine, "take_options", None)
        if state is None or take is None or state.state != "running":
            raise KernelError(f"engine {engine!r} is not running, or takes no options while it runs")
        self.mailbox.post(partial(_answer, partial(take, options), answer))

    def dispose(self) -> None:
        """Close the descriptors, after the thread has ended."""
        self.mailbox.bell.close()

    @property
    def number(self) -> int:
        """Its row and column in the matrix of pipes."""
        return self.slot.number

    @property
    def turns(self) -> int:
        """How many turns the thread has taken.  Any thread."""
        return self._loop.turns if self._loop is not None else 0

    def stop(self) -> None:
        """Stop at the end of the present turn."""
        self.mailbox.post(self._stop)

    def linger(self, seconds: float, may_stop: Callable[[], bool]) -> None:
        """Stop as soon as ``may_stop()`` is true, which is asked after each turn.

        At the latest in ``seconds``.
        """
        self.mailbox.post(partial(self._linger, seconds, may_stop))

    def pending(self) -> bool:
        """Whether an engine still has something to write.  Any thread; approximate while the thread works."""
        # Copies: other threads add and remove engines meanwhile.
        return any(map(_pending, [*self.states.values(), *self._lingering.values()]))

    def _inspect(self, what: str, answer: Callable[[Shown], Any]) -> None:
        """Collect the rows of all engines.

        An exception is part of the answer: inspection never ends an engine.
        """
        rows: Rows = []
        failed: list[str] = []
        for state in list(self.states.values()):
            show = getattr(state.engine, "inspect", None)
            # An engine that starts or has failed may have half of its objects only.
            if show is None or state.state != "running":
                continue
            try:
                rows += [{"engine": state.name, **row} for row in show(what)]
            except Exception as error:
                failed.append(f"engine {state.name}: {type(error).__name__}: {error}")
        answer((self.name, rows, failed))

    def _hand_over(self, state: EngineState, what: Mapping[str, Any], connected: socket.socket) -> None:
        try:
            # It may have ended since it was posted.
            if state.state == "running":
                cast("TakesOver", state.engine).take_over(what, connected)
                return
        except Exception:
            _log.exception("engine %s: a connection that was handed over", state.name)
        connected.close()

    def _operate(self, state: EngineState, do: Callable[[], Any], answer: Callable[[Done], Any]) -> None:
        """Do it, and answer with the result, perhaps in a later turn."""
        engine = state.engine

        def go_on(steps: Generator[Any, None, Any]) -> None:
            if state.engine is not engine or state.state != "running":
                steps.close()
                answer((None, KernelError("it has ended before it was done")))
                return
            try:
                wait = next(steps)
                if wait is not None:
                    wait(partial(go_on, steps))
                    return
            except StopIteration as result:
                answer((result.value, None))
            except Exception as error:
                answer((None, error))
            else:
                # Behind what others have posted, and what is ready: the next piece is for the next turn.
                self.mailbox.post(partial(go_on, steps))

        def begin(done: Done) -> None:
            if isinstance(done[0], Generator):
                go_on(done[0])
            else:
                answer(done)

        _answer(do, begin)

    def _start(self, state: EngineState, make_engine: Callable[[], Engine], restart: BackoffOptions) -> None:
        # None: the thread is ending, and nothing is started any more.
        if self._nursery is not None:
            # Found when the task is started, not when it runs: by then a later life may have taken the name.
            before = self._lives.get(state.name)
            life = self._lives[state.name] = _Life(state)
            self._nursery.start_soon(
                self._live, life, before, make_engine, restart, name=f"engine {state.name}"
            )

    async def _live(
        self, life: _Life, before: _Life | None, make_engine: Callable[[], Engine], restart: BackoffOptions
    ) -> None:
        state = life.state
        try:
            if before is not None:
                # Shielded: if this engine is removed meanwhile, it still ends after the one before. The next
                # engine of the name waits for this one only, and relies on that.
                with trio.CancelScope(shield=True):
                    await before.gone.wait()
            with life.scope:
                # Removed before it began: do not start it at all.
                await trio.lowlevel.checkpoint_if_cancelled()
                await supervise(state, make_engine, partial(self._make_host, life), self._report, restart)
        finally:
            if self._lives.get(state.name) is life:
                del self._lives[state.name]
            if state.state != "ended":
                state.state = "stopped"
            life.gone.set()
            if life.on_gone is not None:
                life.on_gone()
            # ``stop_when`` is asked after a turn. This makes a thread that is stopping take one more, and see
            # that this was the last engine.
            self.mailbox.post(_nothing)

    def _make_host(self, life: _Life, nursery: trio.Nursery) -> EngineHost:
        # ``supervise`` runs inside ``run``, which has made the loop.
        loop = self._loop
        assert loop is not None

        def linger_left() -> float:
            # The thread lingers, or this engine alone.
            return max(max(self._linger_until, life.linger_until) - loop.now(), 0.0)

        return EngineHost(
            life.state.name, loop, self.slot, self._dispatcher, nursery, self._report, linger_left
        )

    def _remove(self, state: EngineState | None, on_gone: Callable[[], Any] | None, linger: float) -> None:
        life = self._lives.get(state.name) if state is not None else None
        # A later engine of the same name has another state. This call is not about that one.
        if life is not None and life.state is state and self._nursery is not None:
            life.on_gone = on_gone
            if linger > 0:
                # A task, since this call was posted and must not wait.
                self._nursery.start_soon(self._let_linger, life, linger)
            else:
                life.scope.cancel()
            return
        if state is not None:
            self._lingering.pop(id(state), None)
        if on_gone is not None:
            on_gone()

    async def _let_linger(self, life: _Life, seconds: float) -> None:
        """Cancel an engine when it has written everything, at the latest in ``seconds``."""
        state = life.state
        # This task was started by ``_remove``, when the loop was there.
        assert self._loop is not None
        life.linger_until = self._loop.now() + seconds
        try:
            with trio.move_on_after(seconds):
                # An engine that has failed meanwhile is not waited for: it has no socket or file to write to.
                while state.state == "running" and (  # noqa: ASYNC110 - no event tells when a pipe is empty
                    self._has_input(state.name) or _pending(state)
                ):
                    await trio.sleep(LINGER_LOOK)
        finally:
            self._lingering.pop(id(state), None)
            life.scope.cancel()

    def _has_input(self, engine: str) -> bool:
        # Takes the dispatcher's lock. Only an engine that is being removed pays for it, every 10 ms.
        return self._dispatcher.waits_for(engine)

    def _stop(self) -> None:
        if self._loop is not None and not self._leaving:
            self._loop.stop()

    def _linger(self, seconds: float, may_stop: Callable[[], bool]) -> None:
        if self._loop is None:
            return
        self._loop.stop_when(may_stop)
        self._linger_until = self._loop.now() + seconds
        # The limit. ``stop_when`` alone would wait for an engine whose peer takes nothing.
        self._loop.set_timer(self._linger_until, self._stop, self, _raise)


def _pending(state: EngineState) -> bool:
    has_pending = getattr(state.engine, "pending", None)
    try:
        return has_pending is not None and bool(has_pending())
    except Exception:
        # An engine that cannot say so is not waited for.
        _log.exception("engine %s: pending() failed", state.name)
        return False


def _answer(do: Callable[[], Any], answer: Callable[[Done], Any]) -> None:
    """Do it, and answer with the result.

    An exception is the answer: an operator's mistake ends no engine.
    """
    try:
        done: Done = (do(), None)
    except Exception as error:
        done = (None, error)
    answer(done)


def _nothing() -> None:
    """Do nothing: the post itself wakes the thread."""


def _raise(error: Exception) -> None:
    raise error
