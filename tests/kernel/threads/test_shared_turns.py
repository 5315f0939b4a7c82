"""Shared turns under a scheduler of our own: any interleaving of the steps of an owner, its helpers and their peers.

The code under test is the real one.  A step is a line of it, or of the mailbox.  One thread runs at a time, and after
each step the scheduler chooses the next one, by a seeded generator.  Waits have no time limit here, so a lost wake-up is
a state in which nobody can go on.  Variants of the code in which one step is missing have to be found.
"""

from __future__ import annotations

import random
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from kernel.pipes import mailbox as mailbox_module
from kernel.pipes.mailbox import Mailbox
from kernel.threads import shared_turns as module
from kernel.threads.shared_turns import SharedTurns

TRACED = {module.__file__, mailbox_module.__file__}
ROUNDS = 10
"""Questions that each application asks."""
SEEDS = 150
MOST_STEPS = 60_000


class Stuck(Exception):
    """Nobody can go on, or somebody always can."""


class Scheduler:
    """Runs actors in threads, one at a time."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.failure: BaseException | None = None
        self._ready: dict[str, Callable[[], bool]] = {}
        self._turns: dict[str, threading.Semaphore] = {}
        self._me = threading.local()
        self._over = threading.Semaphore(0)
        self._steps = 0

    def run(self, actors: dict[str, Callable[[], None]]) -> None:
        threads = []
        for name, actor in actors.items():
            self._turns[name] = threading.Semaphore(0)
            self._ready[name] = bool_true
            threads.append(threading.Thread(target=self._act, args=(name, actor), daemon=True))
        for thread in threads:
            thread.start()
        self._switch(None)
        self._over.acquire()
        for turn in self._turns.values():
            turn.release()
        for thread in threads:
            thread.join(10)
        if self.failure is not None:
            raise self.failure

    def _act(self, name: str, actor: Callable[[], None]) -> None:
        self._me.name = name
        self._turns[name].acquire()
        try:
            if self.failure is None:
                sys.settrace(self._trace)
                actor()
        except BaseException as error:
            self.failure = self.failure or error
        finally:
            sys.settrace(None)
            del self._ready[name]
            if self.failure is not None or not self._ready:
                self._over.release()
            else:
                self._switch(None)

    def _trace(self, frame: FrameType, event: str, _: Any) -> Any:
        if frame.f_code.co_filename not in TRACED:
            return None
        if event == "line":
            self.step()
        return self._trace

    def step(self, until: Callable[[], bool] | None = None) -> None:
        """Let others go on; come back when ``until()``."""
        self._steps += 1
        if self.failure is not None or self._steps > MOST_STEPS:
            raise Stuck(f"{self._steps} steps")
        # Most often the same one goes on, so that long and short stretches without a switch occur.
        if until is None and self.random.random() < 0.7:
            return
        name = self._me.name
        self._ready[name] = until or bool_true
        self._switch(name)
        self._ready[name] = bool_true
        if self.failure is not None:
            raise Stuck("somebody else failed")

    def _switch(self, name: str | None) -> None:
        able = [each for each, ready in self._ready.items() if ready()]
        if not able:
            self.failure = self.failure or Stuck(f"nobody can go on: {sorted(self._ready)}")
            self._over.release()
            if name is None:
                return
            raise self.failure
        chosen = self.random.choice(able)
        if chosen != name:
            self._turns[chosen].release()
            if name is not None:
                self._turns[name].acquire()


def bool_true() -> bool:
    return True


class Lock:
    """A lock whose waits the scheduler sees."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._held = False

    def acquire(self, blocking: bool = True) -> bool:
        self._scheduler.step()
        if self._held and not blocking:
            return False
        while self._held:
            self._scheduler.step(lambda: not self._held)
        self._held = True
        return True

    def release(self) -> None:
        assert self._held
        self._held = False

    def locked(self) -> bool:
        return self._held


