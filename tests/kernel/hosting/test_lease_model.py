"""Leases under a scheduler of our own: any interleaving of the steps of an application, the owner and their peer.

The code under test is the real one.  A step is a line of it, or of the mailbox.  One thread runs at a time, and after
each step the scheduler chooses the next one, by a seeded generator.  Waits have no time limit here, so a lost wake-up is
a state in which nobody can go on.  Variants of the code in which one step is missing have to be found.
"""

from __future__ import annotations

import random
import sys
import threading
from collections.abc import Callable
from types import FrameType, SimpleNamespace
from typing import Any

import pytest

from kernel.contracts.api import NOT_YET
from kernel.contracts.message import PLAIN
from kernel.hosting import lease as module
from kernel.hosting import stream_half as half_module
from kernel.hosting.lease import Lease
from kernel.hosting.stream_half import StreamHalf
from kernel.pipes import mailbox as mailbox_module
from kernel.pipes.mailbox import Mailbox

TRACED = {module.__file__, half_module.__file__, mailbox_module.__file__}
ROUNDS = 24
"""Questions that the application asks."""
SEEDS = 120
MOST_STEPS = 60_000
SOCKET, BELL = 1, 2
"""Descriptors."""


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

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()

    def locked(self) -> bool:
        return self._held


class AlwaysFree(Lock):
    """A lock that excludes nobody."""

    def acquire(self, blocking: bool = True) -> bool:
        self._scheduler.step()
        return True

    def release(self) -> None:
        pass


class Bell:
    """A doorbell whose descriptor the scheduler sees."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self.sleeping = False
        self.rung = 0

    def fileno(self) -> int:
        return BELL

    def ring(self) -> None:
        self.sleeping = False
        self._scheduler.step()
        self.rung += 1

    def wait(self) -> None:
        self._scheduler.step(lambda: bool(self.rung))
        self.rung = 0
        self.sleeping = False


class Output:
    """The connection that is written, where it is not the one that is read.  The owner loses it at some time."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.lease: Lease | None = None
        self.ended = self.writing = False
        self.bytes_out = 0
        self.wire = SimpleNamespace(connected=world)

    def lend_output(self, lease: Lease) -> None:
        self.lease = lease

    def send(self, data: list[bytes]) -> None:
        self._world.to_peer += data

    def lose(self) -> None:
        """What ``Connection`` does at its end.  Another one takes its place."""
        lease, self.lease = self.lease, None
        if lease is not None:
            self.ended = True
            self._world.output = Output(self._world)
            lease.end_soon()


class Questions:
    """What a protocol of questions knows: which one is open.  A forgetful one does not learn it from a lease."""

    asks = True
    envelope: Any = None

    def __init__(self, *, forgets: bool) -> None:
        self.asked: Any = None
        self._forgets = forgets

    def __setattr__(self, name: str, value: Any) -> None:
        # Leases store what was asked under their own envelope.
        if name == "asked" and value is PLAIN and self._forgets:
            return
        super().__setattr__(name, value)


