"""Parsers in the middle of a connection, and packets in a form that can be compared."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kernel.contracts.protocol import Side
from plugins.protocols.mqtt.packets import Acknowledgement, Packet, Publish, PublishHead, PublishUnderTopics
from plugins.protocols.mqtt.parser import Parser
from plugins.protocols.mqtt.properties import NO_PROPERTIES, Properties

CONNECT = {
    4: bytes.fromhex("10 0d 0004 4d515454 04 02 0000 0001 61"),
    5: bytes.fromhex("10 0e 0004 4d515454 05 02 0000 00 0001 61"),
}
"""A CONNECT of client ``a`` with a clean session, by version."""
CONNACK = {4: bytes.fromhex("20 02 00 00"), 5: bytes.fromhex("20 03 00 00 00")}
"""A CONNACK that accepts, by version."""


def fresh(side: Side, version: int, **options: Any) -> Parser:
    """Return a parser that has read nothing yet."""
    return Parser(side, 0 if side == "server" else version, **options)


def opened(side: Side, version: int, **options: Any) -> Parser:
    """Return a parser that has read the first packet of its peer."""
    parser = fresh(side, version, **options)
    parser.receive_data((CONNECT if side == "server" else CONNACK)[version])
    return parser


def publish(
    topic: str,
    payload: bytes,
    properties: Properties = NO_PROPERTIES,
    *,
    qos: int = 0,
    id: int = 0,  # noqa: A002 - the word of the field
    retain: bool = False,
    dup: bool = False,
) -> Publish:
    """Return a PUBLISH of one message."""
    head = PublishHead(topic=topic, properties=properties)
    return Publish(head, [payload], len(payload), len(payload), qos, [id] if id else [], retain, dup)


def plain(packets: Sequence[Packet]) -> list[Any]:
    """Return packets so that they can be compared: one of each message and of each acknowledgement."""
    found: list[Any] = []
    for packet in packets:
        if isinstance(packet, Publish):
            assert len(packet.ids) == (len(packet.payloads) if packet.qos else 0)
            sizes = [len(payload) for payload in packet.payloads]
            assert packet.size == sum(sizes)
            assert packet.width == (sizes[0] if len(set(sizes)) == 1 else 0)
            for number, payload in enumerate(packet.payloads):
                ids = packet.ids[number] if packet.qos else None
                flags = packet.qos, packet.retain, packet.dup
                found.append(("PUBLISH", packet.topic, packet.properties, *flags, ids, bytes(payload)))
        elif isinstance(packet, PublishUnderTopics):
            sizes = [len(payload) for payload in packet.payloads]
            assert len(packet.topics) == len(sizes)
            assert packet.size == sum(sizes)
            assert packet.width == (sizes[0] if len(set(sizes)) == 1 else 0)
            found += [
                ("PUBLISH", topic.decode(), NO_PROPERTIES, 0, False, False, None, payload)
                for topic, payload in zip(packet.topics, packet.payloads, strict=True)
            ]
        elif isinstance(packet, Acknowledgement):
            found += [(packet.kind.name, one, packet.reason_code, packet.properties) for one in packet.ids]
        else:
            found.append(packet)
    return found