class Bell:
    """A doorbell whose descriptor the scheduler sees."""

    numbers = iter(range(1, 1_000_000))

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._number = next(self.numbers)
        self.sleeping = False
        self.rung = 0
        self.turns: Any = None

    def fileno(self) -> int:
        return self._number

    def ring(self) -> None:
        self.sleeping = False
        self._scheduler.step()
        self.rung += 1

    def silence(self) -> None:
        self.rung = 0

    def wait(self) -> None:
        self._scheduler.step(lambda: bool(self.rung))
        self.rung = 0
        self.sleeping = False


class Poller:
    """Descriptors that are ready when a function says so; bells are edge-triggered."""

    def __init__(self, scheduler: Scheduler, number: int) -> None:
        self._scheduler = scheduler
        self._number = number
        self._watched: dict[int, tuple[Callable[[], bool], Callable[[], None]]] = {}
        self._paused: set[int] = set()
        self._bells: dict[int, tuple[Bell, int]] = {}
        self.others: dict[int, Callable[[], bool]] = {}

    def fileno(self) -> int:
        return self._number

    def watch(self, fd: int, readable: Any, writable: Any, blame: Any) -> None:
        self._watched[fd] = (self.others[fd], readable)

    def pause(self, fd: int) -> None:
        self._paused.add(fd)

    def resume(self, fd: int) -> None:
        self._paused.discard(fd)

    def watch_bell(self, bell: Bell) -> None:
        self._bells[bell.fileno()] = (bell, 0)

    def forget_bell(self, bell: Bell) -> None:
        del self._bells[bell.fileno()]

    def ready(self) -> bool:
        edges = any(bell.rung > seen for bell, seen in self._bells.values())
        return edges or any(ready() for fd, (ready, _) in self._watched.items() if fd not in self._paused)

    def wait(self, timeout: float | None) -> list[tuple[int, int]]:
        # Returned too late, or early because of a timer: both may be.
        late = self._scheduler.random.random() < 0.1
        self._scheduler.step(bool_true if timeout == 0 or late else self.ready)
        events = [(fd, 1) for fd, (ready, _) in self._watched.items() if fd not in self._paused and ready()]
        for number, (bell, seen) in self._bells.items():
            if bell.rung > seen:
                self._bells[number] = (bell, bell.rung)
                events.append((number, 1))
        return events

    def poll(self, timeout: float | None, events: Any = None) -> int:
        events = self.wait(timeout) if events is None else events
        for fd, _ in events:
            if fd in self._watched:
                self._watched[fd][1]()
        return len(events)


class Stay:
    def begin(self, wake: Callable[[], None]) -> bool:
        return True

    def over(self) -> bool:
        return False

    def end(self) -> None:
        pass


