"""Messages of several channels whose frames lie between each other, and messages with properties of their own."""

from __future__ import annotations

from struct import pack
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernel.contracts.message import Envelope
from plugins.protocols.amqp091.connection import ClientConnection, ServerConnection
from plugins.protocols.amqp091.content import encode_properties
from plugins.protocols.amqp091.events import Acknowledged, ConnectionClosed, Delivered, Event, Published
from plugins.protocols.amqp091.frames import BODY, HEADER, METHOD
from plugins.protocols.amqp091.methods import basic
from tests.plugins.protocols.amqp091.conftest import Pair
from tests.seeds import examples


def _frame(kind: int, channel: int, payload: bytes) -> bytes:
    return pack(">BHI", kind, channel, len(payload)) + payload + b"\xce"


def _content(channel: int, body: bytes, properties: dict[str, Any], parts: int = 1) -> list[bytes]:
    header = pack(">HHQ", 60, 0, len(body)) + encode_properties(properties)
    size = -(-len(body) // parts) or 1
    pieces = [_frame(BODY, channel, body[start : start + size]) for start in range(0, len(body), size)]
    return [_frame(HEADER, channel, header), *pieces]


def publish(channel: int, key: str, body: bytes, parts: int = 1, **properties: Any) -> list[bytes]:
    method = _frame(METHOD, channel, basic.Publish(exchange="", routing_key=key).encode())
    return [method, *_content(channel, body, properties, parts)]


def deliver(channel: int, tag: int, body: bytes, parts: int = 1, **properties: Any) -> list[bytes]:
    method = basic.Deliver(
        consumer_tag="c", delivery_tag=tag, redelivered=False, exchange="", routing_key="k"
    )
    return [_frame(METHOD, channel, method.encode()), *_content(channel, body, properties, parts)]


@pytest.fixture
def pair() -> Pair:
    """Two sides with three channels open."""
    return _three_channels()


def _three_channels() -> Pair:
    pair = Pair()
    pair.exchange()
    for number in (1, 2, 3):
        pair.client.open_channel(number)
    pair.exchange()
    return pair


def whole(receiver: ServerConnection | ClientConnection, octets: bytes) -> list[Event]:
    return receiver.receive_data(octets, 2.0)


def byte_by_byte(receiver: ServerConnection | ClientConnection, octets: bytes) -> list[Event]:
    return [event for octet in octets for event in receiver.receive_data(bytes((octet,)), 2.0)]


def _messages(events: list[Event]) -> list[tuple[int, bytes, str]]:
    return [
        (event.channel, body, event.batch.envelope.properties.get("correlation_id", ""))
        for event in events
        if isinstance(event, Published | Delivered)
        for body in event.batch.bodies
    ]


@pytest.mark.parametrize("feed", [whole, byte_by_byte])
def test_small_messages_pass_between_the_frames_of_a_large_one(pair: Pair, feed: Any) -> None:
    small = b"".join(publish(2, "small", b"s"))
    large = publish(1, "large", b"abcdefgh", parts=4)
    octets = small + b"".join(part + 2 * small for part in large)
    assert _messages(feed(pair.server, octets)) == (
        [(2, b"s", "")] * 11 + [(1, b"abcdefgh", "")] + [(2, b"s", "")] * 2
    )


@pytest.mark.parametrize("feed", [whole, byte_by_byte])
def test_the_same_at_a_client(pair: Pair, feed: Any) -> None:
    large = deliver(1, 1, b"abcdefgh", parts=4)
    octets = b"".join(deliver(2, 1, b"s"))
    for number, part in enumerate(large):
        octets += part + b"".join(deliver(2, number + 2, b"s"))
    events = feed(pair.client, octets)
    assert _messages(events) == [(2, b"s", "")] * 6 + [(1, b"abcdefgh", ""), (2, b"s", "")]
    batches = [event for event in events if isinstance(event, Delivered) and event.channel == 2]
    assert [
        event.first_delivery_tag + number for event in batches for number in range(len(event.batch))
    ] == list(range(1, 8))


@pytest.mark.parametrize("feed", [whole, byte_by_byte])
@pytest.mark.parametrize(
    "intruder",
    [publish(1, "k", b"x")[0], _frame(METHOD, 1, basic.Ack(delivery_tag=1).encode())],
    ids=["another message", "an acknowledgement"],
)
def test_nothing_else_comes_on_the_channel_itself(pair: Pair, intruder: bytes, feed: Any) -> None:
    known = b"".join(publish(1, "k", b"x")) + _frame(METHOD, 1, basic.Ack(delivery_tag=1).encode())
    events = feed(pair.server, known + b"".join(publish(1, "k", b"abcd", parts=2)[:-1]) + intruder)
    assert isinstance(events[-1], ConnectionClosed)
    assert events[-1].reply_code == 505


@pytest.mark.parametrize("feed", [whole, byte_by_byte])
def test_acknowledgements_pass_between_the_frames_of_another_channel(pair: Pair, feed: Any) -> None:
    acknowledgements = [_frame(METHOD, 2, basic.Ack(delivery_tag=tag).encode()) for tag in range(1, 5)]
    large = publish(1, "large", b"abcdef", parts=2)
    events = feed(pair.server, b"".join(a + b for a, b in zip(large, acknowledgements, strict=True)))
    tags = [
        tag
        for event in events
        if isinstance(event, Acknowledged)
        for tag in range(event.first_delivery_tag, event.last_delivery_tag + 1)
    ]
    assert (tags, _messages(events)) == ([1, 2, 3, 4], [(1, b"abcdef", "")])


@pytest.mark.parametrize("feed", [whole, byte_by_byte])
def test_deliveries_with_properties_of_their_own(pair: Pair, feed: Any) -> None:
    """Equal ones, new ones and old ones again; each comes with its own properties and tag."""
    identifiers = ["", "a", "b", "b", "b", "", "", "a", "a longer one", "a"]
    octets = b"".join(
        b"".join(deliver(1, tag, b"%d" % tag, **({"correlation_id": identifier} if identifier else {})))
        for tag, identifier in enumerate(identifiers, 1)
    )
    events = feed(pair.client, octets)
    assert _messages(events) == [(1, b"%d" % tag, each) for tag, each in enumerate(identifiers, 1)]
    firsts = [event.first_delivery_tag for event in events if isinstance(event, Delivered)]
    assert firsts == sorted(set(firsts))
    assert len({id(event.batch.envelope) for event in events if isinstance(event, Delivered)}) == 4


@pytest.mark.parametrize("feed", [whole, byte_by_byte])
def test_properties_that_are_broken_are_found_out(pair: Pair, feed: Any) -> None:
    good = b"".join(deliver(1, 1, b"x", correlation_id="a"))
    bad = b"".join(deliver(1, 2, b"x", correlation_id="b")).replace(b"\x04\x00\x01b", b"\x04\x00\x09b")
    events = feed(pair.client, good + bad)
    assert _messages(events) == [(1, b"x", "a")]
    assert isinstance(events[-1], ConnectionClosed)
    assert events[-1].reply_code == 502


_published = st.tuples(
    st.integers(1, 3),
    st.sampled_from(["", "e", "orders"]),
    st.one_of(st.sampled_from([b"", b"a", b"\xff"]), st.binary(max_size=12)),
    st.integers(0, 3),
    st.sampled_from([{}, {"delivery_mode": 2}, {"message_id": "m", "priority": 3}]),
    st.sampled_from([b"", b"x", b"\xce" * 9]),
)


@settings(max_examples=examples(60))
@given(st.lists(_published, max_size=12), st.integers(1, 200))
def test_messages_with_keys_of_their_own_are_read_as_they_are_frame_by_frame(
    messages: list[tuple[int, str, bytes, int, dict[str, Any], bytes]], cut: int
) -> None:
    octets = b""
    expected = []
    for channel, exchange, key, flags, properties, body in messages:
        text = key.decode("utf-8", "surrogateescape")
        method = basic.Publish(
            exchange=exchange, routing_key=text, mandatory=bool(flags & 1), immediate=bool(flags & 2)
        )
        octets += _frame(METHOD, channel, method.encode()) + b"".join(_content(channel, body, properties))
        expected.append((channel, flags, exchange, text, properties, body))
    for pieces in (
        [octets],
        [octets[at : at + 1] for at in range(len(octets))],
        [octets[at : at + cut] for at in range(0, len(octets), cut)],
    ):
        server = _three_channels().server
        events: list[Any] = [event for piece in pieces for event in server.receive_data(piece, 2.0)]
        assert [
            (
                event.channel,
                event.mandatory + 2 * event.immediate,
                event.batch.envelope.exchange,
                event.batch.envelope.key,
                _as_sent(event.batch.envelope),
                body,
            )
            for event in events
            for body in event.batch.bodies
        ] == expected


def _as_sent(envelope: Envelope) -> dict[str, Any]:
    named = {"delivery_mode": 2 * envelope.persistent, "priority": envelope.priority}
    return {name: value for name, value in named.items() if value} | dict(envelope.properties)


def test_a_key_that_does_not_fill_its_frame_is_found_out_behind_one_that_does() -> None:
    pair = _three_channels()
    whole(pair.server, b"".join(publish(1, "a", b"1")))
    method = basic.Publish(routing_key="b").encode() + b"\x00"
    octets = _frame(METHOD, 1, method) + b"".join(_content(1, b"2", {}))
    assert [type(event) for event in whole(pair.server, octets)] == [ConnectionClosed]
