"""The bytes of every packet are those of the specifications, both ways."""

from __future__ import annotations

import pytest

from plugins.protocols.mqtt.encoder import encode
from plugins.protocols.mqtt.packet_types import PacketType
from plugins.protocols.mqtt.packets import Connack, Connect
from plugins.protocols.mqtt.parser import Parser
from plugins.protocols.mqtt.properties import TABLE, Properties
from plugins.protocols.mqtt.reason_codes import REASONS, REASONS_OF, ReasonCode
from tests.notes import for_each
from tests.plugins.protocols.mqtt.conversation import fresh, opened, plain
from tests.plugins.protocols.mqtt.golden import EXAMPLES, LONGER, Example


def name(example: Example) -> str:
    return f"{example.name} ({example.version})"


def parser(example: Example, side: str) -> Parser:
    first = isinstance(example.packet, (Connect, Connack))
    return (fresh if first else opened)(side, example.version, topic_alias_maximum=10)


@for_each("example", EXAMPLES + LONGER, ids=name)
def test_bytes_are_read(example: Example) -> None:
    for side in example.sides:
        assert plain(parser(example, side).receive_data(example.data)) == plain([example.packet])


@for_each("example", EXAMPLES, ids=name)
def test_packets_are_written(example: Example) -> None:
    assert encode(example.packet, example.version).hex(" ") == example.data.hex(" ")


@for_each("example", EXAMPLES + LONGER, ids=name)
def test_single_bytes_are_read(example: Example) -> None:
    for side in example.sides:
        one = parser(example, side)
        found = [packet for byte in example.data for packet in one.receive_data(bytes((byte,)))]
        assert plain(found) == plain([example.packet])
        assert not one.rest


@for_each("example", EXAMPLES, ids=name)
def test_an_end_in_the_middle_of_a_packet_is_noticed(example: Example) -> None:
    one = parser(example, example.sides[0])
    one.receive_eof()
    one.receive_data(example.data[:-1])
    assert one.rest
    with pytest.raises(Exception, match="in the middle of a packet"):
        one.receive_eof()


def test_every_packet_type_has_an_example_in_each_version() -> None:
    """AUTH is only in MQTT 5.0, and a PINGREQ has the same bytes in both."""
    found = {(example.packet.kind, example.version) for example in EXAMPLES}
    kinds = set(PacketType)
    assert {kind for kind, _ in found} == kinds
    missing = {(kind, version) for kind in kinds for version in (4, 5)} - found
    assert missing == {
        (PacketType.AUTH, 4),
        (PacketType.PINGREQ, 5),
        (PacketType.PINGRESP, 4),
    }


def test_every_property_has_an_example_in_each_packet_that_may_have_it() -> None:
    found = set()
    for example in EXAMPLES:
        packet = example.packet
        will = getattr(packet, "will", None)
        for kind, properties in [
            (packet.kind, getattr(packet, "properties", Properties())),
            (0, will.properties if will else Properties()),
        ]:
            for row in TABLE:
                if getattr(properties, row.field) not in (None, ()):
                    found.add((kind, row.identifier))
    allowed = {(kind, row.identifier) for row in TABLE for kind in row.packets}
    # The packets that have only user properties and a reason string are read and written by the same lines.
    alike = {PacketType.PUBACK, PacketType.PUBREC, PacketType.PUBCOMP, PacketType.UNSUBACK}
    missing = {
        (kind, identifier)
        for kind, identifier in allowed - found
        if kind not in alike and identifier not in (0x1F, 0x26)
    }
    assert not missing


def test_the_tables_agree() -> None:
    assert {row.code for row in REASONS} == set(ReasonCode)
    assert [row.identifier for row in TABLE] == sorted({row.identifier for row in TABLE})
    assert tuple(row.field for row in TABLE) == Properties.__struct_fields__
    assert REASONS_OF[PacketType.DISCONNECT][0] == "Normal disconnection"
    assert REASONS_OF[PacketType.SUBACK][0] == "Granted QoS 0"
