"""PUBLISH packets that differ in their topics are read together, and are what they are one by one."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from kernel.contracts.message import Buffer
from plugins.protocols.mqtt import keyed_publishes, publish_reader
from plugins.protocols.mqtt.encoder import encode
from plugins.protocols.mqtt.errors import PacketFault
from plugins.protocols.mqtt.fields import decode_text
from plugins.protocols.mqtt.packets import Packet, Pingreq, Publish, PublishUnderTopics
from plugins.protocols.mqtt.parser import Parser
from plugins.protocols.mqtt.properties import NO_PROPERTIES, Properties
from plugins.protocols.mqtt.publishing import publish_under_topics
from plugins.protocols.mqtt.reason_codes import ReasonCode
from plugins.protocols.mqtt.topics import are_plain, name_fault, swap_all, topic_to_key
from tests.notes import for_each
from tests.plugins.protocols.mqtt.conversation import opened, plain, publish
from tests.plugins.protocols.mqtt.strategies import names
from tests.seeds import examples

BOTH = [4, 5]

# Written by hand: fixed header, length of the topic, topic, length of the properties (MQTT 5.0), payload.
EQUAL = {
    4: "".join(f"30 08 0003 '{topic}' 'pay'" for topic in ("t/1", "t/2", "u/3", "t.4", "u/5") * 2),
    5: "".join(f"30 09 0003 '{topic}' 00 'pay'" for topic in ("t/1", "t/2", "u/3", "t.4", "u/5") * 2),
}
MIXED = {
    4: "30 04 0001 'a' 'x'  30 03 0001 'b'  30 06 0002 'é' 'xy'" + "30 04 0002 'cc'  30 05 0001 'd' 'yz'" * 4,
    5: "30 05 0001 'a' 00 'x'  30 04 0001 'b' 00  30 07 0002 'é' 00 'xy'"
    + "30 05 0002 'cc' 00  30 06 0001 'd' 00 'yz'" * 4,
}


def octets_of(text: str) -> bytes:
    """Return bytes from hexadecimal; what is between apostrophes is text."""
    data = b""
    for number, piece in enumerate(text.split("'")):
        data += piece.encode() if number % 2 else bytes.fromhex(piece)
    return data


def accepting(version: int, **options: Any) -> Parser:
    parser = opened("server", version, **options)
    parser.accept_keyed()
    return parser


def feed(version: int, count: int = 200, size: int = 100) -> bytes:
    return b"".join([encode(publish(f"t/{number:06}", b"x" * size), version) for number in range(count)])


@for_each("version", BOTH)
def test_bytes_of_packets_of_one_size_are_read(version: int) -> None:
    first, rest = accepting(version).receive_data(octets_of(EQUAL[version]))
    assert plain([first]) == plain([publish("t/1", b"pay")])
    topics = [b"t/2", b"u/3", b"t.4", b"u/5", b"t/1", b"t/2", b"u/3", b"t.4", b"u/5"]
    assert rest == PublishUnderTopics(topics, [b"pay"] * 9, 27, 3)


@for_each("version", BOTH)
def test_bytes_of_packets_of_mixed_sizes_are_read(version: int) -> None:
    first, rest = accepting(version).receive_data(octets_of(MIXED[version]))
    assert plain([first]) == plain([publish("a", b"x")])
    topics = [b"b", b"\xc3\xa9", *[b"cc", b"d"] * 4]
    assert rest == PublishUnderTopics(topics, [b"", b"xy", *[b"", b"yz"] * 4], 10, 0)


@for_each("version", BOTH)
def test_bytes_of_packets_are_written(version: int) -> None:
    equal = publish_under_topics(version, [b"t/1", b"t/2", b"u/3", b"t.4", b"u/5"] * 2, [b"pay"] * 10, 3)
    assert equal.hex(" ") == octets_of(EQUAL[version]).hex(" ")
    topics = [b"a", b"b", b"\xc3\xa9", *[b"cc", b"d"] * 4]
    mixed = publish_under_topics(version, topics, [b"x", b"", b"xy", *[b"", b"yz"] * 4], 0)
    assert mixed.hex(" ") == octets_of(MIXED[version]).hex(" ")


@given(
    some.sampled_from(BOTH), some.lists(some.tuples(names, some.integers(0, 200)), min_size=1, max_size=20)
)
def test_packets_are_written_as_they_are_one_by_one(version: int, shapes: list[tuple[str, int]]) -> None:
    topics, payloads = [topic.encode() for topic, _ in shapes], [bytes(size) for _, size in shapes]
    width = len(payloads[0]) if len(set(map(len, payloads))) == 1 else 0
    one_by_one = [encode(publish(topic, bytes(size)), version) for topic, size in shapes]
    assert publish_under_topics(version, topics, payloads, width) == b"".join(one_by_one)
    assert publish_under_topics(version, topics, payloads, 0) == b"".join(one_by_one)


TOPICS = ["t/1", "t/2", "u/3", "t/22", "é/1", "$SYS/1", "a.b/c", "x" * 130]
PROPERTIES = [
    Properties(content_type="x"),
    Properties(topic_alias=1),
    Properties(user_properties=(("a", "b"),)),
]
WRONG = {
    4: [
        "30 05 0003 't/+'",
        "30 04 0002 '#t'",
        "30 04 0002 c328",
        "30 05 0003 'a' 00 'b'",
        "30 02 0000",
        "30 04 0003 't/'",
        "30 01 00",
        "36 05 0003 't/1'",
        "38 05 0003 't/1'",
        "32 07 0003 't/1' 0000",
        "00 00",
    ],
    5: [
        "30 06 0003 't/+' 00",
        "30 05 0002 '#t' 00",
        "30 05 0002 c328 00",
        "30 06 0003 'a' 00 'b' 00",
        "30 03 0000 00",
        "30 05 0003 't/1'",
        "30 06 0003 't/1' 01",
        "30 8600 0003 't/1' 00",
        "f1 00",
    ],
}
"""By version: what ends the connection, if there is no more behind it."""


def steps_of(version: int) -> some.SearchStrategy[list[bytes]]:
    """Packets, most of them with QoS 0 and a topic that the one before does not have; few of them wrong."""

    def make(topic: str, size: int, kind: int, properties: Properties) -> list[bytes]:
        if kind == 0:
            return [encode(publish(topic, bytes(size), qos=1, id=7), version)]
        if kind == 1:
            return [encode(publish(topic, bytes(size), retain=True), version)]
        if kind == 2:
            return [
                encode(publish(topic, bytes(size), properties if version == 5 else NO_PROPERTIES), version)
            ]
        if kind == 3:
            return [encode(Pingreq(), version)]
        if kind == 4:
            return [encode(publish(topic, bytes(size)), version)] * 5
        return [encode(publish(topic, bytes((kind,)) * size), version)]

    sizes = some.sampled_from([0, 3, 3, 3, 3, 3, 4, 122, 5000])
    one = some.builds(
        make, some.sampled_from(TOPICS), sizes, some.integers(0, 60), some.sampled_from(PROPERTIES)
    )
    rows = some.lists(
        some.lists(one, min_size=1, max_size=30)
        | some.builds(lambda size: [[one] for one in _row(version, size)], some.integers(0, 9)),
        max_size=6,
    )
    wrong = some.lists(some.tuples(some.integers(0, 100), some.sampled_from(WRONG[version])), max_size=1)

    def join(parts: list[list[list[bytes]]], faults: list[tuple[int, str]]) -> list[bytes]:
        packets = [octets for part in parts for step in part for octets in step]
        for at, text in faults:
            packets.insert(at % (len(packets) + 1), octets_of(text))
        return packets

    return some.builds(join, rows, wrong)


def _row(version: int, size: int) -> list[bytes]:
    """A long row of packets of one size, so that they are cut at equal distances."""
    return [encode(publish(f"row/{at:02}", bytes((at,)) * size), version) for at in range(70)]


def read(parser: Parser, chunks: Sequence[bytes]) -> tuple[list[Any], Any]:
    """Return the packets, and what is wrong with the one behind them."""
    found: list[Packet] = []
    try:
        for chunk in chunks:
            found += parser.receive_data(chunk)
    except PacketFault as fault:
        return plain([*found, *fault.packets]), (fault.reason_code, str(fault))
    return plain(found), bytes(parser.rest)


def chunks_of(data: bytes, cuts: list[int]) -> list[bytes]:
    borders = sorted({0, len(data), *(at % (len(data) + 1) for at in cuts)})
    return [data[start:stop] for start, stop in pairwise(borders)]


CUTS = some.lists(some.integers(0, 1 << 20), max_size=4)


@settings(max_examples=examples(300), deadline=None)
@given(
    some.data(),
    some.sampled_from(BOTH),
    CUTS,
    some.sampled_from([0, 32]),
    some.sampled_from([1, 8]),
    some.sampled_from([140, 5_100]),
)
def test_they_are_what_they_are_one_by_one(
    data: some.DataObject, version: int, cuts: list[int], left_alone: int, fewest: int, maximum: int
) -> None:
    packets = data.draw(steps_of(version))
    options = {"topic_alias_maximum": 5, "max_packet_bytes": maximum}
    expected = read(opened("server", version, **options), packets)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(publish_reader, "_LEFT_ALONE", left_alone)
        patch.setattr(publish_reader, "_FEWEST", fewest)
        assert read(accepting(version, **options), chunks_of(b"".join(packets), cuts)) == expected


@settings(max_examples=examples(300), deadline=None)
@given(some.sampled_from(BOTH), some.integers(0, 1 << 20), some.integers(0, 255), CUTS)
def test_a_wrong_byte_is_found_where_it_is_found_one_by_one(
    version: int, at: int, byte: int, cuts: list[int]
) -> None:
    """The same messages before it, and the same fault."""
    data = bytearray(feed(version, size=20))
    data[at % len(data)] = byte
    chunks = chunks_of(bytes(data), cuts)
    assert read(accepting(version), chunks) == read(opened("server", version), chunks)


@for_each("version", BOTH)
def test_a_feed_is_one_object_of_each_read(version: int) -> None:
    parser = accepting(version)
    for _ in range(3):
        first, rest = parser.receive_data(feed(version))
        assert isinstance(first, Publish)
        assert isinstance(rest, PublishUnderTopics)
        assert len(rest.topics) == 199


@for_each("version", BOTH)
def test_a_feed_of_mixed_sizes_is_one_object_of_each_read(version: int) -> None:
    octets = b"".join([encode(publish("t" * (at % 7 + 1), bytes(at % 5 * 50)), version) for at in range(200)])
    _, rest = accepting(version).receive_data(octets)
    assert isinstance(rest, PublishUnderTopics)
    assert len(rest.topics) == 199


def test_messages_of_one_topic_stay_together() -> None:
    octets = b"".join([encode(publish(f"t/{at:02}", b"x" * 9), 4) * 30 for at in range(40)])
    packets = accepting(4).receive_data(octets)
    assert len(packets) <= 42
    assert sum(isinstance(packet, PublishUnderTopics) for packet in packets) <= 1


def test_a_message_of_a_long_row_of_one_topic_is_not_read_with_others() -> None:
    rows = [[f"t/{at:02}"] + [f"u/{at:02}"] * 30 for at in range(40)]
    octets = b"".join([encode(publish(topic, b"x" * 9), 4) for row in rows for topic in row])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(publish_reader, "_LEFT_ALONE", 0)
        packets = accepting(4).receive_data(octets)
    assert len(packets) == 80
    assert {type(packet) for packet in packets} == {Publish}


def test_a_long_row_of_one_topic_behind_others_is_one_object() -> None:
    topics = [f"t/{at}" for at in range(5)] + ["u/1"] * 500
    packets = accepting(4).receive_data(b"".join([encode(publish(topic, b"x"), 4) for topic in topics]))
    assert [message[1] for message in plain(packets)] == topics
    last = packets[-1]
    assert isinstance(last, Publish)
    assert len(last.payloads) > 450


@for_each("version", BOTH)
def test_a_packet_that_is_too_large_is_found_among_them(version: int) -> None:
    packets = [encode(publish(f"t/{at}", bytes(90 if at == 15 else 30)), version) for at in range(10, 30)]
    found = read(accepting(version, max_packet_bytes=90), [b"".join(packets)])
    assert found == read(opened("server", version, max_packet_bytes=90), packets)
    assert found[1][0] == ReasonCode.PACKET_TOO_LARGE


def test_what_is_large_is_read_alone() -> None:
    packets = accepting(4).receive_data(feed(4, 20, size=keyed_publishes.LARGEST_PACKET))
    assert {type(packet) for packet in packets} == {Publish}


def test_few_packets_are_read_one_by_one() -> None:
    for count in range(1, publish_reader._FEWEST + 1):
        packets = accepting(4).receive_data(feed(4, count))
        assert [type(packet) for packet in packets] == [Publish] * count


def test_who_has_not_said_so_gets_one_object_for_each_topic() -> None:
    packets = opened("server", 4).receive_data(feed(4))
    assert [type(packet) for packet in packets] == [Publish] * 200


@for_each("every", [5, 9, 20, 100])
def test_what_is_read_in_vain_is_bounded(every: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A peer that sends topics of the broker's own in between does not have the rest read again and again."""
    looked_at = 0

    def counting(topics: Sequence[bytes]) -> bool:
        nonlocal looked_at
        looked_at += len(topics)
        return are_plain(topics)

    monkeypatch.setattr(keyed_publishes, "are_plain", counting)
    topics = [f"{'$' if at % every == 1 else 't'}/{at:06}" for at in range(5000)]
    packets = accepting(4).receive_data(b"".join([encode(publish(topic, b"x"), 4) for topic in topics]))
    assert [message[1] for message in plain(packets)] == topics
    assert looked_at < 10 * len(topics)


# Topics


@given(some.lists(names, min_size=1))
def test_topics_and_keys_are_swapped_as_they_are_one_by_one(topics: list[str]) -> None:
    keys = swap_all([topic.encode() for topic in topics])
    assert keys == [topic_to_key(topic).encode() for topic in topics]
    assert swap_all(keys) == [topic.encode() for topic in topics]


def _is_plain(octets: bytes) -> bool:
    try:
        topic = decode_text(octets, "PUBLISH", "the topic")
    except PacketFault:
        return False
    return name_fault(topic) is None and not topic.startswith("$") and len(octets) <= 65_535


ODD = [
    b"",
    b"$a",
    b"a$",
    b"+",
    b"a#",
    b"a\0b",
    b"\0",
    b"\xff",
    b"\xc3",
    b"\xa9",
    b"\xed\xa0\x80",
    b"a" * 65_536,
]


@given(
    some.lists(some.sampled_from([b"a", "é".encode(), b"t/1", *ODD]) | some.binary(max_size=3), max_size=4)
)
def test_topics_are_plain_if_each_of_them_is(topics: list[Buffer]) -> None:
    octets = [bytes(topic) for topic in topics]
    assert are_plain(octets) == all(map(_is_plain, octets))