class World:
    """An application that asks, the owner of the connection, and a peer that answers.

    It stands for the connection, the protocol and the conversation at once.
    """

    def __init__(
        self,
        seed: int,
        *,
        lock: type[Lock],
        overtakes: bool,
        keeps: bool,
        two: bool,
        questions: Questions | None,
        hurries: bool,
        tasks: bool,
        numbers: bool,
        one_way: str,
    ) -> None:
        self.scheduler = Scheduler(seed)
        self.random = self.scheduler.random
        self.turn: Any = lock(self.scheduler)
        self.spin = 0.0
        self.overtakes, self.keeps = overtakes, keeps
        self.owners, self.callers = self.new_mailbox(), self.new_mailbox()
        self.outgoing: Any = SimpleNamespace(queue=[], written=0, taken=0, bytes_taken=0)
        self.incoming: list[bytes] = []
        self.to_peer: list[bytes] = []
        self.from_peer: list[bytes] = []
        self.working = False
        """Whether the owner is in the middle of a turn."""
        self.over = False
        self.leased: Lease | None = None
        self.direct = 0
        # One question at a time, if there are any: the next one waits for the answer.
        self.addresses = questions
        self.hurries = hurries
        self.tasks = tasks
        """Whether the application waits in an event loop."""
        self.one_way = one_way
        """``sends`` or ``receives``, where the application does nothing else."""
        self.heard = 0
        """Messages that the peer has heard."""
        self.numbers = numbers
        """Whether what is sent is numbered, and the owner sends something of its own."""
        self._withheld = False
        self.output: Any = Output(self) if two else self
        self.two = two
        # of the connection
        self.lease: Lease | None = None
        self.ended = self.writing = False
        self.paused = self.bytes_in = self.bytes_out = 0
        self.wire = SimpleNamespace(connected=self)
        # of the conversation, the protocol and the counters
        self.received = self.sent = self.messages_in = self.messages_out = 0

    def new_mailbox(self) -> Mailbox:
        mailbox = Mailbox()
        mailbox.bell.close()
        mailbox.bell = Bell(self.scheduler)  # type: ignore[assignment]
        return mailbox

    @property
    def withheld(self) -> bool:
        return self._withheld and not self.hurries

    # the socket

    def fileno(self) -> int:
        return SOCKET

    def recv(self, most: int) -> bytes:
        assert not self.working, "the owner works, too"
        if not self.from_peer:
            raise BlockingIOError
        self.scheduler.step()
        return self.from_peer.pop(0)

    def send(self, data: Any) -> int:
        if isinstance(data, list):
            self.to_peer += data
            return 0
        assert not self.working, "the owner works, too"
        self.scheduler.step()
        self.to_peer.append(data)
        return len(data)

    # the protocol

    def encode_one(self, body: bytes) -> bytes | None:
        if self.addresses is not None and self.addresses.asked is not None:
            return None
        return self.numbered(body) if self.random.random() < 0.9 else None

    def numbered(self, body: bytes) -> bytes:
        return b"%d %s" % (self.sent, body) if self.numbers else body

    def decode_one(self, data: bytes) -> bytes | None:
        if self.addresses is not None and self.addresses.asked is None:
            return None
        return data if self.random.random() < 0.9 else None

    # the connection

    def lend(self, lease: Lease) -> None:
        self.lease = lease

    def lend_output(self, lease: Lease) -> None:
        self.lease = lease

    def lease_used(self) -> None:
        """There are no timers here."""

    def take_back(self, data: bytes) -> None:
        self.lease = None
        if data:
            self.deliver(data)

    def look_later(self, lease: Lease) -> None:
        """Nobody looks: without signals a lease is never needed back by force."""

    def deliver(self, data: bytes) -> None:
        questions = self.addresses
        if questions is not None:
            assert questions.asked is not None, "an answer to nothing, which is dropped"
            questions.asked = None
            if self._withheld:
                self.owners.post(self.write)
        self.incoming.append(data)
        self.callers.post(int)

    # the owner

    def own(self) -> None:
        bell: Any = self.owners.bell
        self.turn.acquire()
        while not self.over:
            self.working = True
            self.owners.process()
            if self.two and self.random.random() < 0.05:
                self.output.lose()
            if self.numbers and self.random.random() < 0.2:
                self.write_own(b"")
            if self.lease is None and self.from_peer:
                self.deliver(self.from_peer.pop(0))
            self.scheduler.step()
            if not self.owners.may_sleep():
                continue
            self.working = False
            self.turn.release()
            self.scheduler.step(lambda: bool(bell.rung) or (self.lease is None and bool(self.from_peer)))
            bell.rung = 0
            self.turn.acquire()
            bell.sleeping = False
        self.turn.release()

    def write(self) -> None:
        self.scheduler.step()
        questions, waiting = self.addresses, self.outgoing.queue
        if questions is None:
            while waiting:
                self.write_own(waiting.pop(0))
            return
        if waiting and questions.asked is None:
            questions.asked = waiting[0]
            self.to_peer.append(waiting.pop(0))
        self._withheld = bool(waiting)

    def write_own(self, body: bytes) -> None:
        made = self.numbered(body)
        self.scheduler.step()
        self.to_peer.append(made)
        # As the conversation and the protocol of a half, which are both here.
        self.sent += 2

    # the application

    def application(self) -> None:
        asked = answered = 0
        while answered < ROUNDS:
            # Mostly one question at a time, and sometimes another one before the answer.
            if asked < ROUNDS and (
                asked == answered or (asked < answered + 3 and self.random.random() < 0.5)
            ):
                self.ask(b"%d" % asked)
                asked += 1
                continue
            assert self.answer() == b"%d" % answered
            answered += 1
            if self.leased is None and self.random.random() < 0.7:
                self.want()
        self.over = True
        self.owners.bell.ring()

    def want(self) -> None:
        port: Any = SimpleNamespace(has_input=lambda: bool(self.incoming))
        under = None if self.addresses is None else PLAIN
        lease = Lease(self.callers, port, self.outgoing, port, lambda _: None, under)
        me: Any = self

        def offer() -> None:
            half = StreamHalf(me, me, me, me, me)
            lease.offer(half._replace(connection=self.output), half, self.outgoing, self.owners.post)

        self.owners.post(offer)
        self.leased = lease

    def ask(self, question: bytes) -> None:
        lease = self.leased
        if lease is not None:
            if self.overtakes:
                lease._waiting = ()
            if lease.send(question):
                self.direct += 1
                return
            if lease.active and not self.overtakes:
                self.end()
        self.outgoing.queue.append(question)
        self.owners.post(self.write)

    def end(self) -> None:
        if self.leased is not None:
            self.leased.give_back()
            self.leased = None

    def answer(self) -> bytes:
        while True:
            if self.leased is not None:
                lease = self.leased
                body = self.receive_in_task(lease) if self.tasks else lease.receive(None)
                if body is not None:
                    self.direct += 1
                    return bytes(body)
            self.callers.process()
            if self.incoming:
                return self.incoming.pop(0)
            if self.leased is not None and not self.keeps:
                self.end()
            if self.callers.may_sleep():
                self.callers.bell.wait()  # type: ignore[call-arg]
            self.callers.bell.sleeping = False

    def receive_in_task(self, lease: Lease) -> Any:
        bell: Any = self.callers.bell
        while (body := lease.receive_now()) is NOT_YET:
            self.scheduler.step(lambda: bool(self.from_peer) or bool(bell.rung))
            if bell.rung:
                bell.rung = 0
                self.callers.process()
        return body

    def only_send(self) -> None:
        """The application, where nothing is answered."""
        for number in range(ROUNDS):
            if self.leased is None and self.random.random() < 0.5:
                self.want_one_way(sends=True)
            # The offer is posted.
            self.callers.process()
            self.ask(b"%d" % number)
            if self.leased is not None and not self.leased.active and self.random.random() < 0.2:
                self.end()
        self.scheduler.step(lambda: self.heard == ROUNDS)
        self.over = True
        self.owners.bell.ring()

    def only_receive(self) -> None:
        """The application, where nothing is asked."""
        for number in range(ROUNDS):
            if self.leased is None and self.random.random() < 0.5:
                self.want_one_way(sends=False)
            assert self.answer() == b"%d" % number
        self.over = True
        self.owners.bell.ring()

    def want_one_way(self, *, sends: bool) -> None:
        port: Any = SimpleNamespace(has_input=lambda: bool(self.incoming), post=self.callers.post)
        outgoing, source = (self.outgoing, None) if sends else (None, port)
        lease = self.leased = Lease(self.callers, port, outgoing, source, lambda _: None)
        me: Any = self

        def offer() -> None:
            half = StreamHalf(me, me, me, me, me)
            if sends:
                lease.offer(half, None, None, self.owners.post)
            else:
                lease.offer(None, half, self.outgoing, self.owners.post)

        self.owners.post(offer)

    # the peer

    def tell(self) -> None:
        """A peer that says something without being asked."""
        for number in range(ROUNDS):
            self.scheduler.step()
            self.from_peer.append(b"%d" % number)

    def peer(self) -> None:
        expected = number = 0
        while not self.over:
            self.scheduler.step(lambda: self.over or bool(self.to_peer))
            while self.to_peer:
                question = self.to_peer.pop(0)
                if self.numbers:
                    head, _, question = question.partition(b" ")
                    assert int(head) == number, "a number was used twice"
                    number += 2
                    if not question:
                        continue
                assert question == b"%d" % expected, "a message was overtaken"
                expected += 1
                self.heard = expected
                if not self.one_way:
                    self.from_peer.append(question)


