"""Encodes packets, for both versions.

The encoder refuses, with ``LocalProtocolError``, what MQTT cannot carry: text that is too long, a packet
identifier 0, properties that the packet must not have.  It does not judge what the owner of the conversation
has to know, such as whether a CONNACK may be sent now.

``publishing`` has what is quicker for many messages or acknowledgements.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kernel.contracts.errors import LocalProtocolError
from plugins.protocols.mqtt import fields
from plugins.protocols.mqtt.packet_types import FLAGS, PacketType
from plugins.protocols.mqtt.packets import (
    Acknowledgement,
    Auth,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
    Publish,
    Suback,
    Subscribe,
    Unsuback,
    Unsubscribe,
    Will,
)
from plugins.protocols.mqtt.properties import NO_PROPERTIES, WILL
from plugins.protocols.mqtt.publishing import PublishPrefix, acknowledge, publish_batch
from plugins.protocols.mqtt.reason_codes import REASONS_OF, ReasonCode, return_code
from plugins.protocols.mqtt.topics import filter_fault, join_share, name_fault, split_share

NAMES = {3: "MQIsdp", 4: "MQTT", 5: "MQTT"}
"""The protocol names of the levels (3.1.2.1)."""


def encode(packet: Packet, version: int) -> bytes:
    """Return the bytes of a packet; ``version``: 4 or 5.

    Properties are ignored with version 4.  Raises ``LocalProtocolError`` for what MQTT cannot carry.
    """
    return _ENCODERS[type(packet)](packet, version)


def _packet(kind: PacketType, *pieces: bytes) -> bytes:
    body = b"".join(pieces)
    return bytes((kind << 4 | FLAGS[kind],)) + fields.variable(len(body)) + body


def _id(value: int) -> bytes:
    # [MQTT-2.2.1-3] and [MQTT-2.2.1-4]
    if not value:
        raise LocalProtocolError("a packet identifier is a number from 1 to 65535")
    return fields.two_bytes(value, "a packet identifier")


def _properties(packet: Any, version: int) -> bytes:
    return fields.encode_properties(packet.properties, packet.kind) if version == 5 else b""


def _reason(packet: Any) -> bytes:
    return _reasons(packet.kind, (packet.reason_code,))


def _reasons(kind: PacketType, codes: tuple[int, ...]) -> bytes:
    for code in codes:
        if code not in REASONS_OF[kind]:
            raise LocalProtocolError(f"reason code {code:#04x} is not allowed in {kind.name}")
    return bytes(codes)


def _connect(packet: Connect, version: int) -> bytes:
    if packet.version != version:
        raise LocalProtocolError(f"a CONNECT of level {packet.level} in a conversation of version {version}")
    if packet.level not in NAMES:
        raise LocalProtocolError(f"protocol level {packet.level} is not known")
    # [MQTT-3.1.2-22] of MQTT 3.1.1.
    if version == 4 and packet.password is not None and packet.user_name is None:
        raise LocalProtocolError("MQTT 3.1.1 allows no password without a user name")
    if version == 4 and not packet.client_id and not packet.clean_start:
        # [MQTT-3.1.3-7] of MQTT 3.1.1.
        raise LocalProtocolError("MQTT 3.1.1 allows an empty client identifier only with a clean session")
    flags = packet.clean_start << 1
    payload = [fields.text(packet.client_id, "the client identifier")]
    if packet.will is not None:
        flags |= 0x04 | packet.will.qos << 3 | packet.will.retain << 5
        payload += _will(packet.will, version)
    if packet.user_name is not None:
        flags |= 0x80
        payload.append(fields.text(packet.user_name, "the user name"))
    if packet.password is not None:
        flags |= 0x40
        payload.append(fields.binary(packet.password, "the password"))
    name = fields.text(NAMES[packet.level], "the protocol name")
    keep_alive = fields.two_bytes(packet.keep_alive, "the keep alive")
    levels = bytes((packet.level | packet.is_bridge << 7, flags))
    return _packet(packet.kind, name, levels, keep_alive, _properties(packet, version), *payload)


def _will(will: Will, version: int) -> list[bytes]:
    if not 0 <= will.qos <= 2:
        raise LocalProtocolError(f"CONNECT: a will with QoS {will.qos}")
    fault = name_fault(will.topic)
    if fault is not None:
        raise LocalProtocolError(f"CONNECT: the will topic {fault}")
    return [
        fields.encode_properties(will.properties, WILL) if version == 5 else b"",
        fields.text(will.topic, "the will topic"),
        fields.binary(will.payload, "the will payload"),
    ]


def _connack(packet: Connack, version: int) -> bytes:
    # [MQTT-3.2.2-6]; [MQTT-3.2.2-4] in MQTT 3.1.1.
    if packet.session_present and packet.reason_code:
        raise LocalProtocolError("a CONNACK that refuses the connection has no session")
    present = bytes((packet.session_present,))
    if version == 5:
        return _packet(packet.kind, present, _reason(packet), _properties(packet, version))
    code = return_code(packet.reason_code)
    if code is None:
        raise LocalProtocolError(
            f"MQTT 3.1.1 has no return code for reason code {packet.reason_code:#04x}: "
            "close the connection without a CONNACK"
        )
    return _packet(packet.kind, present, bytes((code,)))


def _publish(packet: Publish, version: int) -> bytes:
    prefix = PublishPrefix(
        version, packet.topic, packet.properties, qos=packet.qos, retain=packet.retain, dup=packet.dup
    )
    return b"".join(publish_batch(prefix, packet.payloads, packet.ids, packet.width))


def _acknowledgement(packet: Acknowledgement, version: int) -> bytes:
    # Without properties all of them have one size, and are made together.
    if version != 5 or packet.properties is NO_PROPERTIES:
        return bytes(acknowledge(packet.kind, packet.ids, packet.reason_code if version == 5 else 0))
    rest = _reason(packet) + _properties(packet, version)
    return b"".join([_packet(packet.kind, _id(one), rest) for one in packet.ids])


def _subscribe(packet: Subscribe, version: int) -> bytes:
    pieces = [_id(packet.id), _properties(packet, version)]
    if not packet.subscriptions:
        raise LocalProtocolError("a SUBSCRIBE has at least one topic filter")
    for one in packet.subscriptions:
        options = one.qos
        if version == 5:
            options |= one.no_local << 2 | one.retain_as_published << 3 | one.retain_handling << 4
        if not (0 <= one.qos <= 2 and 0 <= one.retain_handling <= 2) or (one.no_local and one.share_name):
            raise LocalProtocolError(f"SUBSCRIBE: options that MQTT does not allow: {one}")
        pieces.append(_filter(join_share(one.share_name, one.topic_filter)))
        pieces.append(bytes((options,)))
    return _packet(packet.kind, *pieces)


def _filter(topic_filter: str) -> bytes:
    try:
        fault = filter_fault(split_share(topic_filter)[1])
    except ValueError as error:
        fault = str(error)
    if fault is not None:
        raise LocalProtocolError(f"the topic filter {fault}")
    return fields.text(topic_filter, "the topic filter")


def _suback(packet: Suback, version: int) -> bytes:
    codes = packet.reason_codes
    if version == 4:
        # [MQTT-3.9.3-2] of MQTT 3.1.1: only 0, 1, 2 and 0x80.
        codes = tuple([min(code, ReasonCode.UNSPECIFIED_ERROR) for code in codes])
    if not codes:
        raise LocalProtocolError("a SUBACK has at least one reason code")
    return _packet(packet.kind, _id(packet.id), _properties(packet, version), _reasons(packet.kind, codes))


def _unsubscribe(packet: Unsubscribe, version: int) -> bytes:
    if not packet.topic_filters:
        raise LocalProtocolError("an UNSUBSCRIBE has at least one topic filter")
    filters = [_filter(one) for one in packet.topic_filters]
    return _packet(packet.kind, _id(packet.id), _properties(packet, version), *filters)


def _unsuback(packet: Unsuback, version: int) -> bytes:
    if version == 4:
        return _packet(packet.kind, _id(packet.id))
    if not packet.reason_codes:
        raise LocalProtocolError("an UNSUBACK has at least one reason code")
    codes = _reasons(packet.kind, packet.reason_codes)
    return _packet(packet.kind, _id(packet.id), _properties(packet, version), codes)


def _ping(packet: Pingreq | Pingresp, version: int) -> bytes:
    return _packet(packet.kind)


def _disconnect(packet: Disconnect, version: int) -> bytes:
    if version == 4:
        return _packet(packet.kind)
    return _reason_and_properties(packet)


def _auth(packet: Auth, version: int) -> bytes:
    if version == 4:
        raise LocalProtocolError("MQTT 3.1.1 has no AUTH packet")
    if packet.reason_code and packet.properties.authentication_method is None:
        raise LocalProtocolError("an AUTH has an authentication method")
    return _reason_and_properties(packet)


def _reason_and_properties(packet: Disconnect | Auth) -> bytes:
    code = _reason(packet)
    properties = _properties(packet, 5)
    # What can be left out is left out (3.14.2.1, 3.14.2.2.1, 3.15.2.1).
    if properties != b"\0":
        return _packet(packet.kind, code, properties)
    if packet.reason_code and packet.kind is PacketType.DISCONNECT:
        return _packet(packet.kind, code)
    return _packet(packet.kind, code, properties) if packet.reason_code else _packet(packet.kind)


_ENCODERS: dict[type[Packet], Callable[[Any, int], bytes]] = {
    Connect: _connect,
    Connack: _connack,
    Publish: _publish,
    Acknowledgement: _acknowledgement,
    Subscribe: _subscribe,
    Suback: _suback,
    Unsubscribe: _unsubscribe,
    Unsuback: _unsuback,
    Pingreq: _ping,
    Pingresp: _ping,
    Disconnect: _disconnect,
    Auth: _auth,
}
