"""The packet types, and the flags in their fixed headers (MQTT 5.0, 2.1.2 and 2.1.3)."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import Literal


class PacketType(IntEnum):
    """The number of a packet type.  It is in the four high bits of a packet's first byte."""

    CONNECT = 1
    CONNACK = 2
    PUBLISH = 3
    PUBACK = 4
    PUBREC = 5
    PUBREL = 6
    PUBCOMP = 7
    SUBSCRIBE = 8
    SUBACK = 9
    UNSUBSCRIBE = 10
    UNSUBACK = 11
    PINGREQ = 12
    PINGRESP = 13
    DISCONNECT = 14
    AUTH = 15
    """Only in MQTT 5.0."""


# For what is done for each packet: in Python 3.11 an access to a member through its class takes 60 ns
# (measured; EnumType has ``__getattr__``; decision 39).
PUBACK: Literal[PacketType.PUBACK] = PacketType.PUBACK
PUBREC: Literal[PacketType.PUBREC] = PacketType.PUBREC
PUBREL: Literal[PacketType.PUBREL] = PacketType.PUBREL

FLAGS: Mapping[PacketType, int] = MappingProxyType(
    {
        kind: 0b0010 if kind in (PacketType.PUBREL, PacketType.SUBSCRIBE, PacketType.UNSUBSCRIBE) else 0b0000
        for kind in PacketType
        if kind is not PacketType.PUBLISH
    }
)
"""The four low bits of the first byte, which are fixed for all types but PUBLISH (table 2-2)."""

FROM_CLIENT = frozenset(PacketType) - {
    PacketType.CONNACK,
    PacketType.SUBACK,
    PacketType.UNSUBACK,
    PacketType.PINGRESP,
}
"""The packets that a client may send (table 2-1)."""

FROM_SERVER = frozenset(PacketType) - {
    PacketType.CONNECT,
    PacketType.SUBSCRIBE,
    PacketType.UNSUBSCRIBE,
    PacketType.PINGREQ,
}
"""The packets that a server may send.  In MQTT 3.1.1 it sends no DISCONNECT."""

SUBPROTOCOLS = ("mqtt",)
"""MQTT's name in WebSocket's handshake [MQTT-6.0.0-3]."""

OLD_SUBPROTOCOLS = ("mqttv3.1",)
"""Its name for MQTT 3.1, which has no specification: what Paho's client for browsers says."""
