"""The data types of section 1.5 and the properties of section 2.2.2: reading and writing.

``Fields`` reads the fields of one packet in their order.  It is for packets that come seldom: PUBLISH and its
acknowledgements have readers of their own.
"""

from __future__ import annotations

from struct import Struct
from typing import Any

from msgspec.structs import astuple

from kernel.contracts.errors import LocalProtocolError
from plugins.protocols.mqtt.errors import PacketFault, malformed, protocol_error
from plugins.protocols.mqtt.packet_types import PacketType
from plugins.protocols.mqtt.properties import BY_IDENTIFIER, NO_PROPERTIES, TABLE, WILL, Properties, Property

LARGEST_VARIABLE = 268_435_455
"""The largest Variable Byte Integer (1.5.5), and so the largest remaining length."""
LARGEST_TEXT = 65_535
"""Bytes of the longest text and the longest binary data (1.5.4 and 1.5.6)."""

_ROWS = {
    packet: {row.identifier: row for row in TABLE if packet in row.packets} for packet in (WILL, *PacketType)
}
"""The properties that a packet may have, by identifier."""
_LABELS = {row.identifier: f"property {row.name}" for row in TABLE}
"""What errors call the properties."""
_SEVERAL = frozenset({"user_properties", "subscription_identifiers"})
"""The fields of ``Properties`` that are tuples."""

_two = Struct(">H")
_four = Struct(">I")


class Fields:
    """Reads the fields of one packet.  All methods raise ``PacketFault``, whose text names the field."""

    __slots__ = ("_data", "_end", "_position", "packet")

    def __init__(self, data: bytes, position: int, end: int, packet: str) -> None:
        """``packet``: the name of the packet, for errors."""
        self._data = data
        self._position = position
        self._end = end
        self.packet = packet

    def left(self) -> int:
        """Return how many bytes of the packet were not read yet."""
        return self._end - self._position

    def finish(self) -> None:
        """Check that the packet has nothing behind its last field."""
        if self._position != self._end:
            raise malformed(f"{self.packet}: {self.left()} bytes behind the last field")

    def take(self, count: int, field: str) -> bytes:
        """Return the next bytes as they are."""
        position = self._position
        following = position + count
        if following > self._end:
            raise self._cut_off(field)
        self._position = following
        return self._data[position:following]

    def _cut_off(self, field: str) -> PacketFault:
        return malformed(f"{self.packet}: {field} is cut off by the end of the packet")

    def byte(self, field: str) -> int:
        position = self._position
        if position >= self._end:
            raise self._cut_off(field)
        self._position = position + 1
        return self._data[position]

    def two_bytes(self, field: str) -> int:
        return int.from_bytes(self.take(2, field), "big")

    def four_bytes(self, field: str) -> int:
        return int.from_bytes(self.take(4, field), "big")

    def variable(self, field: str) -> int:
        value = self.byte(field)
        if value < 0x80:
            return value
        # Seven bits of each byte, the lowest first; the eighth says that another byte follows (1.5.5).
        value &= 0x7F
        for shift in (7, 14, 21):
            byte = self.byte(field)
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                if not byte:
                    # [MQTT-1.5.5-1]
                    raise malformed(f"{self.packet}: {field} has more bytes than its value needs")
                return value
        raise malformed(f"{self.packet}: {field} has more than four bytes")

    def binary(self, field: str) -> bytes:
        # Its length is read here and not by ``two_bytes``: most fields of a packet are of this type.
        start = self._position + 2
        if start <= self._end:
            data = self._data
            stop = start + (data[start - 2] << 8 | data[start - 1])
            if stop <= self._end:
                self._position = stop
                return data[start:stop]
        raise self._cut_off(field)

    def text(self, field: str) -> str:
        return decode_text(self.binary(field), self.packet, field)

    def packet_id(self) -> int:
        value = self.two_bytes("the packet identifier")
        if not value:
            # [MQTT-2.2.1-3] and [MQTT-2.2.1-4]; [MQTT-2.3.1-1] in MQTT 3.1.1.
            raise protocol_error(f"{self.packet}: the packet identifier is 0")
        return value

    def properties(self, packet: int) -> Properties:
        """Read the properties; ``packet``: the packet type, or ``WILL``."""
        length = self.variable("the property length")
        if not length:
            return NO_PROPERTIES
        end = self._position + length
        if end > self._end:
            raise malformed(f"{self.packet}: the properties are cut off by the end of the packet")
        # The rest of the packet is out of reach until all properties are read.
        whole, self._end = self._end, end
        rows = _ROWS[packet]
        found: dict[str, Any] = {}
        while self._position < end:
            identifier = self.variable("a property identifier")
            row = rows.get(identifier)
            if row is None:
                known = BY_IDENTIFIER.get(identifier)
                what = f"{identifier:#04x}" if known is None else known.name
                raise malformed(f"{self.packet}: property {what} is not allowed in it")
            field = row.field
            value = self._property(row)
            if field not in found:
                # What may be there thousands of times is collected in a list.
                found[field] = [value] if field in _SEVERAL else value
            elif packet in row.repeats:
                found[field].append(value)
            else:
                raise protocol_error(f"{self.packet}: property {row.name} is there more than once")
        self._end = whole
        for field in _SEVERAL:
            if field in found:
                found[field] = tuple(found[field])
        return Properties(**found)

    def _property(self, row: Property) -> Any:
        name = _LABELS[row.identifier]
        match row.type:
            case "text":
                return self.text(name)
            case "pair":
                return self.text(name), self.text(name)
            case "binary":
                return self.binary(name)
            case "byte":
                value = self.byte(name)
            case "two bytes":
                value = self.two_bytes(name)
            case "four bytes":
                value = self.four_bytes(name)
            case "variable":
                value = self.variable(name)
        if not row.minimum <= value <= row.maximum:
            raise PacketFault(row.reason, f"{self.packet}: {name} is {value}")
        return value


