"""A login that fails is reported and counted, and answered late, so that passwords cannot be tried quickly."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from kernel.hosting.failed_logins import LOGIN_DELAY
from kernel.hosting.wire import PlainWire
from plugins.engines.broker.host.listening import Accepted, StreamFrontEnd
from plugins.protocols.amqp091.connection import ClientConnection
from plugins.protocols.amqp091.credentials import plain_response
from plugins.protocols.amqp091.events import ConnectionClosed, Event
from plugins.protocols.amqp091.options import ClientOptions
from tests.plugins.engines.amqp.still_host import StillServer


class Watched(StillServer):
    """A server that also closes the wires of its guessers."""

    def __init__(self) -> None:
        super().__init__()
        self.wires: list[socket.socket] = []

    def close(self) -> None:
        super().close()
        for wire in self.wires:
            wire.close()


@pytest.fixture
def server() -> Iterator[Watched]:
    server = Watched()
    yield server
    server.close()


class Guesser:
    """A client with a wrong password."""

    def __init__(self, server: Watched, user: str = "guest") -> None:
        self._server = server
        self.wire, theirs = socket.socketpair()
        server.wires.append(self.wire)
        for each in (self.wire, theirs):
            each.setblocking(False)
        front_end = server.engine.front_ends[0]
        assert isinstance(front_end, StreamFrontEnd)
        front_end.begin(Accepted(PlainWire(theirs), "guesser", loopback=True, certified=None))
        self._connection = ClientConnection(ClientOptions(response=plain_response(user, "wrong")), 0.0)
        for _ in range(2):  # the header and the server's start, then start-ok
            self.wire.sendall(b"".join(self._connection.data_to_send()))
            server.host.process()
            self.events = self.read()

    def read(self) -> list[Event]:
        self._server.host.process()
        try:
            return self._connection.receive_data(self.wire.recv(1 << 16), 0.0)
        except BlockingIOError:
            return []


def lines(server: Watched) -> list[str]:
    return [f"{event.peer}: {event.detail}" for event in server.host.events if event.what == "login refused"]


def test_it_is_reported_at_once_and_answered_after_a_while(server: Watched) -> None:
    guesser = Guesser(server, "eve")
    assert lines(server) == ["guesser: user 'eve' with PLAIN"]
    assert guesser.events == []
    server.host.pass_time(LOGIN_DELAY * 0.9)
    assert guesser.read() == []
    server.host.pass_time(LOGIN_DELAY * 0.2)
    (event,) = guesser.read()
    assert isinstance(event, ConnectionClosed)
    assert event.reply_code == 403


def test_what_comes_behind_it_is_not_read(server: Watched) -> None:
    guesser = Guesser(server)
    guesser.wire.sendall(bytes(1000))
    server.host.process()
    server.host.pass_time(LOGIN_DELAY * 1.1)
    (event,) = guesser.read()
    assert isinstance(event, ConnectionClosed)
    assert event.reply_code == 403


def test_many_are_counted_and_one_a_second_is_reported(server: Watched) -> None:
    for _ in range(20):
        Guesser(server)
    assert len(lines(server)) == 1
    assert server.engine.statistics()["logins_refused"] == 20
    server.host.pass_time(2.0)
    Guesser(server, "\N{SNOWMAN}" + "x" * 1000)
    assert lines(server)[1].startswith("guesser: user '\N{SNOWMAN}" + "x" * 99 + "' with PLAIN; and 19 more")


def test_one_who_goes_before_the_answer_leaves_nothing(server: Watched) -> None:
    Guesser(server).wire.close()
    server.host.pass_time(LOGIN_DELAY * 2)
    assert not server.engine.clients