def run(
    monkeypatch: pytest.MonkeyPatch,
    seed: int,
    *,
    lock: type[Lock] = Lock,
    overtakes: bool = False,
    keeps: bool = False,
    two: bool = False,
    asks: bool = False,
    forgets: bool = False,
    hurries: bool = False,
    tasks: bool = False,
    numbers: bool = False,
    one_way: str = "",
) -> int:
    """Run one world to its end; return how many messages passed directly."""
    questions = Questions(forgets=forgets) if asks else None
    world = World(
        seed,
        lock=lock,
        overtakes=overtakes,
        keeps=keeps,
        two=two,
        questions=questions,
        hurries=hurries,
        tasks=tasks,
        numbers=numbers,
        one_way=one_way,
    )
    bell: Any = world.callers.bell

    class Poll:
        def register(self, descriptor: int, _: int) -> None:
            pass

        def poll(self, _: float) -> list[tuple[int, int]]:
            world.scheduler.step(lambda: bool(world.from_peer) or bool(bell.rung))
            ready = [(SOCKET, 1)] if world.from_peer else []
            return ready + ([(BELL, 1)] if bell.rung else [])

    monkeypatch.setattr(module, "select", SimpleNamespace(poll=Poll, POLLIN=1))
    # Between two messages that are sent some time passes, or none.
    now = iter(range(1_000_000))
    clock = SimpleNamespace(
        sleep=lambda _: world.scheduler.step(),
        perf_counter=lambda: next(now) if world.random.random() < 0.5 else 0,
    )
    monkeypatch.setattr(module, "time", clock)
    actors = {"application": world.application, "owner": world.own, "peer": world.peer}
    if one_way == "sends":
        actors["application"] = world.only_send
    elif one_way == "receives":
        actors |= {"application": world.only_receive, "peer": world.tell}
    world.scheduler.run(actors)
    return world.direct


