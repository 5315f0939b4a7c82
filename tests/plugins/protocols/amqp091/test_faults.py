"""What a peer can do wrong, and the reply code it gets: the specification's, or RabbitMQ's where that is silent."""

from __future__ import annotations

import random
import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from kernel.contracts.message import batch_of
from plugins.protocols.amqp091.connection import ClientConnection, ServerConnection
from plugins.protocols.amqp091.events import ChannelClosed, ConnectionClosed, LoginRequested, Published
from plugins.protocols.amqp091.frames import PROTOCOL_HEADER, method_frame
from plugins.protocols.amqp091.methods import basic, channel, confirm, connection, queue, tx
from plugins.protocols.amqp091.options import ClientOptions, ServerOptions
from tests.plugins.protocols.amqp091.conftest import Pair, opened
from tests.seeds import examples, many, spread


def frame(kind: int, number: int, payload: bytes) -> bytes:
    return struct.pack(">BHI", kind, number, len(payload)) + payload + b"\xce"


PUBLISH = method_frame(1, basic.Publish(routing_key="k").encode())


def header(size: int, properties: bytes = b"\0\0", class_id: int = 60, weight: int = 0) -> bytes:
    return frame(2, 1, struct.pack(">HHQ", class_id, weight, size) + properties)


def body(octets: bytes) -> bytes:
    return frame(3, 1, octets)


@pytest.mark.parametrize("excess, code", [(0, 0), (1, 501)])
def test_a_frame_may_leave_its_overhead_uncounted_and_no_more(
    open_pair: Pair, excess: int, code: int
) -> None:
    """RabbitMQ allows for it; amqpstorm sends such frames."""
    size = open_pair.server.frame_max + excess
    events = open_pair.server.receive_data(PUBLISH + header(size) + body(bytes(size)), 2.0)
    assert [getattr(event, "reply_code", 0) for event in events] == [code]


def method(number: int, value: Any) -> bytes:
    return method_frame(number, value.encode())


CONNECTION_FAULTS = {
    "frame end": (501, b"\x08\0\0\0\0\0\0\xcd"),
    "frame type": (501, b"\x09\0\0\0\0\0\0\xce"),
    "frame too large": (501, b"\x01\0\1\xff\xff\xff\xff\0"),
    "heartbeat on a channel": (501, b"\x08\0\1\0\0\0\0\xce"),
    "method without ids": (502, frame(1, 1, b"\0\x3c")),
    "unknown method": (540, frame(1, 1, b"\0\x3c\0\xff")),
    "unknown class": (540, frame(1, 1, b"\0\x63\0\x0a")),
    "arguments too short": (502, frame(1, 1, b"\0\x32\0\x0a\0\0")),
    "arguments too long": (502, frame(1, 1, b"\0\x5a\0\x0a\0")),
    "shortstr over the end": (502, frame(1, 1, b"\0\x3c\0\x1e\xffab\0")),
    "broken table": (502, frame(1, 1, b"\0\x32\0\x0a\0\0\1q\0\0\0\0\4\1a??")),
    "method of a server": (503, method(1, queue.PurgeOk(message_count=1))),
    "deliver to a server": (
        503,
        method(1, basic.Deliver(consumer_tag="", delivery_tag=1, exchange="", routing_key="")),
    ),
    "connection class on a channel": (503, method(1, connection.CloseOk())),
    "start-ok twice": (503, method(0, connection.StartOk(client_properties={}, response=b""))),
    "open twice": (503, method(0, connection.Open())),
    "close-ok out of the blue": (503, method(0, connection.CloseOk())),
    "channel class on channel 0": (504, method(0, channel.Open())),
    "publish on channel 0": (504, method(0, basic.Publish())),
    "channel opened twice": (504, method(1, channel.Open())),
    "channel not open": (504, method(2, queue.Purge())),
    "channel close-ok out of the blue": (504, method(1, channel.CloseOk())),
    "content on channel 0": (504, frame(2, 0, bytes(14))),
    "content on a closed channel": (505, frame(3, 9, b"x")),
    "header without method": (505, header(1)),
    "body without header": (505, body(b"x")),
    "body straight after publish": (505, PUBLISH + body(b"x")),
    "method within content": (505, PUBLISH + PUBLISH),
    "header twice": (505, PUBLISH + header(1) + header(1)),
    "method before body": (505, PUBLISH + header(1) + method(1, tx.Select())),
    "body longer than announced": (505, PUBLISH + header(1) + body(b"xy")),
    "body after an empty content": (505, PUBLISH + header(0) + body(b"x")),
    "header of another class": (505, PUBLISH + header(1, class_id=50)),
    "header with weight": (505, PUBLISH + header(1, weight=1)),
    "header too short": (501, PUBLISH + frame(2, 1, bytes(13))),
    "unknown properties": (502, PUBLISH + header(1, b"\0\1\0\0")),
    "properties too short": (502, PUBLISH + header(1, b"\x80\0\x09ab")),
    "broken headers": (502, PUBLISH + header(1, b"\x20\0\0\0\0\3\1a?")),
}


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("code, octets", CONNECTION_FAULTS.values(), ids=CONNECTION_FAULTS)
def test_a_fault_closes_the_connection(open_pair: Any, code: int, octets: bytes, whole: bool) -> None:
    server = open_pair.server
    # A good message before, so that the readers of batches have a template to go by.
    server.receive_data(PUBLISH + header(2) + body(b"ok"), 1.0)
    events: list[Any] = []
    for chunk in [octets] if whole else [octets[place : place + 1] for place in range(len(octets))]:
        events += server.receive_data(chunk, 1.0)
    (event,) = [item for item in events if not isinstance(item, Published)]
    assert isinstance(event, ConnectionClosed)
    assert (event.reply_code, event.by_peer) == (code, False)
    assert not server.closed()
    sent = b"".join(server.data_to_send())
    close = connection.Close.decode(sent[7:-1])
    assert (close.reply_code, close.reply_text) == (code, event.reply_text)
    assert server.receive_data(PUBLISH, 1.0) == []
    server.receive_eof(1.0)
    assert server.closed()