class World:
    """An owner with one engine, applications that ask through it, a peer that answers, and a thread that disturbs."""

    def __init__(self, seed: int, turns: type[SharedTurns], *, broken_turn: bool = False) -> None:
        scheduler = self.scheduler = Scheduler(seed)
        self.random = scheduler.random
        self.mailbox = self.new_mailbox()
        self.mailbox.rings = []
        self.socket: list[str] = []
        """What the peer has sent and the engine has not read."""
        self.at_peer: list[str] = []
        self.inner, self.outer = Poller(scheduler, -1), Poller(scheduler, -2)
        self.inner.others[-3] = lambda: bool(self.socket)
        self.inner.watch(-3, self.read, None, None)
        self.inner.watch_bell(self.bell)
        self.outer.others[-1] = self.inner.ready
        self.shared_poll: Any = None
        self.stopping = False
        self.inside = 0
        """Threads that are in the engine."""
        self.disturbed = 0
        self.askers: dict[str, Mailbox] = {name: self.new_mailbox() for name in ("one", "two")}
        self.inbox: dict[str, list[str]] = {name: [] for name in self.askers}
        self.left = len(self.askers)
        self.patient = self.new_mailbox()
        self.has_ended = False
        locks = iter([AlwaysFree if broken_turn else Lock, Lock])
        self.turns = turns(
            self.mailbox,
            self.inner,
            self.outer,
            self,
            Stay,
            new_lock=lambda: next(locks)(scheduler),
            new_sleep=self.new_sleep,
        )
        # As if somebody had asked before.
        self.turns.wanted = self.random.random() < 0.7

    @property
    def bell(self) -> Any:
        return self.mailbox.bell

    def new_mailbox(self) -> Mailbox:
        mailbox = Mailbox()
        mailbox.bell.close()
        mailbox.bell = Bell(self.scheduler)  # type: ignore[assignment]
        return mailbox

    def new_sleep(self, number: int, inner: int) -> Any:
        bell = next(
            each.bell for each in (self.patient, *self.askers.values()) if each.bell.fileno() == number
        )

        class Sleep:
            def poll(_, timeout: float | None) -> list[tuple[int, int]]:
                self.scheduler.step(lambda: bool(bell.rung) or self.inner.ready())  # type: ignore[attr-defined]
                ready = [(number, 1)] if bell.rung else []  # type: ignore[attr-defined]
                return ready + ([(inner, 1)] if self.inner.ready() else [])

        return Sleep()

    # the loop

    def move_out(self) -> None:
        self.inner.forget_bell(self.bell)
        self.outer.watch_bell(self.bell)
        self.shared_poll = self.turns.poll

    def move_back(self) -> None:
        self.outer.forget_bell(self.bell)
        self.inner.watch_bell(self.bell)
        self.shared_poll = None

    def take_help(self, look: bool) -> bool:
        if look:
            self.inner.poll(0)
        self.mailbox.process()
        self.scheduler.step()
        self.mailbox.ring_all()
        return not self.stopping

    def own(self) -> None:
        """Live as the owner."""
        busy = 0
        while True:
            self.mailbox.process()
            self.mailbox.ring_all()
            if self.stopping:
                break
            timeout: float | None = 0
            if busy:
                busy -= 1
            else:
                if self.random.random() < 0.04:
                    busy = self.random.choice((1, 2, 5, 40))
                if self.turns.wanted:
                    self.turns.lend()
                timeout = None if self.mailbox.may_sleep() else 0
            (self.shared_poll or self.inner.poll)(timeout)
            self.bell.sleeping = False
        self.turns.close()
        assert not self.turns.lent
        self.patient.post(self.ended)

    def engine(self, work: Callable[[], None]) -> None:
        self.inside += 1
        assert self.inside == 1, "two threads are in the engine"
        self.scheduler.step()
        work()
        self.inside -= 1

    def read(self) -> None:
        def work() -> None:
            while self.socket:
                name = self.socket.pop()
                answers = partial_append(self.inbox[name])
                self.mailbox.poster_to(self.askers[name])(answers)

        self.engine(work)

    def write(self, name: str) -> None:
        self.engine(lambda: self.at_peer.append(name))

    # the others

    def answer(self) -> None:
        """Live as the peer."""
        for _ in range(ROUNDS * len(self.askers)):
            self.scheduler.step(lambda: bool(self.at_peer))
            name = self.at_peer.pop()
            # Slow enough for the asker to be a helper by then, or not.
            for _ in range(self.random.choice((0, 3, 100))):
                self.scheduler.step()
            self.socket.append(name)

    def ask(self, name: str) -> None:
        """Live as an application."""
        mailbox = self.askers[name]
        for _ in range(ROUNDS):

            def send() -> bool:
                mailbox.poster_to(self.mailbox)(lambda: self.write(name))
                return True

            if self.random.random() < 0.7 and self.turns.lent:
                self.turns.send(mailbox, send)
            else:
                send()
            self.wait(mailbox, lambda: bool(self.inbox[name]))
            self.inbox[name].clear()
        self.left -= 1
        if not self.left:
            self.mailbox.post(self.stop)

    def wait(self, mailbox: Mailbox, done: Callable[[], bool]) -> None:
        """Wait as ``CallerThread.wait_until`` does."""
        mailbox.process()
        while not done():
            if mailbox.may_sleep() and not self.turns.wait(mailbox, None):
                mailbox.bell.wait()  # type: ignore[call-arg]
            mailbox.bell.sleeping = False
            mailbox.process()

    def be_patient(self) -> None:
        """Live as an application that waits for the end of the loop, which nobody tells it before."""
        for _ in range(self.random.randrange(200)):
            self.scheduler.step()
        self.wait(self.patient, lambda: self.has_ended)

    def ended(self) -> None:
        self.has_ended = True

    def stop(self) -> None:
        self.stopping = True

    def disturb(self) -> None:
        """Live as another thread, which wants something of the owner."""
        for _ in range(4):
            for _ in range(self.random.randrange(60)):
                self.scheduler.step()
            self.mailbox.post(self.disturbing)

    def disturbing(self) -> None:
        self.engine(lambda: None)
        self.disturbed += 1

    def run(self) -> None:
        self.scheduler.run(
            {
                "owner": self.own,
                "peer": self.answer,
                "noise": self.disturb,
                "patient": self.be_patient,
                **{name: (lambda name=name: self.ask(name)) for name in self.askers},  # type: ignore[misc]
            }
        )


