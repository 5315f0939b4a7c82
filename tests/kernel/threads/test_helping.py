"""Applications that help: what they wait for, what engines may do in their turns, and what must not reach them."""

from __future__ import annotations

import select
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import trio
import trio.lowlevel

from kernel.contracts.message import batch_of_one
from kernel.dispatcher.route import RouteSpec
from kernel.routing.fan_out import FanOut
from kernel.threads.caller_thread import CallerThread
from kernel.threads.options import PollThreadOptions
from kernel.threads.poll_thread import PollThread
from kernel.threads.shared_turns import SharedTurns

from .conftest import TIMEOUT, Engine, Rig

pytestmark = pytest.mark.skipif(not hasattr(select, "epoll"), reason="helpers need epoll")

ROUNDS = 2000
"""Most questions until something has happened that depends on which thread is first."""


class Owner:
    """What owns the application's port."""

    def on_output(self) -> None:
        pass

    def on_writable(self) -> None:
        pass

    def on_confirmed(self, position: int) -> None:
        pass


class Link(Engine, Owner):
    """Writes to a socket what it is sent, and sends on what it reads there; notes in which thread it reads."""

    def __init__(self, connected: socket.socket) -> None:
        super().__init__()
        self._socket = connected
        self.threads: list[int] = []
        self.when_read: Callable[[], Any] = lambda: None
        self.port: Any = None

    async def run(self, host: Any, *, task_status: Any) -> None:
        self.host = host
        self.port = host.port("link", self)
        host.watch(self._socket.fileno(), readable=self._read)
        task_status.started("here")
        await trio.sleep_forever()

    def on_output(self) -> None:
        for batch in self.port.take().batches:
            for body in batch.bodies:
                self._socket.sendall(body)

    def _read(self) -> None:
        self.threads.append(threading.get_ident())
        data = self._socket.recv(100)
        self.when_read()
        self.port.send((batch_of_one(data),))


