"""What is written is read again: every packet type, both versions, any chunks; and runs equal single packets."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from kernel.contracts.errors import LocalProtocolError
from kernel.contracts.protocol import Side
from plugins.protocols.mqtt.encoder import encode
from plugins.protocols.mqtt.errors import PacketFault
from plugins.protocols.mqtt.packet_types import PacketType
from plugins.protocols.mqtt.packets import (
    Acknowledgement,
    Auth,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Publish,
    PublishHead,
    Suback,
    Subscribe,
    Subscription,
    Unsuback,
    Unsubscribe,
    Will,
)
from plugins.protocols.mqtt.parser import VIEW_FROM
from plugins.protocols.mqtt.properties import NO_PROPERTIES, Properties
from plugins.protocols.mqtt.publish_reader import (
    MOST_HEADS,
    MOST_SHARED_BYTES,
    MOST_SHARED_HEADS,
    SharedHeads,
)
from plugins.protocols.mqtt.publishing import (
    REFERENCE_FROM,
    PublishPrefix,
    acknowledge,
    publish_batch,
    publish_plain,
)
from tests.notes import for_each
from tests.plugins.protocols.mqtt.conversation import fresh, opened, plain, publish
from tests.plugins.protocols.mqtt.strategies import connacks, connects, packets_to
from tests.seeds import examples

BOTH = [4, 5]
SIDES: list[Side] = ["server", "client"]


@pytest.mark.slow
@pytest.mark.parametrize("version", BOTH)
@pytest.mark.parametrize("side", SIDES)
@given(data=some.data())
@settings(max_examples=examples(30), deadline=None)
def test_packets_in_any_chunks(side: Side, version: int, data: some.DataObject) -> None:
    packets = data.draw(some.lists(packets_to(side, version), min_size=1, max_size=4))
    octets = b"".join([encode(packet, version) for packet in packets])
    cuts = data.draw(some.lists(some.integers(0, len(octets)), max_size=5).map(sorted))
    parser = opened(side, version)
    found: list[Packet] = []
    for start, stop in zip([0, *cuts], [*cuts, len(octets)], strict=True):
        found += parser.receive_data(octets[start:stop])
    assert plain(found) == plain(packets)
    assert not parser.rest


@pytest.mark.slow
@pytest.mark.parametrize("version", BOTH)
@given(data=some.data())
@settings(max_examples=examples(25), deadline=None)
def test_first_packets(version: int, data: some.DataObject) -> None:
    for side, strategy in (("server", connects(version)), ("client", connacks(version))):
        packet = data.draw(strategy)
        assert fresh(side, version).receive_data(encode(packet, version)) == [packet]


@pytest.mark.slow
@pytest.mark.parametrize("version", BOTH)
@pytest.mark.parametrize("qos", [0, 1, 2])
@given(data=some.data())
@settings(max_examples=examples(40), deadline=None)
def test_runs_equal_single_packets(version: int, qos: int, data: some.DataObject) -> None:
    """Payloads that look like packets are the danger: a run is cut at equal distances."""
    prefixes = [PublishPrefix(version, topic, qos=qos) for topic in ("a", "b/c")]
    tricky = [prefix.header(5) for prefix in prefixes]
    payloads = some.sampled_from([b"", b"12345", b"67890", b"123456", *tricky, *[one[:5] for one in tricky]])
    runs = some.tuples(some.sampled_from(prefixes), some.lists(payloads, max_size=3), some.integers(1, 50))
    expected, octets, number = [], b"", 0
    for prefix, bodies, times in data.draw(some.lists(runs, max_size=4)):
        topic = "a" if prefix is prefixes[0] else "b/c"
        for body in bodies * times:
            number += 1
            identifier = number if qos else 0
            expected += plain([publish(topic, body, qos=qos, id=identifier)])
            octets += b"".join(publish_batch(prefix, [body], [identifier] if qos else []))
    cut = data.draw(some.integers(0, len(octets)))
    parser = opened("server", version)
    assert plain(parser.receive_data(octets[:cut]) + parser.receive_data(octets[cut:])) == expected


@for_each("version", BOTH)
@for_each("qos", [0, 1])
@for_each("size", [0, 1, 100, 200, 20_000])
def test_a_run_is_one_object(version: int, qos: int, size: int) -> None:
    count = 700 if size < 1000 else 5
    payloads = [bytes((number & 0xFF,)) * size for number in range(count)]
    ids = list(range(1, count + 1)) if qos else []
    prefix = PublishPrefix(version, "sensors/1", qos=qos)
    octets = b"".join(publish_batch(prefix, payloads, ids, size))
    # A width that is not known changes nothing but the speed.
    assert octets == b"".join(publish_batch(prefix, payloads, ids))
    assert octets == b"".join(
        [
            encode(publish("sensors/1", body, qos=qos, id=at + 1 if qos else 0), version)
            for at, body in enumerate(payloads)
        ]
    )
    (packet,) = opened("server", version).receive_data(octets)
    assert isinstance(packet, Publish)
    assert (packet.topic, packet.payloads, packet.ids) == ("sensors/1", payloads, ids)
    assert (packet.size, packet.width) == (size * count, size)


@pytest.mark.parametrize("version", BOTH)
def test_a_single_message_without_properties_is_the_same_packet(version: int) -> None:
    for topic in ("a", "sensors/Köln", "t" * 300):
        for size in (0, 1, 100, 121, 122, 123, 20_000):
            for retain in (False, True):
                expected = encode(publish(topic, bytes(size), retain=retain), version)
                assert publish_plain(version, topic, bytes(size), retain=retain) == expected


@pytest.mark.parametrize("version", BOTH)
def test_mixed_sizes_of_one_topic_are_one_object(version: int) -> None:
    payloads = [bytes(number % 7 * 50) for number in range(500)]
    ids = list(range(1, 501))
    prefix = PublishPrefix(version, "a", qos=1)
    octets = b"".join(publish_batch(prefix, payloads, ids))
    (packet,) = opened("server", version).receive_data(octets)
    assert isinstance(packet, Publish)
    assert (packet.payloads, packet.ids, packet.width) == (payloads, ids, 0)


def test_another_topic_flag_or_property_is_another_object_and_the_head_is_remembered() -> None:
    octets = b"".join(
        [
            encode(publish("a", b"1"), 5) * 3,
            encode(publish("b", b"1"), 5) * 3,
            encode(publish("a", b"1", retain=True), 5) * 3,
            encode(publish("a", b"1", Properties(content_type="x")), 5) * 3,
            encode(publish("a", b"1"), 5) * 3,
        ]
    )
    packets = opened("server", 5).receive_data(octets)
    assert [(packet.topic, packet.retain, len(packet.payloads)) for packet in packets] == [
        ("a", False, 3),
        ("b", False, 3),
        ("a", True, 3),
        ("a", False, 3),
        ("a", False, 3),
    ]
    heads = [packet.head for packet in packets]
    assert heads[0] is heads[2] is heads[4]
    assert len({id(head) for head in heads}) == 3


def test_heads_are_remembered_up_to_a_limit() -> None:
    parser = opened("server", 4)
    topics = [f"t/{number}" for number in range(3 * MOST_HEADS)]
    octets = b"".join([encode(publish(topic, b"x"), 4) for topic in topics])
    assert [packet.topic for packet in parser.receive_data(octets)] == topics
    assert len(parser._publishes._heads) <= MOST_HEADS
    large = [encode(publish(f"{number}" * 30_000, b"x"), 4) for number in range(10)]
    for _ in range(3):
        assert len(parser.receive_data(b"".join(large))) == 10
        assert sum(map(len, parser._publishes._heads)) <= parser._publishes._head_bytes <= 256 * 1024


def test_parsers_may_share_heads_without_properties() -> None:
    """Of both versions, whose octets never mean another topic in the other one."""
    shared = SharedHeads()
    topics = ["a", "ab", "é", "t" * 200]
    heads: dict[int, list[PublishHead]] = {}
    for version in (4, 5, 4, 5):
        parser = opened("server", version, shared_heads=shared, topic_alias_maximum=5)
        own = (
            publish("a", b"x", Properties(content_type="text")),
            publish("a", b"x", Properties(topic_alias=1)),
        )
        packets = parser.receive_data(b"".join([encode(publish(topic, b"x"), version) for topic in topics]))
        assert [packet.topic for packet in packets] == topics
        found = [packet.head for packet in packets]
        assert all(one is other for one, other in zip(heads.setdefault(version, found), found, strict=True))
        if version == 5:
            for packet in own:
                (read,) = parser.receive_data(encode(packet, 5))
                assert read.head.properties == packet.head.properties
    assert len(shared.heads) == 2 * len(topics), "what has properties is its connection's own"


def test_shared_heads_are_remembered_up_to_a_limit() -> None:
    shared = SharedHeads()
    parser = opened("server", 4, shared_heads=shared)
    for first in range(0, MOST_SHARED_HEADS + 5000, 5000):
        topics = [f"t/{number}" for number in range(first, first + 5000)]
        packets = parser.receive_data(b"".join([encode(publish(topic, b"x"), 4) for topic in topics]))
        assert [packet.topic for packet in packets] == topics
        assert len(shared.heads) <= MOST_SHARED_HEADS
    for number in range(100):
        parser.receive_data(encode(publish(f"{number:02}" * 30_000, b"x"), 4))
        assert sum(map(len, shared.heads)) <= MOST_SHARED_BYTES


def test_a_head_with_many_user_properties_is_not_remembered() -> None:
    """Each takes many times its bytes in memory."""
    parser = opened("server", 5)
    octets = encode(publish("a", b"", Properties(user_properties=(("", ""),) * 2000)), 5)
    for _ in range(3):
        (packet,) = parser.receive_data(octets)
        assert len(packet.head.properties.user_properties) == 2000
    assert not parser._publishes._heads


@for_each("kind", [4, 5, 6, 7])
@for_each("reason", [0, 1])
def test_a_run_of_acknowledgements_is_one_object(kind: int, reason: int) -> None:
    code = {4: 0x10, 5: 0x97, 6: 0x92, 7: 0x92}[kind] if reason else 0
    ids = [*range(1, 500), 65535]
    octets = acknowledge(PacketType(kind), ids, code)
    assert octets == b"".join([acknowledge(PacketType(kind), [one], code) for one in ids])
    assert opened("server", 5).receive_data(bytes(octets)) == [Acknowledgement(PacketType(kind), ids, code)]


def test_acknowledgements_of_other_kinds_reasons_and_forms_are_other_objects() -> None:
    kinds = [(PacketType.PUBACK, 0, 20), (PacketType.PUBREC, 0, 1), (PacketType.PUBREC, 0x80, 20)]
    octets = b"".join([acknowledge(kind, range(1, count + 1), code) for kind, code, count in kinds])
    found = opened("client", 5).receive_data(octets + b"\x40\4\0\1\0\0" * 3)
    assert [(packet.kind, packet.reason_code, len(packet.ids)) for packet in found] == [
        *kinds,
        (PacketType.PUBACK, 0, 3),
    ]


def test_topic_aliases() -> None:
    """3.3.2.3.4, with an alias that is set anew while heads with it are remembered."""

    def with_alias(topic: str, alias: int) -> bytes:
        return encode(publish(topic, b"x", Properties(topic_alias=alias)), 5)

    parser = opened("server", 5, topic_alias_maximum=2)
    script = [("a", 1), ("", 1), ("b", 2), ("", 2), ("", 1), ("c", 1), ("", 1), ("a", 1), ("", 1), ("", 2)]
    octets = b"".join([with_alias(*step) for step in script])
    expected = ["a", "a", "b", "b", "a", "c", "c", "a", "a", "b"]
    assert [packet.topic for packet in parser.receive_data(octets)] == expected
    assert [packet.topic for packet in parser.receive_data(octets)] == expected
    with pytest.raises(PacketFault, match="topic alias 1 was never set"):
        opened("server", 5, topic_alias_maximum=2).receive_data(with_alias("", 1))


@for_each("version", BOTH)
@for_each("pieces", [1, 7, 1000])
def test_a_large_payload_in_pieces(version: int, pieces: int) -> None:
    body = bytes(range(256)) * (VIEW_FROM // 128)
    prefix = PublishPrefix(version, "a")
    octets = b"".join(publish_batch(prefix, [b"before", body, b"behind"]))
    parser = opened("server", version)
    step = len(octets) // pieces + 1
    found = []
    for start in range(0, len(octets), step):
        found += parser.receive_data(octets[start : start + step])
    assert [bytes(payload) for packet in found for payload in packet.payloads] == [b"before", body, b"behind"]


def test_large_payloads_are_passed_by_reference() -> None:
    body = bytes(REFERENCE_FROM)
    for qos, ids in ((0, []), (1, [1, 2, 3])):
        prefix = PublishPrefix(5, "a", qos=qos)
        for width in (0, REFERENCE_FROM):
            payloads = [body, body, body if width else b"small"]
            buffers = publish_batch(prefix, payloads, ids, width)
            assert sum(buffer is body for buffer in buffers) == (3 if width else 2)
            found = opened("server", 5).receive_data(b"".join(buffers))
            assert [payload for packet in found for payload in packet.payloads] == payloads


@for_each("qos", [0, 1])
@for_each("maximum", [10, 128, 129, 130, 131, 16_386, 16_387, 16_388, 2_097_156, 2_097_157])
def test_the_largest_payload(qos: int, maximum: int) -> None:
    prefix = PublishPrefix(5, "a", qos=qos)
    largest = prefix.largest_payload(maximum)
    assert len(prefix.header(largest)) + largest <= maximum
    assert len(prefix.header(largest + 1)) + largest + 1 > maximum


def test_no_payload_fits_a_packet_that_is_smaller_than_its_header() -> None:
    assert PublishPrefix(4, "topic").largest_payload(9) == 0
    assert PublishPrefix(4, "topic").largest_payload(8) < 0


# What MQTT cannot carry is refused by the encoder.
SUBSCRIPTION = Subscription("a")
TOO_LONG = "x" * 65_536
UNSENDABLE: list[tuple[Packet, int]] = [
    (publish("", b""), 5),
    (publish("", b"", Properties(topic_alias=1)), 4),
    (publish("a/+", b""), 5),
    (publish("a\0", b""), 5),
    (publish(TOO_LONG, b""), 5),
    (publish("\ud800", b""), 5),
    (publish("a", b"", qos=1, id=65_536), 5),
    (publish("a", b"", qos=3, id=1), 5),
    (publish("a", b"", qos=1), 5),
    (publish("a", b"", dup=True), 5),
    (publish("a", b"", Properties(reason_string="x")), 5),
    (publish("a", b"", Properties(topic_alias=0)), 5),
    (publish("a", b"", Properties(topic_alias=65_536)), 5),
    (publish("a", b"", Properties(message_expiry_interval=1 << 32)), 5),
    (publish("a", b"", Properties(payload_format_indicator=2)), 5),
    (publish("a", b"", Properties(correlation_data=bytes(65_536))), 5),
    (publish("a", b"", Properties(content_type=TOO_LONG)), 5),
    (publish("a", b"", Properties(user_properties=(("\0", ""),))), 5),
    (publish("a", b"", Properties(subscription_identifiers=(0,))), 5),
    (publish("a", b"", Properties(subscription_identifiers=(268_435_456,))), 5),
    (Acknowledgement(PacketType.PUBACK, [0]), 4),
    (Acknowledgement(PacketType.PUBACK, [65_536]), 4),
    (Acknowledgement(PacketType.PUBACK, [1], 0x92), 5),
    (Acknowledgement(PacketType.PUBACK, [0], 0, Properties(reason_string="x")), 5),
    (Subscribe(0, (SUBSCRIPTION,)), 4),
    (Subscribe(1, ()), 4),
    (Subscribe(1, (Subscription("a#"),)), 4),
    (Subscribe(1, (Subscription("a", 3),)), 4),
    (Subscribe(1, (Subscription("a", retain_handling=3),)), 5),
    (Subscribe(1, (Subscription("a", no_local=True, share_name="n"),)), 5),
    (Subscribe(1, (SUBSCRIPTION,), Properties(subscription_identifiers=(1, 2))), 5),
    (Unsubscribe(1, ()), 4),
    (Unsubscribe(1, ("$share/n",)), 4),
    (Suback(1, ()), 4),
    (Suback(1, (3,)), 4),
    (Unsuback(1, ()), 5),
    (Unsuback(1, (1,)), 5),
    (Connack(session_present=True, reason_code=0x87), 4),
    (Connack(reason_code=0x81), 4),
    (Connack(reason_code=0x01), 5),
    (Connect(level=4, password=b"x"), 4),
    (Connect(level=4, clean_start=False), 4),
    (Connect(level=4), 5),
    (Connect(level=6), 4),
    (Connect(keep_alive=65_536), 5),
    (Connect(will=Will("#", b"")), 5),
    (Connect(will=Will("a", b"", 3)), 5),
    (Connect(will=Will("a", b"", properties=Properties(topic_alias=1))), 5),
    (Connect(will=Will("a", bytes(65_536))), 5),
    (Connect(properties=Properties(receive_maximum=0)), 5),
    (Disconnect(0x10), 5),
    (Auth(), 4),
    (Auth(0x18), 5),
    (Auth(0x80), 5),
]


@for_each("packet,version", UNSENDABLE, ids=range(len(UNSENDABLE)))
def test_what_cannot_be_carried_is_refused(packet: Packet, version: int) -> None:
    with pytest.raises(LocalProtocolError):
        encode(packet, version)


def test_a_packet_that_is_too_large_for_mqtt_is_refused() -> None:
    with pytest.raises(LocalProtocolError, match="a packet of MQTT has at most"):
        PublishPrefix(4, "a").header(268_435_455 - 2)
    assert PublishPrefix(4, "a").header(268_435_455 - 3)[:5].hex() == "30ffffff7f"


def test_properties_are_ignored_in_3_1_1_and_codes_of_5_become_its_own() -> None:
    reason = Properties(reason_string="x")
    assert encode(Suback(1, (0x87, 2, 0x97), reason), 4).hex() == "9005000180" + "0280"
    assert encode(Disconnect(0x8E, reason), 4).hex() == "e000"
    assert encode(Unsuback(1, (0x11,), reason), 4).hex() == "b0020001"
    assert encode(Acknowledgement(PacketType.PUBACK, [1], 0x97, reason), 4).hex() == "40020001"
    assert encode(Connack(reason_code=0x9F), 4).hex() == "20020003"
    assert Properties() == NO_PROPERTIES
