"""A chunk that is one packet, or PUBACK alone: what is read in the short way is what the parser reads otherwise."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from plugins.protocols.mqtt.encoder import encode
from plugins.protocols.mqtt.errors import PacketFault
from plugins.protocols.mqtt.packets import Acknowledgement, Publish
from plugins.protocols.mqtt.parser import VIEW_FROM, Parser
from plugins.protocols.mqtt.properties import Properties
from plugins.protocols.mqtt.publish_reader import SharedHeads
from tests.plugins.protocols.mqtt.conversation import fresh, opened, plain, publish
from tests.plugins.protocols.mqtt.strategies import packets_to
from tests.seeds import examples

BOTH = [4, 5]
NAMED = Properties(content_type="text/plain", user_properties=(("a", "b"),))


def _alone(parser: Parser, data: bytes) -> list[object]:
    """What the short ways return for a chunk, in the form of ``plain``."""
    message = parser.read_publish(data)
    ids: Sequence[int] = parser.read_pubacks(data)
    assert message is None or not ids
    if message is not None:
        return plain([message])
    return [("PUBACK", one, 0, Properties()) for one in ids]


@pytest.mark.slow
@pytest.mark.parametrize("version", BOTH)
@given(data=some.data())
@settings(max_examples=examples(100), deadline=None)
def test_the_short_way_reads_what_the_long_one_does_or_nothing(version: int, data: some.DataObject) -> None:
    """Whole packets, several, cut ones, and such with one byte changed."""
    packets = data.draw(some.lists(packets_to("server", version), min_size=1, max_size=2))
    octets = bytearray(b"".join([encode(packet, version) for packet in packets]))
    if data.draw(some.booleans()):
        octets[data.draw(some.integers(0, len(octets) - 1))] = data.draw(some.integers(0, 255))
    if data.draw(some.booleans()):
        del octets[data.draw(some.integers(1, len(octets))) :]
    chunk = bytes(octets)
    short, long = opened("server", version), opened("server", version)
    # So that the heads are known.
    for parser in (short, long):
        for packet in packets:
            if isinstance(packet, Publish):
                parser.receive_data(encode(packet, version))
    found = _alone(short, chunk)
    if found:
        assert found == plain(long.receive_data(chunk))
        assert not long.rest
    assert not short.rest


@pytest.mark.parametrize("version", BOTH)
@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("size", [0, 1, 117, 118, 119, 300, 16_000])
@pytest.mark.parametrize("properties", [Properties(), NAMED])
def test_a_message_whose_topic_is_known_is_read(
    version: int, qos: int, size: int, properties: Properties
) -> None:
    """Also where the remaining length takes two bytes, from 128 on."""
    if version == 4:
        properties = Properties()
    parser = opened("server", version)
    number = 7 if qos else 0
    first = publish("a/b", b"first", properties, qos=qos, id=number)
    assert parser.read_publish(encode(first, version)) is None, "its topic is not known yet"
    parser.receive_data(encode(first, version))
    flags = {"retain": True, "dup": qos > 0}
    message = publish("a/b", b"x" * size, properties, qos=qos, id=number and 0xFFFF, **flags)
    found = parser.read_publish(encode(message, version))
    assert found is not None
    assert plain([found]) == plain([message])
    assert (found.size, found.width) == (size, size)


@pytest.mark.parametrize("count", [1, 2, 3, 50])
def test_acknowledgements_are_read(count: int) -> None:
    ids = [(1 + 300 * number) % 0xFFFF for number in range(count)]
    chunk = b"".join(b"\x40\x02" + number.to_bytes(2, "big") for number in ids)
    parser = opened("server", 5)
    assert list(parser.read_pubacks(chunk)) == ids
    assert plain(parser.receive_data(chunk)) == [("PUBACK", one, 0, Properties()) for one in ids]


_PUBACK = b"\x40\x02\x00\x07"
_MESSAGE = encode(publish("t", b"body", qos=1, id=7), 5)


@pytest.mark.parametrize(
    "chunk",
    [
        b"\x40\x02\x00\x00",  # the identifier 0
        _PUBACK + b"\x40\x02\x00\x00",
        b"\x40\x03\x00\x07\x10" + b"\x40\x01\x00",  # a reason code, and eight bytes
        b"\x40\x03\x00\x07",  # not complete
        _PUBACK + b"\x50\x02\x00\x07",  # PUBREC
        b"\x50\x02\x00\x07",
        _PUBACK[:3],
        _PUBACK + _PUBACK[:2],
        b"\x41\x02\x00\x07",  # the flags
        encode(publish("t", b"body", qos=1, id=7), 5)[:-3] + b"\x00",
        _MESSAGE[:-1],
        _MESSAGE[:5],
        _MESSAGE + b"\x00",
        _MESSAGE * 2,
        _MESSAGE.replace(b"\x00\x07", b"\x00\x00"),
        _MESSAGE.replace(b"\x00\x01t", b"\x00\x70t"),  # the topic is longer than the packet
        encode(publish("another", b"body", qos=1, id=7), 5),
        encode(publish("t", b"x" * VIEW_FROM, qos=1, id=7), 5),
        encode(publish("t", b"x" * 999, qos=1, id=7), 5),  # larger than allowed
        b"\x36" + _MESSAGE[1:],  # QoS 3
        b"\xc0\x00",
    ],
)
def test_what_is_something_else_is_left_unread(chunk: bytes) -> None:
    parser = opened("server", 5, max_packet_bytes=999)
    parser.receive_data(_MESSAGE)
    assert not _alone(parser, chunk)
    assert not parser.rest


@pytest.mark.parametrize("chunk", [_PUBACK, _MESSAGE])
def test_before_connect_nothing_is_read(chunk: bytes) -> None:
    parser = fresh("server", 5, shared_heads=(shared := SharedHeads()))
    opened("server", 5, shared_heads=shared).receive_data(_MESSAGE)
    assert not _alone(parser, chunk)
    with pytest.raises(PacketFault):
        parser.receive_data(chunk)


@pytest.mark.parametrize("chunk", [_PUBACK, _MESSAGE])
def test_in_the_middle_of_a_packet_nothing_is_read(chunk: bytes) -> None:
    parser = opened("server", 5)
    parser.receive_data(_MESSAGE)
    # A payload may look like a packet.
    begun = encode(publish("t", b"1234" + chunk, qos=1, id=9), 5)[: -len(chunk)]
    assert not parser.receive_data(begun)
    assert not _alone(parser, chunk)
    (whole,) = parser.receive_data(chunk)
    assert isinstance(whole, Publish)
    assert bytes(whole.payloads[0]) == b"1234" + chunk


def test_a_topic_that_another_connection_knows_is_known() -> None:
    shared = SharedHeads()
    opened("server", 5, shared_heads=shared).receive_data(_MESSAGE)
    found = opened("server", 5, shared_heads=shared).read_publish(_MESSAGE)
    assert found is not None
    assert plain([found]) == plain([publish("t", b"body", qos=1, id=7)])


def test_an_alias_with_another_topic_is_not_mistaken() -> None:
    parser = opened("server", 5, topic_alias_maximum=1)
    alias = Properties(topic_alias=1)
    short = encode(publish("", b"x", alias), 5)
    for topic in ("first", "second"):
        parser.receive_data(encode(publish(topic, b"x", alias), 5))
        (known,) = parser.receive_data(short)
        again = parser.read_publish(short)
        assert isinstance(known, Publish)
        assert again is not None
        assert known.topic == again.topic == topic


def test_a_refusal_of_the_peer_is_no_plain_acknowledgement() -> None:
    parser = opened("server", 5)
    (refusal,) = parser.receive_data(b"\x40\x03\x00\x07\x83")
    assert isinstance(refusal, Acknowledgement)
    assert refusal.reason_code == 0x83
    assert not parser.read_pubacks(b"\x40\x03\x00\x07\x83")