@pytest.mark.parametrize("before", [0, 100], ids=["at first", "in a steady flow"])
@pytest.mark.parametrize("nth", [2, 30, 39], ids=["first of a block", "within", "last of all"])
def test_a_batch_with_one_wrong_octet_is_never_taken_for_good(nth: int, before: int) -> None:
    """Whatever octet it is: what is read at once and what is read octet by octet are the same."""
    one = PUBLISH + header(4, b"\x10\0\2") + body(b"body")
    for place in spread(range(len(one))):
        stream = bytearray(one * 40)
        stream[nth * len(one) + place] ^= 0x55
        at_once, by_octets = opened().server, opened().server
        at_once.receive_data(one * before, 1.0)
        events = at_once.receive_data(bytes(stream), 1.0)
        bodies = _bodies(events)
        assert bodies[:nth] == [b"body"] * nth, place
        events_again = [event for octet in stream for event in by_octets.receive_data(bytes((octet,)), 1.0)]
        assert _bodies(events_again) == bodies, place
        assert _not_published(events_again) == _not_published(events), place


def _bodies(events: list[Any]) -> list[Any]:
    return [message for event in events if isinstance(event, Published) for message in event.batch.bodies]


def _not_published(events: list[Any]) -> list[Any]:
    return [event for event in events if not isinstance(event, Published)]


@pytest.mark.parametrize(
    "octets", [b"AMQP\0\1\0\0", b"AMQP\3\1\0\0", b"GET / HT", b"AMQP\0\0\x09\2", bytes(8)]
)
def test_a_wrong_protocol_header_is_answered_with_the_right_one(octets: bytes) -> None:
    server = ServerConnection(ServerOptions(), 0.0)
    assert server.receive_data(octets[:5], 0.0) == []
    (event,) = server.receive_data(octets[5:], 0.0)
    assert isinstance(event, ConnectionClosed)
    assert b"".join(server.data_to_send()) == PROTOCOL_HEADER
    assert server.closed()
    client = ClientConnection(ClientOptions(), 0.0)
    (event,) = client.receive_data(PROTOCOL_HEADER, 0.0)
    assert client.closed()


@pytest.mark.parametrize("octets, version", [(b"AMQP\1\1\0\x09", (0, 9)), (b"AMQP\1\1\x08\0", (8, 0))])
def test_old_protocol_headers_are_accepted(octets: bytes, version: tuple[int, int]) -> None:
    server = ServerConnection(ServerOptions(), 0.0)
    assert server.receive_data(octets, 0.0) == []
    start = connection.Start.decode(b"".join(server.data_to_send())[7:-1])
    assert (start.version_major, start.version_minor) == version


