"""AMQP 0-8 on the wire: the octets are those that RabbitMQ exchanges with clients of this version."""

from __future__ import annotations

import pytest

from plugins.protocols.amqp091.connection import ServerConnection
from plugins.protocols.amqp091.events import ConnectionClosed, Event, MethodReceived
from plugins.protocols.amqp091.frames import method_frame
from plugins.protocols.amqp091.methods import basic, channel, connection
from plugins.protocols.amqp091.options import ServerOptions

HEADER = b"AMQP\1\1\x08\0"
CONSUME = b"\0\x3c\0\x14\0\0\1q\1t\0"
CLOSE = b"\0\x0a\0\x3c\0\xc8\3bye\0\0\0\0"


class Old:
    """A server whose client has asked for AMQP 0-8, with channel 1 open."""

    def __init__(self) -> None:
        self.connection = ServerConnection(ServerOptions(), 0.0)
        self.connection.receive_data(HEADER, 0.0)
        self.send(0, connection.StartOk(client_properties={}, response=b"\0a\0b").encode())
        self.connection.accept_login()
        self.send(0, connection.TuneOk(channel_max=1, frame_max=131072).encode())
        self.send(0, connection.Open().encode())
        self.connection.accept_open()
        self.said()
        self.send(1, channel.Open().encode())

    def send(self, number: int, payload: bytes) -> list[Event]:
        return self.connection.receive_data(method_frame(number, payload), 0.0)

    def said(self) -> bytes:
        return b"".join(self.connection.data_to_send())


@pytest.fixture
def old() -> Old:
    """The same."""
    return Old()


def test_a_channel_is_opened_without_an_argument(old: Old) -> None:
    assert old.said() == method_frame(1, b"\0\x14\0\x0b")


@pytest.mark.parametrize("table", [b"", b"\0\0\0\0"])
def test_a_consumer_brings_no_table_unless_it_is_qpid(old: Old, table: bytes) -> None:
    (event,) = old.send(1, CONSUME + table)
    assert isinstance(event, MethodReceived)
    assert event.method == basic.Consume(queue="q", consumer_tag="t")


def test_a_table_in_pieces_is_malformed_all_the_same(old: Old) -> None:
    (event,) = old.send(1, CONSUME + b"\0\0\0\5")
    assert isinstance(event, ConnectionClosed)
    assert event.reply_code == 502


def test_the_client_closes(old: Old) -> None:
    old.said()
    (event,) = old.send(0, CLOSE)
    assert isinstance(event, ConnectionClosed)
    assert (event.reply_code, event.by_peer) == (200, True)
    assert old.said() == method_frame(0, b"\0\x0a\0\x3d")


def test_what_was_asked_before_the_client_closes_is_answered_first(old: Old) -> None:
    old.said()
    got = method_frame(1, basic.Get(queue="q").encode()) + method_frame(0, CLOSE)
    steps = list(old.connection.receive_in_steps(got, 0.0))
    assert [len(events) for events in steps] == [1, 1]


def test_the_server_closes(old: Old) -> None:
    old.said()
    old.connection.close(320, "over")
    assert old.said() == method_frame(0, b"\0\x0a\0\x3c\1\x40\x18CONNECTION_FORCED - over\0\0\0\0")
    (event,) = old.send(0, b"\0\x0a\0\x3d")
    assert isinstance(event, ConnectionClosed)
    assert not event.by_peer


def test_close_of_0_9_is_another_method(old: Old) -> None:
    """It is connection.redirect, which is not for a client to send."""
    (event,) = old.send(0, connection.Close(reply_code=200).encode())
    assert isinstance(event, ConnectionClosed)
    assert event.reply_code == 540


def test_other_versions_are_as_ever() -> None:
    server = ServerConnection(ServerOptions(), 0.0)
    server.receive_data(b"AMQP\1\1\0\x09", 0.0)
    assert not server.speaks_0_8
