"""A socket that one thread closes while another one waits in a call of it."""

from __future__ import annotations

import os
import select
import signal
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from kernel.sockets import Context, Socket, SocketClosed, poll
from plugins.apis.sockets.errors import ContextClosed
from plugins.apis.sockets.options import TypeName
from tests.plugins.apis.sockets.test_leases import Pair
from tests.seeds import many
from tests.systems import lends

TIMEOUT = 30.0

WAITS: list[tuple[TypeName, Callable[[Socket], Any]]] = [
    ("PULL", lambda socket: socket.recv()),
    ("PULL", lambda socket: socket.recv(timeout=TIMEOUT)),
    ("PULL", lambda socket: socket.recv_multipart()),
    ("PULL", lambda socket: socket.recv_many()),
    ("PULL", lambda socket: socket.poll()),
    ("PULL", lambda socket: poll([socket], timeout=TIMEOUT)),
    # There is no peer, and so no room.
    ("PUSH", lambda socket: socket.send(b"for nobody")),
    ("PUB", lambda socket: socket.wait_for_subscribers()),
]


@pytest.fixture
def context() -> Iterator[Context]:
    with Context() as context:
        yield context


class Waiter:
    """A thread that waits in a call of a socket."""

    def __init__(self, socket: Socket, call: Callable[[], Any]) -> None:
        self._call = call
        self._end = socket._end
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._call()
        except Exception as error:
            self.error = error

    def sleeps(self) -> None:
        """Return when it has said that it sleeps: a post has to wake it from then on."""
        while not self._end.caller._bell.sleeping:  # type: ignore[attr-defined]
            os.sched_yield()

    def end(self) -> BaseException | None:
        """Return what the call has raised."""
        self._thread.join(TIMEOUT)
        assert not self._thread.is_alive()
        return self.error


@pytest.mark.parametrize("kind, call", WAITS, ids=lambda each: each if isinstance(each, str) else "")
def test_the_call_ends_and_the_next_socket_has_a_bell_of_its_own(
    context: Context, kind: TypeName, call: Callable[[Socket], Any]
) -> None:
    for round_number in many(10, 200):
        socket = context.socket(kind)
        waiter = Waiter(socket, partial(call, socket))
        # In every second round it is only on its way there, perhaps.
        if round_number % 2:
            waiter.sleeps()
        socket.close()
        with context.socket("PULL") as pull, context.socket("PUSH") as push:
            push.connect(pull.bind("inproc://after"))
            push.send(b"hello")
            assert pull.recv(timeout=TIMEOUT) == b"hello"
        assert isinstance(waiter.end(), SocketClosed)
        assert socket._end.closed


@lends
def test_a_call_with_a_lease_ends_too() -> None:
    for _ in many(5, 50):
        pair, lent = Pair(("DEALER", "DEALER")), threading.Event()

        def wait(pair: Pair, lent: threading.Event) -> None:
            pair.lend()
            lent.set()
            pair.socket.recv()

        waiter = Waiter(pair.socket, partial(wait, pair, lent))
        assert lent.wait(TIMEOUT)
        waiter.sleeps()
        pair.socket.close()
        assert isinstance(waiter.end(), SocketClosed)
        assert pair.socket._end.closed
        pair.close()


def test_a_handler_of_a_signal_may_close_it(context: Context) -> None:
    socket = context.socket("PULL")
    before = signal.signal(signal.SIGUSR2, lambda *_: socket.close())
    try:
        thread = _interrupting(socket)
        with pytest.raises(SocketClosed):
            socket.recv()
        thread.join(TIMEOUT)
    finally:
        signal.signal(signal.SIGUSR2, before)
    assert socket._end.closed


USES: list[Callable[[Socket], Any]] = [
    lambda socket: socket.recv(),
    lambda socket: socket.recv_many(),
    lambda socket: socket.poll(),
    lambda socket: poll([socket], timeout=TIMEOUT),
    lambda socket: socket.readable(),
    lambda socket: socket.writable(),
    lambda socket: socket.fileno(),
    lambda socket: socket.send(b""),
    lambda socket: socket.monitor(),
    lambda socket: socket.bind("inproc://closed"),
]


@pytest.mark.parametrize("use", USES)
def test_calls_of_a_closed_socket_take_nothing_of_the_next_one(
    context: Context, use: Callable[[Socket], Any]
) -> None:
    """The next one may be used by another thread, which sleeps and would not be told."""
    closed = context.socket("PAIR")
    descriptor = closed._end.caller.fileno()
    closed.close()
    with context.socket("PAIR") as socket:
        caller = socket._end.caller
        assert caller.fileno() == descriptor
        caller.process()
        heard: list[int] = []
        assert caller.arm()
        with pytest.raises(SocketClosed):
            use(closed)
        caller.post(lambda: heard.append(1))
        assert select.select([descriptor], [], [], 0)[0], "it was still armed"
        with pytest.raises(SocketClosed):
            use(closed)
        assert heard == []
        assert caller.process()
        assert heard == [1]


def test_who_waits_and_is_closed_by_a_handler_is_woken_although_the_next_one_takes_a_ring(
    context: Context,
) -> None:
    socket = context.socket("PULL")

    def close(*_: object) -> None:
        socket.close()
        with context.socket("PULL") as another:
            another._end.caller.clear()

    before = signal.signal(signal.SIGUSR2, close)
    try:
        thread = _interrupting(socket)
        with pytest.raises(SocketClosed):
            socket.recv(timeout=TIMEOUT)
        thread.join(TIMEOUT)
    finally:
        signal.signal(signal.SIGUSR2, before)
    assert socket._end.closed