def decode_text(octets: bytes, packet: str, field: str) -> str:
    """Decode a UTF-8 Encoded String [MQTT-1.5.4-1, MQTT-1.5.4-2, MQTT-1.5.7-1].

    Python's decoder refuses surrogates, and leaves U+FEFF where it is [MQTT-1.5.4-3].
    """
    try:
        text = octets.decode()
    except UnicodeDecodeError as error:
        raise malformed(f"{packet}: {field} is not UTF-8 ({error.reason})") from None
    if "\0" in text:
        raise malformed(f"{packet}: {field} has the character U+0000")
    return text


def variable(value: int) -> bytes:
    """Encode a Variable Byte Integer.  Raises ``LocalProtocolError`` if it is too large."""
    if value < 0x80:
        return bytes((value,))
    if value < 0x4000:
        return bytes((value & 0x7F | 0x80, value >> 7))
    if value < 0x20_0000:
        return bytes((value & 0x7F | 0x80, value >> 7 & 0x7F | 0x80, value >> 14))
    if value > LARGEST_VARIABLE:
        raise LocalProtocolError(f"{value} bytes; a packet of MQTT has at most {LARGEST_VARIABLE}")
    return bytes((value & 0x7F | 0x80, value >> 7 & 0x7F | 0x80, value >> 14 & 0x7F | 0x80, value >> 21))


def binary(octets: bytes, field: str) -> bytes:
    """Encode binary data behind its length.  Raises ``LocalProtocolError`` if it is too long."""
    if len(octets) > LARGEST_TEXT:
        raise LocalProtocolError(f"{field} has {len(octets)} bytes; MQTT allows {LARGEST_TEXT}")
    return _two.pack(len(octets)) + octets


def text(value: str, field: str) -> bytes:
    """Encode a UTF-8 Encoded String.  Raises ``LocalProtocolError`` if MQTT cannot carry it."""
    try:
        octets = value.encode()
    except UnicodeEncodeError as error:
        raise LocalProtocolError(f"{field} cannot be UTF-8: {error.reason}") from None
    if "\0" in value:
        raise LocalProtocolError(f"{field} has the character U+0000, which MQTT does not allow")
    return binary(octets, field)


def two_bytes(value: int, field: str) -> bytes:
    """Encode a Two Byte Integer.  Raises ``LocalProtocolError`` if it does not fit."""
    if not 0 <= value <= 0xFFFF:
        raise LocalProtocolError(f"{field} is {value}; MQTT allows 0 to 65535")
    return _two.pack(value)


def encode_properties(properties: Properties, packet: PacketType | int) -> bytes:
    """Encode properties behind their length; ``packet``: the packet type, or ``WILL``.

    Raises ``LocalProtocolError`` for a property that is not allowed in this packet.
    """
    if properties is NO_PROPERTIES:
        return b"\0"
    pieces: list[bytes] = []
    # The fields are in the order of the table (a test holds them to it).
    for row, value in zip(TABLE, astuple(properties), strict=True):
        if value is None or value == ():
            continue
        if packet not in row.packets:
            where = "a will" if packet == WILL else PacketType(packet).name
            raise LocalProtocolError(f"property {row.name} is not allowed in {where}")
        if row.field not in _SEVERAL:
            pieces.append(_encode_property(row, value))
            continue
        if len(value) > 1 and packet not in row.repeats:
            raise LocalProtocolError(f"property {row.name} is allowed only once in {PacketType(packet).name}")
        pieces.extend([_encode_property(row, one) for one in value])
    octets = b"".join(pieces)
    return variable(len(octets)) + octets


def _encode_property(row: Property, value: Any) -> bytes:
    identifier = bytes((row.identifier,))
    name = _LABELS[row.identifier]
    match row.type:
        case "text":
            return identifier + text(value, name)
        case "binary":
            return identifier + binary(value, name)
        case "pair":
            return identifier + text(value[0], name) + text(value[1], name)
    if not row.minimum <= value <= min(row.maximum, _LARGEST[row.type]):
        raise LocalProtocolError(f"{name} cannot be {value}")
    match row.type:
        case "byte":
            return identifier + bytes((value,))
        case "two bytes":
            return identifier + _two.pack(value)
        case "four bytes":
            return identifier + _four.pack(value)
    return identifier + variable(value)


_LARGEST = {"byte": 0xFF, "two bytes": 0xFFFF, "four bytes": 0xFFFF_FFFF, "variable": LARGEST_VARIABLE}