def partial_append(inbox: list[str]) -> Callable[[], None]:
    return lambda: inbox.append("answer")


class AlwaysFree(Lock):
    """A lock that excludes nobody."""

    def acquire(self, blocking: bool = True) -> bool:
        self._scheduler.step()
        return True

    def release(self) -> None:
        pass

    def locked(self) -> bool:
        return False


def test_every_question_is_answered_and_the_loop_ends_whatever_the_order_of_steps() -> None:
    for seed in range(SEEDS):
        try:
            World(seed, SharedTurns).run()
        except BaseException as error:
            raise AssertionError(f"seed {seed}") from error


def test_helpers_work_here() -> None:
    """The test above would prove nothing if the owner did everything."""
    helped = 0

    class Counting(SharedTurns):
        def _work(self, *, look: bool) -> None:
            nonlocal helped
            helped += 1
            super()._work(look=look)

    for seed in range(20):
        World(seed, Counting).run()
    assert helped > 20 * ROUNDS / 2


class DoesNotShow(SharedTurns):
    def _leave(self) -> None:
        self._helper = None


class DoesNotLookAgain(SharedTurns):
    def _work(self, *, look: bool) -> None:
        self._mailbox.bell.sleeping = False
        self._loop.take_help(look)
        self._mailbox.bell.sleeping = True


class ForgetsToRing(SharedTurns):
    def _send(self, mailbox: Mailbox, send: Callable[[], bool]) -> bool:
        mailbox.rings = []
        try:
            return send()
        finally:
            rings, mailbox.rings = mailbox.rings, None
            for _ in rings:
                self._do()


class RecallsNobody(SharedTurns):
    def _recall(self) -> None:
        if self._helper is not None:
            self._leave()


@pytest.mark.parametrize("broken", [DoesNotShow, DoesNotLookAgain, ForgetsToRing, RecallsNobody])
def test_a_missing_step_is_found(broken: type[SharedTurns]) -> None:
    with pytest.raises((Stuck, AssertionError)):
        run_many(SEEDS * 4, broken)


def test_a_missing_lock_is_found() -> None:
    with pytest.raises((AssertionError, IndexError)):
        run_many(SEEDS, SharedTurns, broken_turn=True)


def run_many(seeds: int, turns: type[SharedTurns], *, broken_turn: bool = False) -> None:
    for seed in range(seeds):
        World(seed, turns, broken_turn=broken_turn).run()
