"""A socket that one thread closes while another one waits in a call of it."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from functools import partial
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
        main = threading.get_ident()

        def interrupt() -> None:
            while not socket._end.caller._bell.sleeping:  # type: ignore[attr-defined]
                os.sched_yield()
            signal.pthread_kill(main, signal.SIGUSR2)

        thread = threading.Thread(target=interrupt)
        thread.start()
        with pytest.raises(SocketClosed):
            socket.recv()
        thread.join(TIMEOUT)
    finally:
        signal.signal(signal.SIGUSR2, before)
    assert socket._end.closed


def test_the_end_of_the_context_comes_first(context: Context) -> None:
    """Who waits is told of that, and the socket is closed by whoever closes it."""
    socket = context.socket("PULL")
    waiter = Waiter(socket, socket.recv)
    waiter.sleeps()
    context.close()
    socket.close()
    assert isinstance(waiter.end(), ContextClosed)
    assert socket._end.closed
