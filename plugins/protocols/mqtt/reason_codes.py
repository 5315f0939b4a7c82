"""Reason codes (MQTT 5.0, 2.4), and the return codes of CONNACK and SUBACK in MQTT 3.1.1.

``REASONS`` is table 2-6 of the specification as data.  The parser refuses a reason code in a packet in which
the table does not have it.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import NamedTuple

from plugins.protocols.mqtt.packet_types import PacketType

_CONNACK = PacketType.CONNACK
_PUBACK = PacketType.PUBACK
_PUBREC = PacketType.PUBREC
_PUBREL = PacketType.PUBREL
_PUBCOMP = PacketType.PUBCOMP
_SUBACK = PacketType.SUBACK
_UNSUBACK = PacketType.UNSUBACK
_DISCONNECT = PacketType.DISCONNECT
_AUTH = PacketType.AUTH


FAILED = 0x80
"""Reason codes from this on are failures (MQTT 5.0, 2.4)."""


class ReasonCode(IntEnum):
    """The result of an operation, or why a connection ends.  Codes from 0x80 on are failures."""

    SUCCESS = 0x00
    """In a DISCONNECT: normal disconnection.  In a SUBACK: granted QoS 0."""
    GRANTED_QOS_1 = 0x01
    GRANTED_QOS_2 = 0x02
    DISCONNECT_WITH_WILL_MESSAGE = 0x04
    NO_MATCHING_SUBSCRIBERS = 0x10
    NO_SUBSCRIPTION_EXISTED = 0x11
    CONTINUE_AUTHENTICATION = 0x18
    RE_AUTHENTICATE = 0x19
    UNSPECIFIED_ERROR = 0x80
    MALFORMED_PACKET = 0x81
    PROTOCOL_ERROR = 0x82
    IMPLEMENTATION_SPECIFIC_ERROR = 0x83
    UNSUPPORTED_PROTOCOL_VERSION = 0x84
    CLIENT_IDENTIFIER_NOT_VALID = 0x85
    BAD_USER_NAME_OR_PASSWORD = 0x86
    NOT_AUTHORIZED = 0x87
    SERVER_UNAVAILABLE = 0x88
    SERVER_BUSY = 0x89
    BANNED = 0x8A
    SERVER_SHUTTING_DOWN = 0x8B
    BAD_AUTHENTICATION_METHOD = 0x8C
    KEEP_ALIVE_TIMEOUT = 0x8D
    SESSION_TAKEN_OVER = 0x8E
    TOPIC_FILTER_INVALID = 0x8F
    TOPIC_NAME_INVALID = 0x90
    PACKET_IDENTIFIER_IN_USE = 0x91
    PACKET_IDENTIFIER_NOT_FOUND = 0x92
    RECEIVE_MAXIMUM_EXCEEDED = 0x93
    TOPIC_ALIAS_INVALID = 0x94
    PACKET_TOO_LARGE = 0x95
    MESSAGE_RATE_TOO_HIGH = 0x96
    QUOTA_EXCEEDED = 0x97
    ADMINISTRATIVE_ACTION = 0x98
    PAYLOAD_FORMAT_INVALID = 0x99
    RETAIN_NOT_SUPPORTED = 0x9A
    QOS_NOT_SUPPORTED = 0x9B
    USE_ANOTHER_SERVER = 0x9C
    SERVER_MOVED = 0x9D
    SHARED_SUBSCRIPTIONS_NOT_SUPPORTED = 0x9E
    CONNECTION_RATE_EXCEEDED = 0x9F
    MAXIMUM_CONNECT_TIME = 0xA0
    SUBSCRIPTION_IDENTIFIERS_NOT_SUPPORTED = 0xA1
    WILDCARD_SUBSCRIPTIONS_NOT_SUPPORTED = 0xA2


class Reason(NamedTuple):
    """A row of table 2-6."""

    code: int
    name: str
    packets: frozenset[PacketType]


def _row(code: int, name: str, *packets: PacketType) -> Reason:
    return Reason(code, name, frozenset(packets))


# fmt: off
REASONS: tuple[Reason, ...] = (
    _row(0x00, "Success", _CONNACK, _PUBACK, _PUBREC, _PUBREL, _PUBCOMP, _UNSUBACK, _AUTH),
    _row(0x00, "Normal disconnection", _DISCONNECT),
    _row(0x00, "Granted QoS 0", _SUBACK),
    _row(0x01, "Granted QoS 1", _SUBACK),
    _row(0x02, "Granted QoS 2", _SUBACK),
    _row(0x04, "Disconnect with Will Message", _DISCONNECT),
    _row(0x10, "No matching subscribers", _PUBACK, _PUBREC),
    _row(0x11, "No subscription existed", _UNSUBACK),
    _row(0x18, "Continue authentication", _AUTH),
    _row(0x19, "Re-authenticate", _AUTH),
    _row(0x80, "Unspecified error", _CONNACK, _PUBACK, _PUBREC, _SUBACK, _UNSUBACK, _DISCONNECT),
    _row(0x81, "Malformed Packet", _CONNACK, _DISCONNECT),
    _row(0x82, "Protocol Error", _CONNACK, _DISCONNECT),
    _row(0x83, "Implementation specific error", _CONNACK, _PUBACK, _PUBREC, _SUBACK, _UNSUBACK, _DISCONNECT),
    _row(0x84, "Unsupported Protocol Version", _CONNACK),
    _row(0x85, "Client Identifier not valid", _CONNACK),
    _row(0x86, "Bad User Name or Password", _CONNACK),
    _row(0x87, "Not authorized", _CONNACK, _PUBACK, _PUBREC, _SUBACK, _UNSUBACK, _DISCONNECT),
    _row(0x88, "Server unavailable", _CONNACK),
    _row(0x89, "Server busy", _CONNACK, _DISCONNECT),
    _row(0x8A, "Banned", _CONNACK),
    _row(0x8B, "Server shutting down", _DISCONNECT),
    _row(0x8C, "Bad authentication method", _CONNACK, _DISCONNECT),
    _row(0x8D, "Keep Alive timeout", _DISCONNECT),
    _row(0x8E, "Session taken over", _DISCONNECT),
    _row(0x8F, "Topic Filter invalid", _SUBACK, _UNSUBACK, _DISCONNECT),
    _row(0x90, "Topic Name invalid", _CONNACK, _PUBACK, _PUBREC, _DISCONNECT),
    _row(0x91, "Packet Identifier in use", _PUBACK, _PUBREC, _SUBACK, _UNSUBACK),
    _row(0x92, "Packet Identifier not found", _PUBREL, _PUBCOMP),
    _row(0x93, "Receive Maximum exceeded", _DISCONNECT),
    _row(0x94, "Topic Alias invalid", _DISCONNECT),
    _row(0x95, "Packet too large", _CONNACK, _DISCONNECT),
    _row(0x96, "Message rate too high", _DISCONNECT),
    _row(0x97, "Quota exceeded", _CONNACK, _PUBACK, _PUBREC, _SUBACK, _DISCONNECT),
    _row(0x98, "Administrative action", _DISCONNECT),
    _row(0x99, "Payload format invalid", _CONNACK, _PUBACK, _PUBREC, _DISCONNECT),
    _row(0x9A, "Retain not supported", _CONNACK, _DISCONNECT),
    _row(0x9B, "QoS not supported", _CONNACK, _DISCONNECT),
    _row(0x9C, "Use another server", _CONNACK, _DISCONNECT),
    _row(0x9D, "Server moved", _CONNACK, _DISCONNECT),
    _row(0x9E, "Shared Subscriptions not supported", _SUBACK, _DISCONNECT),
    _row(0x9F, "Connection rate exceeded", _CONNACK, _DISCONNECT),
    _row(0xA0, "Maximum connect time", _DISCONNECT),
    _row(0xA1, "Subscription Identifiers not supported", _SUBACK, _DISCONNECT),
    _row(0xA2, "Wildcard Subscriptions not supported", _SUBACK, _DISCONNECT),
)
# fmt: on


def _codes_of(packet: PacketType) -> Mapping[int, str]:
    return MappingProxyType({reason.code: reason.name for reason in REASONS if packet in reason.packets})


REASONS_OF: Mapping[PacketType, Mapping[int, str]] = MappingProxyType(
    {packet: _codes_of(packet) for packet in PacketType}
)
"""The codes that a packet of a type may have, with their names."""


class ReturnCode(IntEnum):
    """The return codes of CONNACK in MQTT 3.1.1 (3.2.2.3)."""

    ACCEPTED = 0
    UNACCEPTABLE_PROTOCOL_VERSION = 1
    IDENTIFIER_REJECTED = 2
    SERVER_UNAVAILABLE = 3
    BAD_USER_NAME_OR_PASSWORD = 4
    NOT_AUTHORIZED = 5


_RETURN_CODES: Mapping[int, ReturnCode] = {
    ReasonCode.SUCCESS: ReturnCode.ACCEPTED,
    ReasonCode.UNSUPPORTED_PROTOCOL_VERSION: ReturnCode.UNACCEPTABLE_PROTOCOL_VERSION,
    ReasonCode.CLIENT_IDENTIFIER_NOT_VALID: ReturnCode.IDENTIFIER_REJECTED,
    ReasonCode.SERVER_UNAVAILABLE: ReturnCode.SERVER_UNAVAILABLE,
    ReasonCode.SERVER_BUSY: ReturnCode.SERVER_UNAVAILABLE,
    ReasonCode.USE_ANOTHER_SERVER: ReturnCode.SERVER_UNAVAILABLE,
    ReasonCode.SERVER_MOVED: ReturnCode.SERVER_UNAVAILABLE,
    ReasonCode.QUOTA_EXCEEDED: ReturnCode.SERVER_UNAVAILABLE,
    ReasonCode.CONNECTION_RATE_EXCEEDED: ReturnCode.SERVER_UNAVAILABLE,
    ReasonCode.BAD_USER_NAME_OR_PASSWORD: ReturnCode.BAD_USER_NAME_OR_PASSWORD,
    ReasonCode.NOT_AUTHORIZED: ReturnCode.NOT_AUTHORIZED,
    ReasonCode.BANNED: ReturnCode.NOT_AUTHORIZED,
    ReasonCode.BAD_AUTHENTICATION_METHOD: ReturnCode.NOT_AUTHORIZED,
}
_REASON_OF_RETURN_CODE: Mapping[int, ReasonCode] = {
    ReturnCode.ACCEPTED: ReasonCode.SUCCESS,
    ReturnCode.UNACCEPTABLE_PROTOCOL_VERSION: ReasonCode.UNSUPPORTED_PROTOCOL_VERSION,
    ReturnCode.IDENTIFIER_REJECTED: ReasonCode.CLIENT_IDENTIFIER_NOT_VALID,
    ReturnCode.SERVER_UNAVAILABLE: ReasonCode.SERVER_UNAVAILABLE,
    ReturnCode.BAD_USER_NAME_OR_PASSWORD: ReasonCode.BAD_USER_NAME_OR_PASSWORD,
    ReturnCode.NOT_AUTHORIZED: ReasonCode.NOT_AUTHORIZED,
}


def return_code(reason_code: int) -> ReturnCode | None:
    """Return the return code of an MQTT 3.1.1 CONNACK that says what this reason code says.

    None: there is none, and the server closes the connection without a CONNACK [MQTT-3.2.2-6].
    """
    return _RETURN_CODES.get(reason_code)


def reason_of_return_code(code: int) -> ReasonCode | None:
    """Return the reason code for a return code of an MQTT 3.1.1 CONNACK; None: the code is reserved."""
    return _REASON_OF_RETURN_CODE.get(code)
