"""The properties of MQTT 5.0 (2.2.2.2): the struct that has them, and the table that describes them.

``TABLE`` is table 2-4 of the specification as data, with the limits that the text states for single
properties.  Parser and encoder go by this table alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal, NamedTuple

import msgspec

from plugins.protocols.mqtt.packet_types import PacketType
from plugins.protocols.mqtt.reason_codes import ReasonCode

WILL = 0
"""Stands for the will properties of a CONNECT where packet types are expected: no packet type has this
number."""


class Properties(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The properties of one packet.  None: the packet does not have this property."""

    payload_format_indicator: int | None = None
    """1: the payload is UTF-8 text."""
    message_expiry_interval: int | None = None
    """Seconds."""
    content_type: str | None = None
    response_topic: str | None = None
    correlation_data: bytes | None = None
    subscription_identifiers: tuple[int, ...] = ()
    """Several only in a PUBLISH of a server."""
    session_expiry_interval: int | None = None
    """Seconds; 0xFFFFFFFF: the session does not expire."""
    assigned_client_identifier: str | None = None
    server_keep_alive: int | None = None
    authentication_method: str | None = None
    authentication_data: bytes | None = None
    request_problem_information: int | None = None
    will_delay_interval: int | None = None
    """Seconds."""
    request_response_information: int | None = None
    response_information: str | None = None
    server_reference: str | None = None
    reason_string: str | None = None
    receive_maximum: int | None = None
    topic_alias_maximum: int | None = None
    topic_alias: int | None = None
    maximum_qos: int | None = None
    retain_available: int | None = None
    user_properties: tuple[tuple[str, str], ...] = ()
    """In order; a name may be there several times."""
    maximum_packet_size: int | None = None
    wildcard_subscription_available: int | None = None
    subscription_identifier_available: int | None = None
    shared_subscription_available: int | None = None


NO_PROPERTIES = Properties()
"""What a packet without properties has, and every packet of MQTT 3.1.1."""

PropertyType = Literal["byte", "two bytes", "four bytes", "variable", "text", "binary", "pair"]
"""The data types of section 1.5: Byte, Two Byte Integer, Four Byte Integer, Variable Byte Integer, UTF-8
Encoded String, Binary Data and UTF-8 String Pair."""


class Property(NamedTuple):
    """A row of table 2-4."""

    identifier: int
    name: str
    """The specification's name, for errors."""
    field: str
    """The name in ``Properties``."""
    type: PropertyType
    packets: frozenset[int]
    """The packet types in which it is allowed; ``WILL`` for the will properties."""
    repeats: frozenset[int] = frozenset()
    """The packet types in which it may be there more than once."""
    minimum: int = 0
    maximum: int = 0xFFFF_FFFF
    """The limits of a number.  A number outside of them is an error with ``reason``."""
    reason: ReasonCode = ReasonCode.PROTOCOL_ERROR


_CONNECT = PacketType.CONNECT
_CONNACK = PacketType.CONNACK
_PUBLISH = PacketType.PUBLISH
_SUBSCRIBE = PacketType.SUBSCRIBE
_DISCONNECT = PacketType.DISCONNECT
_AUTH = PacketType.AUTH
_MESSAGE = frozenset({_PUBLISH, WILL})
_BOTH = frozenset({_CONNECT, _CONNACK})
_ACCEPTANCE = frozenset({_CONNACK})
_AUTHENTICATION = frozenset({_CONNECT, _CONNACK, _AUTH})
_EVERYWHERE = frozenset({WILL, *PacketType}) - {PacketType.PINGREQ, PacketType.PINGRESP}
_ANSWERS = _EVERYWHERE - {WILL, _CONNECT, _PUBLISH, _SUBSCRIBE, PacketType.UNSUBSCRIBE}

# fmt: off
TABLE: tuple[Property, ...] = (
    Property(0x01, "Payload Format Indicator", "payload_format_indicator", "byte", _MESSAGE, maximum=1),
    Property(0x02, "Message Expiry Interval", "message_expiry_interval", "four bytes", _MESSAGE),
    Property(0x03, "Content Type", "content_type", "text", _MESSAGE),
    Property(0x08, "Response Topic", "response_topic", "text", _MESSAGE),
    Property(0x09, "Correlation Data", "correlation_data", "binary", _MESSAGE),
    Property(
        0x0B, "Subscription Identifier", "subscription_identifiers", "variable",
        frozenset({_PUBLISH, _SUBSCRIBE}), repeats=frozenset({_PUBLISH}), minimum=1,
    ),
    Property(
        0x11, "Session Expiry Interval", "session_expiry_interval", "four bytes",
        frozenset({_CONNECT, _CONNACK, _DISCONNECT}),
    ),
    Property(0x12, "Assigned Client Identifier", "assigned_client_identifier", "text", _ACCEPTANCE),
    Property(0x13, "Server Keep Alive", "server_keep_alive", "two bytes", _ACCEPTANCE),
    Property(0x15, "Authentication Method", "authentication_method", "text", _AUTHENTICATION),
    Property(0x16, "Authentication Data", "authentication_data", "binary", _AUTHENTICATION),
    Property(
        0x17, "Request Problem Information", "request_problem_information", "byte", frozenset({_CONNECT}),
        maximum=1,
    ),
    Property(0x18, "Will Delay Interval", "will_delay_interval", "four bytes", frozenset({WILL})),
    Property(
        0x19, "Request Response Information", "request_response_information", "byte", frozenset({_CONNECT}),
        maximum=1,
    ),
    Property(0x1A, "Response Information", "response_information", "text", _ACCEPTANCE),
    Property(0x1C, "Server Reference", "server_reference", "text", frozenset({_CONNACK, _DISCONNECT})),
    Property(0x1F, "Reason String", "reason_string", "text", _ANSWERS),
    Property(0x21, "Receive Maximum", "receive_maximum", "two bytes", _BOTH, minimum=1),
    Property(0x22, "Topic Alias Maximum", "topic_alias_maximum", "two bytes", _BOTH),
    Property(
        0x23, "Topic Alias", "topic_alias", "two bytes", frozenset({_PUBLISH}), minimum=1,
        reason=ReasonCode.TOPIC_ALIAS_INVALID,
    ),
    Property(0x24, "Maximum QoS", "maximum_qos", "byte", _ACCEPTANCE, maximum=1),
    Property(0x25, "Retain Available", "retain_available", "byte", _ACCEPTANCE, maximum=1),
    Property(0x26, "User Property", "user_properties", "pair", _EVERYWHERE, repeats=_EVERYWHERE),
    Property(0x27, "Maximum Packet Size", "maximum_packet_size", "four bytes", _BOTH, minimum=1),
    Property(
        0x28, "Wildcard Subscription Available", "wildcard_subscription_available", "byte", _ACCEPTANCE,
        maximum=1,
    ),
    Property(
        0x29, "Subscription Identifier Available", "subscription_identifier_available", "byte", _ACCEPTANCE,
        maximum=1,
    ),
    Property(
        0x2A, "Shared Subscription Available", "shared_subscription_available", "byte", _ACCEPTANCE,
        maximum=1,
    ),
)
# fmt: on

BY_IDENTIFIER: Mapping[int, Property] = MappingProxyType({row.identifier: row for row in TABLE})