class Application:
    """Asks over the link, and waits for the answer of an echo at its other end."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        mine, self._theirs = socket.socketpair()
        self._mine = mine
        for source, target in (("app", "link"), ("link", "app")):
            rig.dispatcher.add_route(
                RouteSpec(name=f"{source} > {target}", source=source, targets=(target,), make_router=FanOut)
            )
        self.link = Link(mine)
        rig.run("link", self.link)
        self.caller = CallerThread(rig.dispatcher, "app", Owner())
        self._echo = threading.Thread(target=self._answer)
        self._echo.start()

    def _answer(self) -> None:
        while data := self._theirs.recv(100):
            self._theirs.sendall(data)

    def ask(self, timeout: float = TIMEOUT) -> bytes:
        self.caller.process()
        self.caller.pass_on((batch_of_one(b"x"),))
        return self.answer(timeout)

    def answer(self, timeout: float | None = TIMEOUT) -> bytes:
        port = self.caller.port
        assert self.caller.wait_until(port.has_input, timeout), "no answer"
        (batch,) = port.take().batches
        return bytes(batch.bodies[0])

    def ask_until(self, done: Callable[[], bool]) -> bool:
        """Ask again and again until ``done()``; whether it was."""
        for _ in range(ROUNDS):
            if done():
                return True
            assert self.ask() == b"x"
        return done()

    def close(self) -> None:
        self._mine.shutdown(socket.SHUT_RDWR)
        self._echo.join()
        if not self.caller.port.closed:
            self.caller.close()
        self.rig.call(lambda: self.link.host.watch(self._mine.fileno()))
        self._mine.close()
        self._theirs.close()
        self.caller._bell.close()


@pytest.fixture
def app(rig: Rig) -> Iterator[Application]:
    rig.close()
    rig.thread = PollThread("helped", rig.dispatcher, rig.reports, PollThreadOptions(helpers=True))
    rig.thread.start()
    made = Application(rig)
    yield made
    made.close()


def test_who_waits_reads_its_answer_itself(app: Application) -> None:
    assert app.ask_until(lambda: app.link.threads.count(threading.get_ident()) >= 10)


def test_a_thread_that_does_not_help_leaves_everything_to_the_poll_thread(app: Application) -> None:
    app.caller.helps = False
    app.ask_until(lambda: len(app.link.threads) >= 200)
    assert threading.get_ident() not in app.link.threads


def test_nobody_helps_a_poll_thread_by_default(rig: Rig) -> None:
    app = Application(rig)
    try:
        app.ask_until(lambda: len(app.link.threads) >= 200)
        assert threading.get_ident() not in app.link.threads
    finally:
        app.close()


def test_a_thread_in_a_trio_run_does_not_help(app: Application) -> None:
    async def main() -> None:
        app.ask_until(lambda: len(app.link.threads) >= 200)

    trio.run(main)
    assert threading.get_ident() not in app.link.threads


def test_a_thread_with_few_calls_left_does_not_help(app: Application) -> None:
    def deep(left: int) -> None:
        if left:
            deep(left - 1)
        else:
            app.ask_until(lambda: len(app.link.threads) >= 200)

    here = 0
    frame = sys._getframe()
    while frame.f_back is not None:
        here, frame = here + 1, frame.f_back
    deep(sys.getrecursionlimit() - here - 150)
    assert threading.get_ident() not in app.link.threads


def in_my_turns(app: Application, do: Callable[[], Any]) -> None:
    """Have the link do something in each of the turns that this thread takes for it."""
    me = threading.get_ident()
    app.link.when_read = lambda: do() if threading.get_ident() == me else None


def test_an_engine_may_start_tasks_and_ask_for_the_time_in_a_turn_of_a_helper(app: Application) -> None:
    ran: list[int] = []
    times: list[float] = []

    async def task() -> None:
        await trio.lowlevel.checkpoint()
        ran.append(threading.get_ident())

    def work() -> None:
        times.append(trio.current_time())
        app.link.host.nursery.start_soon(task)

    in_my_turns(app, work)
    assert app.ask_until(lambda: len(times) >= 10)
    app.link.when_read = lambda: None
    assert app.ask_until(lambda: len(ran) == len(times))
    assert threading.get_ident() not in ran


def test_a_timer_that_is_set_in_a_turn_of_a_helper_fires_in_the_poll_thread(app: Application) -> None:
    fired = threading.Event()
    threads: list[int] = []
    asked: list[int] = []

    def fire() -> None:
        threads.append(threading.get_ident())
        fired.set()

    def work() -> None:
        asked.append(1)
        app.link.host.set_timer(app.link.host.now() + 0.01, fire, "timer")

    in_my_turns(app, work)
    assert app.ask_until(lambda: bool(asked))
    app.link.when_read = lambda: None
    assert fired.wait(TIMEOUT)
    assert threading.get_ident() not in threads


def test_what_an_engine_raises_in_a_turn_of_a_helper_ends_the_engine_and_does_not_reach_the_application(
    app: Application,
) -> None:
    raised: list[int] = []

    def work() -> None:
        raised.append(1)
        raise ValueError("a mistake of the engine")

    in_my_turns(app, work)
    for _ in range(ROUNDS):
        app.caller.process()
        app.caller.pass_on((batch_of_one(b"x"),))
        # The message in whose turn the engine fails has no answer.
        while not app.caller.wait_until(app.caller.port.has_input, 0.05) and not raised:
            pass
        if raised:
            break
        app.caller.port.take()
    assert app.rig.reports.wait("failed", "link").detail.startswith("ValueError: a mistake")


@pytest.mark.skipif(sys.platform != "linux", reason="signals to the main thread")
def test_an_interrupt_waits_until_the_engine_is_done_and_is_raised_in_the_application(
    app: Application,
) -> None:
    steps: list[str] = []

    def work() -> None:
        steps.append("before")
        signal.raise_signal(signal.SIGINT)
        steps.append("after")

    in_my_turns(app, work)
    with pytest.raises(KeyboardInterrupt):
        app.ask_until(lambda: False)
    app.link.when_read = lambda: None
    assert steps == ["before", "after"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    # The answer in whose turn it came is not lost, and everything goes on.
    assert app.answer() == b"x"
    assert app.ask() == b"x"
    assert app.rig.reports.of("failed", "link") == []


@pytest.fixture
def helping(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Set when a thread has begun to help."""
    begun = threading.Event()
    original = SharedTurns._sleep_and_work

    def noted(self: SharedTurns, *arguments: Any) -> None:
        begun.set()
        original(self, *arguments)

    monkeypatch.setattr(SharedTurns, "_sleep_and_work", noted)
    return begun


