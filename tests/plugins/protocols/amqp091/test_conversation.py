"""A client and a server back to back: what one is told to send, the other reports."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from kernel.contracts.errors import LocalProtocolError
from kernel.contracts.message import Batch, Envelope, batch_of
from plugins.protocols.amqp091.connection import ClientConnection, ServerConnection
from plugins.protocols.amqp091.content import ContentProperties
from plugins.protocols.amqp091.events import (
    Acknowledged,
    ChallengeAnswered,
    ChallengeReceived,
    ChannelClosed,
    ChannelOpened,
    ConnectionClosed,
    ConnectionOpened,
    Delivered,
    Event,
    Got,
    LoginRequested,
    OpenRequested,
    Published,
    Rejected,
    Returned,
)
from plugins.protocols.amqp091.heartbeats import Heartbeats
from plugins.protocols.amqp091.methods import basic, queue
from plugins.protocols.amqp091.options import ClientOptions, ServerOptions
from plugins.protocols.amqp091.templates import MAXIMUM_OCTETS
from tests.seeds import examples

KEY = Envelope(key="k", exchange="x", persistent=True)


@pytest.mark.slow
def test_large_properties_do_not_stay_in_memory(open_pair: Any) -> None:
    """A peer may have a different flow for each message, and properties of up to frame_max in each."""

    def properties(number: int) -> ContentProperties:
        return ContentProperties.of({"headers": {"text": f"{number:0100000}"}})

    tracemalloc.start()
    try:
        for number in range(300):
            envelope = Envelope(key=f"k{number}", exchange="x", properties=properties(number))
            open_pair.client.publish(1, batch_of([b"to"], envelope))
            open_pair.server.send_deliveries(1, "c", number + 1, False, batch_of([b"fro"], envelope))
            open_pair.exchange()
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # 30 MB of properties went each way.  Both ends have a table for sending and two for receiving.
    assert kept < 2 * 3 * (MAXIMUM_OCTETS + 1_000_000)


def bodies_of(events: list[Event]) -> list[bytes]:
    return [
        bytes(body)
        for event in events
        if isinstance(event, Published | Delivered)
        for body in event.batch.bodies
    ]


def test_handshake(make_pair: Any) -> None:
    pair = make_pair(
        ServerOptions(channel_max=100, frame_max=8192, heartbeat=30),
        ClientOptions(virtual_host="v", channel_max=0, frame_max=0, response=b"\0a\0b"),
    )
    to_server, to_client = pair.exchange()
    login, opening = to_server
    assert isinstance(login, LoginRequested)
    assert (login.mechanism, login.response) == ("PLAIN", b"\0a\0b")
    assert opening == OpenRequested("v")
    (opened,) = to_client
    assert isinstance(opened, ConnectionOpened)
    assert (opened.channel_max, opened.frame_max, opened.heartbeat) == (100, 8192, 30)
    assert opened.server_properties["capabilities"]["publisher_confirms"] is True
    assert "OPEN" in repr(pair.server)


def test_challenge() -> None:
    server = ServerConnection(ServerOptions(), 0.0)
    client = ClientConnection(ClientOptions(), 0.0)

    def to_server() -> list[Event]:
        return server.receive_data(b"".join(client.data_to_send()), 0.0)

    def to_client() -> list[Event]:
        return client.receive_data(b"".join(server.data_to_send()), 0.0)

    to_server()
    to_client()
    assert isinstance(to_server()[0], LoginRequested)
    server.challenge(b"who?")
    assert to_client() == [ChallengeReceived(b"who?")]
    client.answer_challenge(b"me")
    assert to_server() == [ChallengeAnswered(b"me")]
    server.accept_login()
    with pytest.raises(LocalProtocolError):
        server.accept_open()


def test_refused_login(make_pair: Any) -> None:
    for capable in (True, False):
        pair = make_pair()
        server, client = pair.server, pair.client
        server.receive_data(b"".join(client.data_to_send()), 0.0)
        client.receive_data(b"".join(server.data_to_send()), 0.0)
        server.receive_data(b"".join(client.data_to_send()), 0.0)
        if not capable:
            server.client_properties = {}
        server.refuse_login("Login was refused using authentication mechanism PLAIN.")
        _, to_client = pair.exchange()
        assert server.closed()
        assert [type(event) for event in to_client] == [ConnectionClosed] * capable
        if capable:
            assert to_client[0].reply_code == 403
            assert to_client[0].reply_text.startswith("ACCESS_REFUSED - Login was refused")


BATCHES = [
    batch_of([b"a" * 100] * 40, KEY),
    batch_of([b"", b"x", b"y" * 5000, b"z" * 131064, b"w" * 131065, b"v" * 300000], KEY),
    batch_of([bytearray(b"q" * 7), memoryview(b"rrrrrrr"), b"s"], Envelope(key="other")),
    batch_of([memoryview(b"rrrrrrr"), b"sssssss"], Envelope(key="other")),
    batch_of([(b"a", b"b"), (b"", b"cd")], KEY, multipart=True),
]
FLAT = [
    b"".join(body) if isinstance(body, tuple) else bytes(body) for batch in BATCHES for body in batch.bodies
]


def test_published_batches_arrive(open_pair: Any) -> None:
    for batch in BATCHES:
        open_pair.client.publish(1, batch, mandatory=True)
    events, _ = open_pair.exchange()
    assert bodies_of(events) == FLAT
    assert all(event.mandatory and not event.immediate for event in events)
    # The same octets make the same envelope, whichever way they were read.
    assert events[0].batch.envelope is events[-1].batch.envelope
    assert [event.batch.envelope.key for event in events] == ["k", "other", "k"]
    assert sum(event.batch.size for event in events) == sum(map(len, FLAT))


def test_delivered_batches_arrive(open_pair: Any) -> None:
    tag = 1
    for batch in BATCHES:
        open_pair.server.send_deliveries(1, "consumer", tag, False, batch)
        tag += len(batch)
    open_pair.server.send_deliveries(1, "consumer", 900, True, BATCHES[0])
    open_pair.server.send_deliveries(1, "another", 940, True, BATCHES[0])
    _, events = open_pair.exchange()
    assert bodies_of(events) == FLAT + 2 * [b"a" * 100] * 40
    assert [event.first_delivery_tag for event in events] == [1, 47, 52, 900, 940]
    assert [event.consumer_tag for event in events] == ["consumer"] * 4 + ["another"]
    assert [event.redelivered for event in events] == [False] * 3 + [True] * 2


def test_got_and_returned_messages(open_pair: Any) -> None:
    batch = batch_of([b"body"], KEY)
    open_pair.server.send_get_ok(1, 5, True, 17, batch)
    open_pair.server.send_return(1, 312, "NO_ROUTE", batch)
    _, (got, returned) = open_pair.exchange()
    assert isinstance(got, Got)
    assert (got.delivery_tag, got.redelivered, got.message_count, got.batch.bodies) == (
        5,
        True,
        17,
        [b"body"],
    )
    assert isinstance(returned, Returned)
    assert (returned.reply_code, returned.reply_text, returned.batch.envelope.key) == (312, "NO_ROUTE", "k")
    with pytest.raises(LocalProtocolError):
        open_pair.server.send_get_ok(1, 5, True, 17, BATCHES[0])


def test_each_message_that_is_got_has_its_own_tag_count_size_and_flow(open_pair: Any) -> None:
    other = Envelope(key="k2", exchange="x")
    answers = [
        (1, False, 9, b"one", KEY),
        (2, False, 8, b"another size", KEY),
        (3, True, 7, b"", KEY),
        (4, True, 6, b"y" * 5_000, other),
        (5, False, 0, b"z" * 300_000, other),
        (6, False, (1 << 32) - 1, b"one", KEY),
    ]
    for tag, redelivered, count, body, envelope in answers:
        open_pair.server.send_get_ok(1, tag, redelivered, count, batch_of([body], envelope))
    parts = Batch([(b"a", b"bc")], 3, KEY, multipart=True)
    open_pair.server.send_get_ok(1, 7, False, 1, parts)
    _, events = open_pair.exchange()
    assert [
        (
            each.delivery_tag,
            each.redelivered,
            each.message_count,
            each.batch.bodies[0],
            each.batch.envelope.key,
        )
        for each in events
    ] == [(*answer[:4], answer[4].key) for answer in answers] + [(7, False, 1, b"abc", "k")]


def test_a_message_that_is_got_is_these_octets(open_pair: Any) -> None:
    # AMQP 0-9-1, 1.8.3.14 (basic.get-ok) and 4.2.6.1 (content header).
    open_pair.server.send_get_ok(1, 5, True, 17, batch_of([b"body"], Envelope(key="k", exchange="x")))
    method = bytes.fromhex("003c0047") + (5).to_bytes(8, "big") + b"\x01" + b"\x01x" + b"\x01k"
    method += (17).to_bytes(4, "big")
    header = bytes.fromhex("003c0000") + (4).to_bytes(8, "big") + bytes(2)
    frames = ((1, method), (2, header), (3, b"body"))
    expected = b"".join(
        bytes((kind, 0, 1)) + len(payload).to_bytes(4, "big") + payload + b"\xce" for kind, payload in frames
    )
    assert b"".join(open_pair.server.data_to_send()) == expected


def test_acknowledgements_come_in_batches(open_pair: Any) -> None:
    client = open_pair.client
    for tag in (1, 2, 3, 7, 8):
        client.send_acknowledgement(1, tag)
    client.send_acknowledgement(1, 20, multiple=True)
    client.send_acknowledgement(1, 0, multiple=True)
    client.send_method(1, basic.Nack(delivery_tag=21))
    client.send_method(1, basic.Reject(delivery_tag=22, requeue=False))
    events, _ = open_pair.exchange()
    assert events == [
        Acknowledged(1, 1, 3, False),
        Acknowledged(1, 7, 8, False),
        Acknowledged(1, 20, 20, True),
        Acknowledged(1, 0, 0, True),
        Rejected(1, 21, 21, False, True, 120),
        Rejected(1, 22, 22, False, False, 90),
    ]


def test_a_channel_is_closed_by_either_side_and_opened_again(open_pair: Any) -> None:
    server, client = open_pair.server, open_pair.client
    server.close_channel(1, 404, "no queue 'q' in vhost '/'", 50, 10)
    client.publish(1, BATCHES[0])  # crosses the close: dropped
    to_server, to_client = open_pair.exchange()
    assert to_server == [ChannelClosed(1, by_peer=False)]
    assert to_client == [ChannelClosed(1, 404, "NOT_FOUND - no queue 'q' in vhost '/'", 50, 10)]
    server.send_method(1, queue.PurgeOk(message_count=0))
    assert server.data_to_send() == []
    client.open_channel(1)
    assert open_pair.exchange() == ([ChannelOpened(1)], [ChannelOpened(1)])
    client.close_channel(1, 200, "bye")
    server.close_channel(1, 406, "at the same time")
    to_server, to_client = open_pair.exchange()
    assert to_server == [ChannelClosed(1, by_peer=False)]
    assert to_client == [ChannelClosed(1, by_peer=False)]


def test_close(open_pair: Any) -> None:
    open_pair.client.close(200, "bye")
    to_server, to_client = open_pair.exchange()
    assert to_server == [ConnectionClosed(200, "bye")]
    assert to_client == [ConnectionClosed(by_peer=False)]
    assert open_pair.server.closed()
    assert open_pair.client.closed()
    assert open_pair.client.next_deadline() is None
    assert open_pair.server.receive_eof(2.0) == []


def test_eof_is_reported_once(open_pair: Any) -> None:
    (event,) = open_pair.server.receive_eof(2.0)
    assert (event.reply_code, event.by_peer) == (0, True)
    assert open_pair.server.receive_eof(2.0) == []


def test_heartbeats(make_pair: Any) -> None:
    pair = make_pair(ServerOptions(heartbeat=10))
    pair.exchange(0.0)
    assert pair.server.next_deadline() == 2.5
    assert pair.server.handle_timeout(2.5) == []
    assert pair.server.data_to_send() == []  # open-ok was written since the beginning
    for moment in (5.0, 10.0, 15.0, 20.0, 25.0):
        assert pair.server.handle_timeout(moment) == []
        assert pair.server.data_to_send() == [b"\x08\0\0\0\0\0\0\xce"]
    assert pair.client.receive_data(b"\x08\0\0\0\0\0\0\xce", 10.0) == []
    (event,) = pair.server.handle_timeout(30.0)
    assert "heartbeat" in event.reply_text
    assert pair.server.closed()
    assert pair.client.handle_timeout(29.0) == []


def test_no_heartbeat_is_sent_where_something_else_was() -> None:
    beats = Heartbeats(2)
    beats.start(10, 0.0)
    assert beats.due(2.5)
    beats.sent += 1  # the heartbeat
    beats.sent += 1  # and something else
    assert not beats.due(7.5)
    assert beats.due(10.0)


def test_a_peer_never_waits_for_a_whole_interval() -> None:
    """Whenever something was sent: amqp-client.js closes a connection after one in which nothing came."""
    for tenths in range(1, 200):
        beats = Heartbeats(2)
        beats.start(10, 0.0)
        last, longest = 0.0, 0.0
        for now in (step / 10 for step in range(1, 400)):
            if beats.due(now) or now == tenths / 10:
                beats.sent += 1
                longest = max(longest, now - last)
                last = now
        assert longest <= 7.6, f"something else after {tenths / 10} s"


def test_deadlines_of_handshake_and_close(open_pair: Any) -> None:
    server = ServerConnection(ServerOptions(handshake_timeout=3), 1.0)
    assert server.next_deadline() == 4.0
    assert [event.reply_text for event in server.handle_timeout(4.0)] == ["handshake timeout"]
    open_pair.server.close(320, "shutdown")
    assert open_pair.server.next_deadline() == 6.0
    (event,) = open_pair.server.handle_timeout(6.0)
    assert event.by_peer is False
    assert open_pair.server.closed()


def test_local_mistakes(open_pair: Any) -> None:
    with pytest.raises(LocalProtocolError):
        open_pair.client.open_channel(1)
    with pytest.raises(LocalProtocolError):
        open_pair.client.open_channel(5000)
    with pytest.raises(LocalProtocolError):
        open_pair.server.send_deliveries(2, "t", 1, False, BATCHES[0])
    with pytest.raises(LocalProtocolError):
        open_pair.client.send_method(1, basic.Publish())


envelopes = [Envelope(key=key, exchange="x", priority=priority) for key in ("a", "bb") for priority in (0, 3)]
chunks = some.lists(
    some.tuples(
        some.sampled_from(envelopes),
        some.lists(some.binary(max_size=6) | some.just(b"\x01\0\1" * 9), max_size=25),
    ),
    max_size=6,
)


@settings(max_examples=examples(80), deadline=None)
@given(chunks, some.lists(some.integers(1, 200), min_size=1, max_size=8), some.booleans())
def test_any_chunking_gives_the_same_messages(
    chunk: list[tuple[Envelope, list[bytes]]], cuts: list[int], deliver: bool
) -> None:
    server, client = ServerConnection(ServerOptions(), 0.0), ClientConnection(ClientOptions(), 0.0)
    for _ in range(6):
        for event in server.receive_data(b"".join(client.data_to_send()), 0.0):
            if isinstance(event, LoginRequested):
                server.accept_login()
            elif isinstance(event, OpenRequested):
                server.accept_open()
        if any(
            isinstance(event, ConnectionOpened)
            for event in client.receive_data(b"".join(server.data_to_send()), 0.0)
        ):
            client.open_channel(1)
    tag = 1
    for envelope, bodies in chunk:
        if deliver:
            server.send_deliveries(1, "c", tag, False, batch_of(bodies, envelope))
        else:
            client.publish(1, batch_of(bodies, envelope))
        tag += len(bodies)
    sender, receiver = (server, client) if deliver else (client, server)
    stream = b"".join(sender.data_to_send())
    events: list[Any] = []
    position = turn = 0
    while position < len(stream):
        size = cuts[turn % len(cuts)]
        events += receiver.receive_data(stream[position : position + size], 0.0)
        position += size
        turn += 1
    seen = [
        (event.batch.envelope.key, event.batch.envelope.priority, body)
        for event in events
        for body in event.batch.bodies
    ]
    assert seen == [(envelope.key, envelope.priority, body) for envelope, bodies in chunk for body in bodies]
    assert all(event.batch.size == sum(map(len, event.batch.bodies)) for event in events)
    if deliver:
        tags = [event.first_delivery_tag + place for event in events for place in range(len(event.batch))]
        assert tags == list(range(1, tag))


@pytest.mark.slow
def test_byte_by_byte_large_body_is_linear(open_pair: Any) -> None:
    open_pair.client.publish(1, batch_of([b"z" * 300000], KEY))
    stream = b"".join(open_pair.client.data_to_send())
    events: list[Event] = []
    for place in range(len(stream)):
        events += open_pair.server.receive_data(stream[place : place + 1], 0.0)
    assert bodies_of(events) == [b"z" * 300000]


def test_a_batch_is_one_event_with_one_envelope(open_pair: Any) -> None:
    open_pair.client.publish(1, Batch([b"x" * 50] * 5000, 250000, KEY))
    events, _ = open_pair.exchange()
    assert len(events) == 1
    assert len(events[0].batch) == 5000


@pytest.mark.parametrize("end", [lambda side: side.close(320, "enough"), lambda side: side.receive_eof(1.0)])
def test_a_body_that_will_never_be_complete_is_not_kept(open_pair: Any, end: Any) -> None:
    part = b"\x03\0\1\0\0\x03\xe8" + bytes(1000) + b"\xce"
    open_pair.client.publish(1, batch_of([bytes(5000)], Envelope(key="k")))
    octets = b"".join(map(bytes, open_pair.client.data_to_send()))
    method_and_header = octets[: octets.index(b"\xce", octets.index(b"\xce") + 1) + 1]
    open_pair.server.receive_data(method_and_header + part, 0.0)
    assert open_pair.server.incomplete_bytes() == 1000
    end(open_pair.server)
    assert open_pair.server.incomplete_bytes() == 0
    assert not open_pair.server.channels[1].parts
