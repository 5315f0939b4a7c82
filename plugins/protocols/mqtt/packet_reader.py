"""Reads the packets other than PUBLISH, one by one, with all checks.

Each reader gets the fields of one whole packet behind its fixed header.  All of them raise
``PacketFault`` and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable

from plugins.protocols.mqtt.errors import PacketFault, malformed, protocol_error
from plugins.protocols.mqtt.fields import Fields
from plugins.protocols.mqtt.packet_types import PacketType
from plugins.protocols.mqtt.packets import (
    Acknowledgement,
    AcknowledgementType,
    Auth,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
    Suback,
    Subscribe,
    Subscription,
    Unsuback,
    Unsubscribe,
    Will,
)
from plugins.protocols.mqtt.properties import NO_PROPERTIES, WILL, Properties
from plugins.protocols.mqtt.reason_codes import REASONS_OF, ReasonCode, reason_of_return_code
from plugins.protocols.mqtt.topics import filter_fault, name_fault, split_share

_LEVELS = {(b"MQTT", 5), (b"MQTT", 4), (b"MQIsdp", 3)}
"""Protocol names and levels that are known (3.1.2.1, 3.1.2.2)."""
_BRIDGE_LEVELS = (0x83, 0x84)
"""Those of bridges (``Connect.is_bridge``)."""
_NAMES: dict[int, str] = {kind: kind.name for kind in PacketType}
"""By type: to ask a ``PacketType`` for its name takes two calls."""


def read_packet(kind: PacketType, data: bytes, body: int, stop: int, version: int) -> Packet:
    """Read the packet whose bytes behind the fixed header are from ``body`` to ``stop``."""
    fields = Fields(data, body, stop, _NAMES[kind])
    packet = _READERS[kind](fields, version)
    fields.finish()
    return packet


def read_acknowledgement(
    kind: AcknowledgementType, data: bytes, body: int, stop: int, version: int
) -> Acknowledgement:
    """Read one PUBACK, PUBREC, PUBREL or PUBCOMP."""
    fields = Fields(data, body, stop, _NAMES[kind])
    identifier = fields.packet_id()
    code, properties = _optional_reason(fields, kind, version)
    fields.finish()
    return Acknowledgement(kind, (identifier,), code, properties)


def _reason_code(fields: Fields, kind: PacketType) -> int:
    code = fields.byte("the reason code")
    if code not in REASONS_OF[kind]:
        raise protocol_error(f"{fields.packet}: reason code {code:#04x} is not allowed in it")
    return code


def _optional_reason(fields: Fields, kind: PacketType, version: int) -> tuple[int, Properties]:
    """Read a reason code and properties, which a short packet leaves out (3.4.2.1, 3.14.2.1)."""
    if version != 5 or not fields.left():
        return ReasonCode.SUCCESS, NO_PROPERTIES
    code = _reason_code(fields, kind)
    return code, fields.properties(kind) if fields.left() else NO_PROPERTIES


def _properties(fields: Fields, kind: int, version: int) -> Properties:
    return fields.properties(kind) if version == 5 else NO_PROPERTIES


def _connect(fields: Fields, version: int) -> Connect:
    name = fields.binary("the protocol name")
    level = fields.byte("the protocol level")
    is_bridge = level in _BRIDGE_LEVELS
    level &= 0x7F if is_bridge else 0xFF
    if (name, level) not in _LEVELS:
        # [MQTT-3.1.2-1] and [MQTT-3.1.2-2]
        raise PacketFault(
            ReasonCode.UNSUPPORTED_PROTOCOL_VERSION,
            f"CONNECT: protocol {name[:20]!r} of level {level} is not known",
        )
    flags = fields.byte("the flags")
    if flags & 0x01:
        # [MQTT-3.1.2-3]
        raise malformed("CONNECT: the reserved flag is set")
    if not flags & 0x04 and flags & 0x38:
        # [MQTT-3.1.2-11] and [MQTT-3.1.2-13]
        raise malformed("CONNECT: a will QoS or will retain without the will flag")
    if flags & 0x18 == 0x18:
        # [MQTT-3.1.2-12]
        raise malformed("CONNECT: the will QoS is 3")
    if version == 4 and flags & 0xC0 == 0x40:
        # [MQTT-3.1.2-22] of MQTT 3.1.1.
        raise malformed("CONNECT: a password without a user name")
    keep_alive = fields.two_bytes("the keep alive")
    properties = _properties(fields, PacketType.CONNECT, version)
    if properties.authentication_data is not None and properties.authentication_method is None:
        # 3.1.2.11.10
        raise protocol_error("CONNECT: Authentication Data without an Authentication Method")
    # [MQTT-3.1.3-1]: the payload has its fields in this order.
    client_id = fields.text("the client identifier")
    if not client_id and (level == 3 or (level == 4 and not flags & 0x02)):
        # [MQTT-3.1.3-8] of MQTT 3.1.1.
        raise PacketFault(
            ReasonCode.CLIENT_IDENTIFIER_NOT_VALID,
            "CONNECT: the client identifier is empty, and the session is to be kept",
        )
    return Connect(
        level=level,
        is_bridge=is_bridge,
        client_id=client_id,
        clean_start=bool(flags & 0x02),
        keep_alive=keep_alive,
        will=_will(fields, flags, version) if flags & 0x04 else None,
        user_name=fields.text("the user name") if flags & 0x80 else None,
        password=fields.binary("the password") if flags & 0x40 else None,
        properties=properties,
    )


def _will(fields: Fields, flags: int, version: int) -> Will:
    properties = _properties(fields, WILL, version)
    topic = fields.text("the will topic")
    fault = name_fault(topic)
    if fault is not None:
        raise malformed(f"CONNECT: the will topic {fault}")
    response = properties.response_topic
    if response is not None and (fault := name_fault(response)) is not None:
        raise protocol_error(f"CONNECT: the Response Topic of the will {fault}")
    payload = fields.binary("the will payload")
    return Will(topic, payload, flags >> 3 & 3, bool(flags & 0x20), properties)


def _connack(fields: Fields, version: int) -> Connack:
    flags = fields.byte("the flags")
    if flags > 1:
        # [MQTT-3.2.2-1]
        raise malformed(f"CONNACK: the reserved flags are {flags & 0xFE:#04x}, not 0")
    # A server that does not speak version 5 refuses its CONNECT in the words of 3.1.1, and these have no
    # properties ([MQTT-3.1.2-2] there).
    old = version == 4 or fields.left() == 1
    code = _return_code(fields) if old else _reason_code(fields, PacketType.CONNACK)
    if flags and code:
        # [MQTT-3.2.2-6]; [MQTT-3.2.2-4] in MQTT 3.1.1.
        raise protocol_error("CONNACK: a refused connection with a session")
    properties = NO_PROPERTIES if old and code else _properties(fields, PacketType.CONNACK, version)
    return Connack(session_present=bool(flags), reason_code=code, properties=properties)


def _return_code(fields: Fields) -> ReasonCode:
    number = fields.byte("the return code")
    code = reason_of_return_code(number)
    if code is None:
        raise protocol_error(f"CONNACK: return code {number} is reserved")
    return code


def _subscribe(fields: Fields, version: int) -> Subscribe:
    identifier = fields.packet_id()
    properties = _properties(fields, PacketType.SUBSCRIBE, version)
    subscriptions = []
    while fields.left():
        share_name, topic_filter = _filter(fields, split=True)
        options = fields.byte("the subscription options")
        if options & (0xC0 if version == 5 else 0xFC):
            # [MQTT-3.8.3-5]; [MQTT-3.8.3-4] in MQTT 3.1.1.
            raise malformed(f"SUBSCRIBE: reserved bits are set in the subscription options {options:#04x}")
        if options & 0x03 == 0x03:
            # MQTT 5.0, 3.8.3.1, calls it a protocol error; in MQTT 3.1.1 it makes the packet malformed
            # [MQTT-3-8.3-4].
            raise (protocol_error if version == 5 else malformed)("SUBSCRIBE: the maximum QoS is 3")
        if options & 0x30 == 0x30:
            raise protocol_error("SUBSCRIBE: the retain handling is 3")
        if options & 0x04 and share_name:
            # [MQTT-3.8.3-4]
            raise protocol_error("SUBSCRIBE: No Local on a shared subscription")
        subscriptions.append(
            Subscription(
                topic_filter,
                options & 0x03,
                bool(options & 0x04),
                bool(options & 0x08),
                options >> 4,
                share_name,
            )
        )
    if not subscriptions:
        # [MQTT-3.8.3-2]; [MQTT-3.8.3-3] in MQTT 3.1.1.
        raise protocol_error("SUBSCRIBE: no topic filter")
    return Subscribe(identifier, tuple(subscriptions), properties)


def _filter(fields: Fields, *, split: bool) -> tuple[str, str]:
    """Read a topic filter; return the share name and the rest, or an empty name and all of it."""
    whole = fields.text("a topic filter")
    try:
        # In both versions: clients of MQTT 3.1.1 may share subscriptions as well, in the form of MQTT 5.0.
        share_name, topic_filter = split_share(whole)
    except ValueError as error:
        raise malformed(f"{fields.packet}: topic filter {error}") from None
    fault = filter_fault(topic_filter)
    if fault is not None:
        # [MQTT-4.7.1-1] to [MQTT-4.7.3-1]
        raise malformed(f"{fields.packet}: a topic filter {fault}")
    return (share_name, topic_filter) if split else ("", whole)


def _codes(fields: Fields, kind: PacketType) -> tuple[int, ...]:
    codes = fields.take(fields.left(), "the reason codes")
    if not codes:
        raise protocol_error(f"{fields.packet}: no reason code")
    wrong = set(codes).difference(REASONS_OF[kind])
    if wrong:
        raise protocol_error(f"{fields.packet}: reason code {min(wrong):#04x} is not allowed in it")
    return tuple(codes)


def _suback(fields: Fields, version: int) -> Suback:
    identifier = fields.packet_id()
    properties = _properties(fields, PacketType.SUBACK, version)
    codes = _codes(fields, PacketType.SUBACK)
    if version == 4 and max(codes) > ReasonCode.UNSPECIFIED_ERROR:
        # [MQTT-3.9.3-2] of MQTT 3.1.1.
        raise protocol_error(f"SUBACK: return code {max(codes):#04x} is reserved")
    return Suback(identifier, codes, properties)


def _unsubscribe(fields: Fields, version: int) -> Unsubscribe:
    identifier = fields.packet_id()
    properties = _properties(fields, PacketType.UNSUBSCRIBE, version)
    filters = []
    while fields.left():
        filters.append(_filter(fields, split=False)[1])
    if not filters:
        # [MQTT-3.10.3-2]
        raise protocol_error("UNSUBSCRIBE: no topic filter")
    return Unsubscribe(identifier, tuple(filters), properties)


def _unsuback(fields: Fields, version: int) -> Unsuback:
    identifier = fields.packet_id()
    if version != 5:
        return Unsuback(identifier)
    properties = fields.properties(PacketType.UNSUBACK)
    return Unsuback(identifier, _codes(fields, PacketType.UNSUBACK), properties)


def _pingreq(fields: Fields, version: int) -> Pingreq:
    return Pingreq()


def _pingresp(fields: Fields, version: int) -> Pingresp:
    return Pingresp()


def _disconnect(fields: Fields, version: int) -> Disconnect:
    return Disconnect(*_optional_reason(fields, PacketType.DISCONNECT, version))


def _auth(fields: Fields, version: int) -> Auth:
    # A packet without anything is allowed (3.15.2.1).
    short = not fields.left()
    code, properties = _optional_reason(fields, PacketType.AUTH, version)
    if not short and properties.authentication_method is None:
        # 3.15.2.2.2
        raise protocol_error("AUTH: no Authentication Method")
    return Auth(code, properties)


_READERS: dict[PacketType, Callable[[Fields, int], Packet]] = {
    PacketType.CONNECT: _connect,
    PacketType.CONNACK: _connack,
    PacketType.SUBSCRIBE: _subscribe,
    PacketType.SUBACK: _suback,
    PacketType.UNSUBSCRIBE: _unsubscribe,
    PacketType.UNSUBACK: _unsuback,
    PacketType.PINGREQ: _pingreq,
    PacketType.PINGRESP: _pingresp,
    PacketType.DISCONNECT: _disconnect,
    PacketType.AUTH: _auth,
}