@lends
def test_a_handler_may_close_it_and_raise_in_a_wait_with_a_lease() -> None:
    pair = Pair(("DEALER", "DEALER"))

    def close(*_: object) -> None:
        pair.socket.close()
        raise InterruptedError

    before = signal.signal(signal.SIGUSR2, close)
    try:
        pair.lend()
        thread = _interrupting(pair.socket)
        with pytest.raises(InterruptedError):
            pair.socket.recv()
        thread.join(TIMEOUT)
    finally:
        signal.signal(signal.SIGUSR2, before)
    assert pair.socket._end.closed, "nobody else would have it leave the kernel"
    pair.close()


@lends
def test_a_lease_whose_thread_leaves_does_not_touch_the_bell_of_the_next_one() -> None:
    pair = Pair(("DEALER", "DEALER"))
    lease = pair.lend()
    # What the thread does with it that is on its way into ``receive``.
    descriptor = pair.socket._end.caller.fileno()
    pair.socket.close()
    with pair.near.socket("PULL") as socket:
        caller = socket._end.caller
        assert caller.fileno() == descriptor
        caller.process()
        lease._posted.clear()
        lease.offered = lease.active = True
        assert caller.arm()
        assert lease.receive(0) is None
        rung = threading.Event()
        caller.wake_by(rung.set)
        caller.post(rung.clear)
        assert rung.is_set(), "it was still armed"
    pair.close()


def _interrupting(socket: Socket) -> threading.Thread:
    """Start a thread that sends this one a signal when it sleeps in a call of the socket, until it is closed."""
    main, caller = threading.get_ident(), socket._end.caller

    def interrupt() -> None:
        while not caller._bell.sleeping:  # type: ignore[attr-defined]
            os.sched_yield()
        # Again, if need be: of one that comes just before the call of the system, Python hears behind that.
        while not socket.closed:
            signal.pthread_kill(main, signal.SIGUSR2)
            until = time.monotonic() + 0.2
            while not socket.closed and time.monotonic() < until:
                os.sched_yield()

    thread = threading.Thread(target=interrupt)
    thread.start()
    return thread


def test_the_end_of_the_context_comes_first(context: Context) -> None:
    """Who waits is told of that, unless the socket is closed before it has looked, and leaves in both cases."""
    socket = context.socket("PULL")
    waiter = Waiter(socket, socket.recv)
    waiter.sleeps()
    context.close()
    socket.close()
    assert isinstance(waiter.end(), (ContextClosed, SocketClosed))
    assert socket._end.closed


class Ending:
    """Another thread closes the context just before this one asks the system, in a call that waits."""

    def __init__(self, context: Context, socket: Socket) -> None:
        self._context = context
        self._number = socket._end.caller.fileno()
        self.kept: list[bool] = []

    def end(self) -> None:
        if not self.kept:
            thread = threading.Thread(target=self._context.close, args=(0,))
            thread.start()
            thread.join()
            self.kept.append(self.is_open())

    def is_open(self) -> bool:
        try:
            os.fstat(self._number)
        except OSError:
            return False
        return True


def test_the_end_of_the_context_leaves_a_descriptor_open_that_is_waited_for(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its number could be that of another file when the system is asked."""
    socket = context.socket("PULL")
    ending = Ending(context, socket)

    class Poll:
        def __init__(self) -> None:
            self._poll = select.poll()
            self.register = self._poll.register

        def poll(self, milliseconds: float | None) -> list[tuple[int, int]]:
            ending.end()
            return self._poll.poll(milliseconds)

    monkeypatch.setattr(
        "plugins.apis.sockets.socket.select", SimpleNamespace(poll=Poll, POLLIN=select.POLLIN)
    )
    with pytest.raises(ContextClosed):
        poll([socket], timeout=TIMEOUT)
    assert ending.kept == [True]
    assert socket._end.closed
    assert not ending.is_open()


@lends
def test_the_end_of_the_context_leaves_one_open_that_is_waited_for_with_a_lease() -> None:
    pair = Pair(("DEALER", "DEALER"))
    lease = pair.lend()
    ending = Ending(pair.near, pair.socket)
    wait = lease._poll

    def sleep(milliseconds: float) -> list[tuple[int, int]]:
        ending.end()
        ready: list[tuple[int, int]] = wait(milliseconds)
        return ready

    lease._poll = sleep
    with pytest.raises(ContextClosed):
        pair.socket.recv()
    assert ending.kept == [True]
    assert pair.socket._end.closed
    assert not ending.is_open()
    pair.close()


class Turn:
    """A turn that the thread of the connection takes just after a look has found it free."""

    def __init__(self, turn: Any, take: Callable[[], Any]) -> None:
        self._turn, self._take = turn, take

    def locked(self) -> bool:
        self._take()
        return False

    def __enter__(self) -> None:
        assert self._turn.acquire(timeout=TIMEOUT), "the thread of the connection has ended, and has kept it"

    def __exit__(self, *_: object) -> None:
        self._turn.release()


@lends
@pytest.mark.parametrize("call", [lambda socket: socket.send(b"x"), lambda socket: socket.recv()])
def test_the_end_of_the_context_gives_up_the_turn_that_a_lease_waits_for(
    call: Callable[[Socket], Any],
) -> None:
    pair = Pair(("DEALER", "DEALER"))
    lease = pair.lend()
    pair.socket.send(b"to be answered")
    lease._may_send = True
    lease._turn = Turn(lease._turn, Ending(pair.near, pair.socket).end)
    with pytest.raises(ContextClosed):
        call(pair.socket)
    pair.close()