def test_a_handler_that_raises_ends_the_wait_of_a_helper(app: Application, helping: threading.Event) -> None:
    class Alarm(Exception):
        pass

    def ring(number: int, frame: Any) -> None:
        raise Alarm

    app.ask_until(helping.is_set)
    helping.clear()
    before = signal.signal(signal.SIGUSR1, ring)
    main = threading.get_ident()

    def send() -> None:
        assert helping.wait(TIMEOUT)
        signal.pthread_kill(main, signal.SIGUSR1)

    sender = threading.Thread(target=send)
    sender.start()
    try:
        with pytest.raises(Alarm):
            app.answer(None)
    finally:
        sender.join()
        signal.signal(signal.SIGUSR1, before)
    assert app.ask() == b"x"


def test_a_helper_gives_up_at_its_timeout(app: Application, helping: threading.Event) -> None:
    app.ask_until(helping.is_set)
    helping.clear()
    while not helping.is_set():
        assert not app.caller.wait_until(app.caller.port.has_input, 0.01)
    assert app.ask() == b"x"


def test_a_thread_that_stops_does_not_wait_for_a_helper_that_waits_for_ever(
    app: Application, helping: threading.Event
) -> None:
    ended: list[bool] = []
    app.ask_until(helping.is_set)
    helping.clear()

    def stop() -> None:
        assert helping.wait(TIMEOUT)
        app.rig.thread.stop()
        ended.append(app.rig.thread.join(TIMEOUT))
        app.caller.post(lambda: None)

    stopper = threading.Thread(target=stop)
    stopper.start()
    assert app.caller.wait_until(lambda: bool(ended), None)
    stopper.join()
    assert ended == [True]
    # For ``close``.
    app.rig.call = lambda work: None  # type: ignore[method-assign, assignment]


def test_another_thread_wakes_a_helper(app: Application, helping: threading.Event) -> None:
    told: list[int] = []
    app.ask_until(helping.is_set)
    helping.clear()

    def tell() -> None:
        assert helping.wait(TIMEOUT)
        app.caller.post(lambda: told.append(1))

    teller = threading.Thread(target=tell)
    teller.start()
    assert app.caller.wait_until(lambda: bool(told), None)
    teller.join()


def test_two_applications_that_wait_share_a_poll_thread(app: Application) -> None:
    """One of them helps, the other one is served by it."""
    other_socket, theirs = socket.socketpair()
    for source, target in (("other", "link2"), ("link2", "other")):
        app.rig.dispatcher.add_route(
            RouteSpec(name=f"{source} > {target}", source=source, targets=(target,), make_router=FanOut)
        )

    class Second(Link):
        async def run(self, host: Any, *, task_status: Any) -> None:
            self.host = host
            self.port = host.port("link2", self)
            host.watch(other_socket.fileno(), readable=self._read)
            task_status.started("here")
            await trio.sleep_forever()

    app.rig.run("link2", Second(other_socket))
    got: list[int] = []

    def ask() -> None:
        caller = CallerThread(app.rig.dispatcher, "other", Owner())
        for number in range(500):
            caller.process()
            caller.pass_on((batch_of_one(b"y"),))
            theirs.sendall(theirs.recv(100))
            assert caller.wait_until(caller.port.has_input, TIMEOUT)
            caller.port.take()
            got.append(number)
        caller.close()
        caller._bell.close()

    asking = threading.Thread(target=ask)
    asking.start()
    for _ in range(500):
        assert app.ask() == b"x"
    asking.join()
    assert len(got) == 500
    gone = threading.Event()
    app.rig.thread.remove("link2", gone.set)
    assert gone.wait(TIMEOUT)
    other_socket.close()
    theirs.close()
