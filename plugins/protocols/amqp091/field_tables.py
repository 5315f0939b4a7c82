"""Encodes and decodes field tables and field arrays, with the types of section 4.2.1 as RabbitMQ reads them.

The specification's grammar and its errata disagree about some type letters.  Peers use RabbitMQ's list:
``s`` is a signed 16-bit integer, ``l`` a signed and ``L`` an unsigned 64-bit one, ``x`` a byte array.

A table is four octets of size, and then pairs of a name and a value.  A value is one octet of type and what
follows from it, which may be a table or an array again.  So the functions call each other, and depth is an
argument: a peer decides how deep they go.  Every decoder takes the payload and a position, and returns a
value and the position behind it.

What is decoded can be encoded again with the same meaning, but not always with the same octets: there are
more types on the wire than in Python.  Where octets have to stay as they are, as in the properties of a
message, nothing is decoded and encoded (``content.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from decimal import Decimal
from struct import Struct, pack, unpack_from
from sys import intern
from types import MappingProxyType
from typing import Any

from kernel.contracts.errors import LocalProtocolError
from kernel.contracts.timestamp import Timestamp, seconds_of, time_of
from plugins.protocols.amqp091.errors import MalformedField
from plugins.protocols.amqp091.fields import short_string

NO_ARGUMENTS: Mapping[str, Any] = MappingProxyType({})
MAXIMUM_DEPTH = 32
"""Levels of nesting.  Deeper tables are refused, because a few kilobytes of them could exhaust the stack."""


def encode_timestamp(moment: datetime | int) -> bytes:
    """Encode seconds since 1970, or a datetime (UTC without a time zone).  Raises ``LocalProtocolError``."""
    seconds = seconds_of(moment)
    if not 0 <= seconds < 1 << 64:
        raise LocalProtocolError(
            f"{seconds} is no timestamp: it must lie between 1970 and 2**64 seconds later"
        )
    return pack(">Q", seconds)


def decode_table(payload: bytes, position: int, depth: int = 0) -> tuple[dict[str, Any], int]:
    """Decode the table at ``position``; return it and the position behind it.

    Raises ``MalformedField``, ``IndexError`` or ``struct.error``.
    """
    # Every name and value is decoded with the bounds of the whole payload, so a value may run over the end of
    # its table.  Only the last position shows that.
    end = _end_of_nested(payload, position, depth)
    position += 4
    table: dict[str, Any] = {}
    while position < end:
        name_end = position + 1 + payload[position]
        # Names repeat: those of client-properties in each connection, those of headers in each message.
        name = intern(payload[position + 1 : name_end].decode("utf-8", "surrogateescape"))
        table[name], position = _decode_value(payload, name_end, depth)
    if position != end:
        raise MalformedField("a value runs over the end of its table")
    return table, position


def split_table(table: bytes) -> list[tuple[str, bytes]]:
    """Return the name of each field of a table that was checked, and the octets of the whole field."""
    fields: list[tuple[str, bytes]] = []
    position = 4
    while position < len(table):
        name_end = position + 1 + table[position]
        name = table[position + 1 : name_end].decode("utf-8", "surrogateescape")
        size = _SIZES.get(table[name_end])
        # Strings, byte arrays, tables and arrays begin with their length.
        end = (
            name_end + 5 + unpack_from(">I", table, name_end + 1)[0] if size is None else name_end + 1 + size
        )
        fields.append((name, table[position:end]))
        position = end
    return fields


def _decode_array(payload: bytes, position: int, depth: int) -> tuple[list[Any], int]:
    end = _end_of_nested(payload, position, depth)
    position += 4
    values: list[Any] = []
    while position < end:
        value, position = _decode_value(payload, position, depth)
        values.append(value)
    if position != end:
        raise MalformedField("a value runs over the end of its array")
    return values, position


def _end_of_nested(payload: bytes, position: int, depth: int) -> int:
    if depth > MAXIMUM_DEPTH:
        raise MalformedField(f"tables are nested deeper than {MAXIMUM_DEPTH} levels")
    end: int = position + 4 + unpack_from(">I", payload, position)[0]
    if end > len(payload):
        raise MalformedField("a table is longer than its frame")
    return end


def _decode_value(payload: bytes, position: int, depth: int) -> tuple[Any, int]:
    letter = payload[position]
    position += 1
    # Values of fixed size need no call.
    fixed = _FIXED.get(letter)
    if fixed is not None:
        return fixed.unpack_from(payload, position)[0], position + fixed.size
    if letter == 0x46:  # F
        return decode_table(payload, position, depth + 1)
    if letter == 0x41:  # A
        return _decode_array(payload, position, depth + 1)
    reader = _READERS.get(letter)
    if reader is None:
        raise MalformedField(f"a table has a value of the unknown type {chr(letter)!r}")
    return reader(payload, position)


def _octets(payload: bytes, position: int) -> tuple[bytes, int]:
    end: int = position + 4 + unpack_from(">I", payload, position)[0]
    if end > len(payload):
        raise MalformedField("a string in a table is longer than its frame")
    return payload[position + 4 : end], end


def _read_string(payload: bytes, position: int) -> tuple[str | bytes, int]:
    octets, end = _octets(payload, position)
    try:
        return octets.decode("utf-8"), end
    except UnicodeDecodeError:
        # A long string may have any octets (section 4.2.5.3).  Most are text; the others are returned as
        # bytes.
        return octets, end


def _read_byte_array(payload: bytes, position: int) -> tuple[bytearray, int]:
    octets, end = _octets(payload, position)
    # A ``bytearray``, so that encoding it gives the type ``x`` again.  ``bytes`` stand for a long string.
    return bytearray(octets), end


def _read_boolean(payload: bytes, position: int) -> tuple[bool, int]:
    return payload[position] != 0, position + 1


def _read_decimal(payload: bytes, position: int) -> tuple[Decimal, int]:
    # The number of digits behind the point, and the digits as one whole number with a sign.
    scale, digits = unpack_from(">Bi", payload, position)
    return Decimal(digits).scaleb(-scale), position + 5


def _read_timestamp(payload: bytes, position: int) -> tuple[datetime | Timestamp, int]:
    return time_of(unpack_from(">Q", payload, position)[0]), position + 8


def _read_nothing(payload: bytes, position: int) -> tuple[None, int]:
    return None, position


_FIXED: dict[int, Struct] = {
    ord(letter): Struct(layout)
    for letter, layout in {
        "b": ">b", "B": ">B", "s": ">h", "u": ">H", "I": ">i", "i": ">I", "l": ">q", "L": ">Q", "f": ">f", "d": ">d",
    }.items()
}  # fmt: skip
_SIZES = {letter: fixed.size for letter, fixed in _FIXED.items()} | {
    ord("t"): 1, ord("D"): 5, ord("T"): 8, ord("V"): 0,
}  # fmt: skip
"""Octets of the values that have always the same size."""
_READERS: dict[int, Callable[[bytes, int], tuple[Any, int]]] = {
    ord("t"): _read_boolean,
    ord("D"): _read_decimal,
    ord("S"): _read_string,
    ord("T"): _read_timestamp,
    ord("V"): _read_nothing,
    ord("x"): _read_byte_array,
}


def encode_table(table: Mapping[str, Any], depth: int = 0) -> bytes:
    """Encode a table.  Raises ``LocalProtocolError`` for a value that AMQP cannot express."""
    if not table:
        return b"\0\0\0\0"
    encoded: list[bytes] = []
    for name, value in table.items():
        encoded.append(short_string(name))
        encoded.append(_encode_value(value, depth))
    octets = b"".join(encoded)
    return pack(">I", len(octets)) + octets


def encode_headers(headers: Mapping[str, Any]) -> bytes:
    """Encode the headers of a message.

    The counts of RabbitMQ's headers ``x-death`` and ``x-delivery-count`` get 64 bits, however small they are:
    RabbitMQ writes them so, and clients in typed languages cast them (to Java's Long).
    """
    if "x-death" in headers or "x-delivery-count" in headers:
        headers = dict(headers)
        deaths = headers.get("x-death")
        if isinstance(deaths, list):
            headers["x-death"] = [
                _as_long(each, "count") if isinstance(each, dict) else each for each in deaths
            ]
        headers = _as_long(headers, "x-delivery-count")
    return encode_table(headers)


def _as_long(table: dict[str, Any], name: str) -> dict[str, Any]:
    value = table.get(name)
    if isinstance(value, int) and not isinstance(value, bool) and -(1 << 63) <= value < 1 << 63:
        return {**table, name: _Long(value)}
    return table


class _Long(int):
    """An integer that is encoded with 64 bits."""


def _encode_value(value: Any, depth: int) -> bytes:
    # The limit of this side holds for sending, too: a table may contain itself.
    if depth > MAXIMUM_DEPTH:
        raise LocalProtocolError(f"a table is nested deeper than {MAXIMUM_DEPTH} levels")
    # The exact type is the usual case.  The loop below finds subclasses.
    writer = _WRITERS.get(type(value))
    if writer is not None:
        return writer(value)
    if isinstance(value, Mapping):
        return b"F" + encode_table(value, depth + 1)
    if isinstance(value, list | tuple):
        octets = b"".join([_encode_value(item, depth + 1) for item in value])
        return b"A" + pack(">I", len(octets)) + octets
    for kind, writer in _WRITERS.items():
        if isinstance(value, kind):
            return writer(value)
    raise LocalProtocolError(f"a table cannot hold {value!r} of type {type(value).__name__}")


def _write_integer(value: int) -> bytes:
    """Encode with 32 or 64 bits: every client reads the types I and l, which RabbitMQ's tools write."""
    # The smaller types are not used, because peers disagree about their letters.
    if -0x80000000 <= value <= 0x7FFFFFFF:
        return pack(">ci", b"I", value)
    if -(1 << 63) <= value < 1 << 63:
        return pack(">cq", b"l", value)
    if 0 <= value < 1 << 64:
        return pack(">cQ", b"L", value)
    raise LocalProtocolError(f"{value} does not fit into 64 bits")


def _write_decimal(value: Decimal) -> bytes:
    exponent = value.as_tuple().exponent
    if not isinstance(exponent, int):
        raise LocalProtocolError(f"{value} cannot be a decimal of AMQP: it has no finite value")
    # A decimal has digits and the number of digits behind the point.  A positive exponent becomes zeros.
    number = int(value.scaleb(-exponent)) if exponent < 0 else int(value)
    if exponent < -255 or not -0x80000000 <= number <= 0x7FFFFFFF:
        raise LocalProtocolError(f"{value} has more digits than a decimal of AMQP (32 bits)")
    return pack(">cBi", b"D", max(-exponent, 0), number)


def _write_text(value: str) -> bytes:
    # The counterpart of ``_read_string``, which returns bytes for what is not UTF-8.  Surrogates come from
    # short strings.
    octets = value.encode("utf-8", "surrogateescape")
    return b"S" + pack(">I", len(octets)) + octets


# For subclasses the first match counts: bool, Timestamp and _Long stand before int.
_WRITERS: dict[type, Callable[[Any], bytes]] = {
    str: _write_text,
    bool: lambda value: b"t\x01" if value else b"t\x00",
    Timestamp: lambda value: b"T" + encode_timestamp(int(value)),
    _Long: lambda value: pack(">cq", b"l", value),
    int: _write_integer,
    # A float of Python's has 64 bits; ``f`` would lose half of its digits.
    float: lambda value: pack(">cd", b"d", value),
    type(None): lambda value: b"V",
    bytes: lambda value: b"S" + pack(">I", len(value)) + value,
    bytearray: lambda value: b"x" + pack(">I", len(value)) + bytes(value),
    memoryview: lambda value: b"x" + pack(">I", value.nbytes) + bytes(value),
    datetime: lambda value: b"T" + encode_timestamp(value),
    Decimal: _write_decimal,
}