@pytest.mark.parametrize(
    "form",
    [
        pytest.param({}, id="one connection"),
        pytest.param({"two": True}, id="two connections"),
        pytest.param({"asks": True}, id="one question at a time"),
        pytest.param({"numbers": True}, id="numbers"),
        pytest.param({"one_way": "sends", "numbers": True}, id="only sends"),
        pytest.param({"one_way": "receives"}, id="only receives"),
        pytest.param({"tasks": True}, id="a task"),
        pytest.param({"tasks": True, "two": True}, id="a task, two connections"),
        pytest.param({"tasks": True, "asks": True}, id="a task, one question at a time"),
    ],
)
def test_nothing_is_lost_or_overtaken_in_any_order_of_steps(
    monkeypatch: pytest.MonkeyPatch, form: dict[str, Any]
) -> None:
    direct = sum(run(monkeypatch, seed, **form) for seed in range(SEEDS))
    assert direct > SEEDS, "the model hardly used a lease"


@pytest.mark.slow
@pytest.mark.parametrize(
    "fault",
    [
        pytest.param({"lock": AlwaysFree}, id="no turn"),
        pytest.param({"overtakes": True}, id="a message is sent while others wait in the pipe"),
        pytest.param({"keeps": True}, id="a thread sleeps at its bell and keeps its lease"),
        pytest.param({"lock": AlwaysFree, "two": True}, id="no turn, two connections"),
        pytest.param({"lock": AlwaysFree, "tasks": True}, id="no turn, a task"),
        pytest.param({"lock": AlwaysFree, "numbers": True}, id="no turn, numbers"),
        pytest.param(
            {"lock": AlwaysFree, "numbers": True, "one_way": "sends"}, id="no turn, one that only sends"
        ),
        pytest.param(
            {"overtakes": True, "one_way": "sends"},
            id="one that only sends, while others wait in the pipe",
        ),
        pytest.param(
            {"keeps": True, "one_way": "receives"},
            id="a thread that only receives sleeps at its bell and keeps its lease",
        ),
        pytest.param(
            {"keeps": True, "tasks": True}, id="a task waits for its bell alone and keeps its lease"
        ),
        pytest.param({"asks": True, "forgets": True}, id="the protocol does not know of a question"),
        pytest.param(
            {"asks": True, "hurries": True}, id="an answer is read while the next question waits for it"
        ),
    ],
)
def test_a_variant_that_lacks_a_step_is_found(monkeypatch: pytest.MonkeyPatch, fault: dict[str, Any]) -> None:
    def run_many() -> None:
        # It takes one, or a few hundred.
        for seed in range(10 * SEEDS):
            run(monkeypatch, seed, **fault)

    with pytest.raises((Stuck, AssertionError)):
        run_many()