@pytest.mark.parametrize(
    "tune_ok, text",
    [
        (connection.TuneOk(channel_max=0, frame_max=131072), "channel_max = 0 is higher"),
        (connection.TuneOk(channel_max=2048, frame_max=131072), "channel_max = 2048 is higher"),
        (connection.TuneOk(channel_max=1, frame_max=0), "frame_max = 0 is higher"),
        (connection.TuneOk(channel_max=1, frame_max=100), "frame_max = 100 is lower"),
    ],
)
def test_limits_outside_of_the_offer_are_refused(tune_ok: connection.TuneOk, text: str) -> None:
    server = ServerConnection(ServerOptions(), 0.0)
    start_ok = connection.StartOk(client_properties={}, response=b"\0a\0b")
    server.receive_data(PROTOCOL_HEADER + method(0, start_ok), 0.0)
    server.accept_login()
    (event,) = server.receive_data(method(0, tune_ok), 0.0)
    assert event.reply_code == 530
    assert text in event.reply_text


def test_a_login_may_be_longer_than_the_smallest_frame() -> None:
    """RabbitMQ 3.10 resets the connection.  Tokens may be as long."""
    server = ServerConnection(ServerOptions(), 0.0)
    start_ok = connection.StartOk(client_properties={"x": "a" * 5000}, response=b"\0a\0b")
    (event,) = server.receive_data(PROTOCOL_HEADER + method(0, start_ok), 0.0)
    assert isinstance(event, LoginRequested)
    too_long = connection.StartOk(client_properties={"x": "a" * 9000}, response=b"")
    server = ServerConnection(ServerOptions(), 0.0)
    (event,) = server.receive_data(PROTOCOL_HEADER + method(0, too_long), 0.0)
    assert isinstance(event, ConnectionClosed)
    assert event.reply_code == 501


def test_a_body_that_is_too_large_closes_the_channel_only(make_pair: Any) -> None:
    pair = make_pair(ServerOptions(max_body_size=1000))
    pair.exchange()
    pair.client.open_channel(1)
    pair.exchange()
    pair.client.publish(1, batch_of([b"a" * 1000, b"b" * 1001, b"c"]))
    to_server, to_client = pair.exchange()
    assert len(to_server[0].batch) == 1
    assert to_server[1].reply_code == 311
    assert to_server[2] == ChannelClosed(1, by_peer=False)
    assert to_client[0].reply_code == 311


def test_channel_close_within_a_content(open_pair: Any) -> None:
    server = open_pair.server
    server.receive_data(PUBLISH + header(10) + body(b"x"), 1.0)
    server.close_channel(1, 404, "no exchange 'x'")
    assert server.receive_data(body(b"x" * 9) + method(1, confirm.Select()), 1.0) == []
    assert server.receive_data(method(1, channel.CloseOk()), 1.0) == [ChannelClosed(1, by_peer=False)]
    assert (
        server.receive_data(method(1, channel.Open()) + PUBLISH + header(2) + body(b"ok"), 1.0)[1].batch.size
        == 2
    )


def test_a_client_finds_faults_too(open_pair: Any) -> None:
    (event,) = open_pair.client.receive_data(PUBLISH, 1.0)
    assert event.reply_code == 503


@settings(max_examples=examples(150), deadline=None)
@given(some.binary(max_size=300), some.booleans())
def test_random_octets_never_raise(octets: bytes, at_client: bool) -> None:
    receiver = ClientConnection(ClientOptions(), 0.0) if at_client else ServerConnection(ServerOptions(), 0.0)
    receiver.receive_data(octets if at_client else PROTOCOL_HEADER + octets, 0.0)
    receiver.receive_eof(0.0)
    assert receiver.closed()


@pytest.mark.parametrize("seed", many(0, 150))
def test_mutated_conversations_never_raise(open_pair: Any, seed: int) -> None:
    chance = random.Random(seed)
    one = PUBLISH + header(4, b"\x10\0\2") + body(b"body")
    deliver = basic.Deliver(consumer_tag="t", delivery_tag=1, exchange="x", routing_key="k")
    other = method(1, deliver) + header(4, b"\x10\0\2") + body(b"body")
    declare = method(1, queue.Declare(queue="q", arguments={"a": [1, {"b": "c"}]}))
    for receiver, message in ((open_pair.server, one), (open_pair.client, other)):
        stream = bytearray(message * 4 + method(1, basic.Ack(delivery_tag=1)) + declare + message)
        for _ in range(chance.randrange(1, 4)):
            stream[chance.randrange(len(stream))] = chance.randrange(256)
        receiver.receive_data(bytes(stream), 1.0)
        receiver.receive_eof(1.0)
        assert receiver.closed()
