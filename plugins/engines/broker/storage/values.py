"""Values: encodes properties and arguments as MessagePack, so that value and type are the same when decoded.

MessagePack has nil, booleans, 64-bit integers, floats, text in UTF-8, octets, arrays and maps.  Other types
of Python are extensions: the code says which type, and ``_restore`` reads the data.  The codes are part of
the store's format: a code never gets a second meaning.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from decimal import Decimal
from typing import Any, TypeAlias

from msgspec.msgpack import Decoder, Encoder, Ext

from kernel.contracts.timestamp import Timestamp

MAXIMUM_DEPTH = 64
"""Containers within containers.  Twice what AMQP allows, and far below the limit of Python's stack."""

_TEXT, _INTEGER, _TUPLE, _MAP, _BYTEARRAY, _DECIMAL, _TIME, _TIMESTAMP = range(1, 9)

_encode = Encoder().encode


class CannotStore(Exception):
    """A value has a type that cannot be stored; the text says which."""


def encode_value(value: Any) -> bytes:
    """Return the octets of a value.  Raises ``CannotStore``, and nothing else."""
    try:
        return _encode(_plain(value, MAXIMUM_DEPTH))
    except CannotStore:
        raise
    except Exception as error:  # a mapping of an application may raise anything when it is read
        raise CannotStore(f"{type(error).__name__}: {error}") from error


def decode_value(octets: bytes | memoryview) -> Any:
    """Undo ``encode_value``.  Mappings come back as dictionaries, memoryviews as bytearrays."""
    return _decode(octets)


def _plain(value: Any, depth: int) -> Any:
    """Return the same out of types that MessagePack has, and extensions."""
    # By the exact type first: the usual case, with one look-up.
    writer = _WRITERS.get(type(value))
    if writer is not None:
        return writer(value, depth)
    if isinstance(value, Mapping):
        return _map(value, depth)
    for kind, writer in _WRITERS.items():
        if isinstance(value, kind):  # an enumeration, a named tuple: stored as what it is equal to
            return writer(value, depth)
    raise CannotStore(f"a value of type {type(value).__name__}")


def _itself(value: Any, depth: int) -> Any:
    return value


def _text(value: str, depth: int) -> Any:
    if value.isascii():
        # Not ``str(value)``: that of an enumeration is its name, and the value is wanted.
        return str.__str__(value)
    # MessagePack wants valid UTF-8.  Octets of a peer that were not UTF-8 are lone surrogates in Python's
    # text (``surrogateescape``), and have to come back as the same.
    octets = value.encode("utf-8", "surrogatepass")
    try:
        return octets.decode("utf-8")
    except UnicodeDecodeError:
        return Ext(_TEXT, octets)


def _integer(value: int, depth: int) -> Any:
    if -(1 << 63) <= value < 1 << 64:
        return int(value)
    # One octet more than the bits need, for the sign.
    return Ext(_INTEGER, value.to_bytes(value.bit_length() // 8 + 1, "big", signed=True))


def _list(value: list[Any], depth: int) -> list[Any]:
    if not depth:
        raise CannotStore(f"containers nested deeper than {MAXIMUM_DEPTH} levels")
    return [_plain(item, depth - 1) for item in value]


def _tuple(value: tuple[Any, ...], depth: int) -> Any:
    # A list of MessagePack comes back as a list, and a tuple can be a key of a mapping.
    return Ext(_TUPLE, _encode(_list(list(value), depth)))


def _map(value: Mapping[Any, Any], depth: int) -> Any:
    if not depth:
        raise CannotStore(f"containers nested deeper than {MAXIMUM_DEPTH} levels")
    pairs = [(_plain(name, depth - 1), _plain(item, depth - 1)) for name, item in value.items()]
    if all(type(name) is str for name, _ in pairs):
        return dict(pairs)
    octets = _encode(pairs)
    # The keys as they will come back have to be hashable, or decoding would fail: a memoryview can be a key,
    # but the bytearray that it becomes cannot.
    hash(tuple([name for name, _ in _decode(octets)]))
    return Ext(_MAP, octets)


def _time(value: datetime, depth: int) -> Any:
    # With its offset from UTC, or none; the name of a time zone is not kept.
    return Ext(_TIME, datetime.isoformat(value).encode())


# bool and Timestamp stand before int, of which they are subclasses.
_WRITERS: dict[type, Callable[[Any, int], Any]] = {
    str: _text,
    bool: _itself,
    Timestamp: lambda value, depth: Ext(_TIMESTAMP, _encode(_integer(int(value), depth))),
    int: _integer,
    float: lambda value, depth: float(value),
    type(None): _itself,
    bytes: lambda value, depth: bytes(value),
    dict: _map,
    list: _list,
    tuple: _tuple,
    bytearray: lambda value, depth: Ext(_BYTEARRAY, bytes(value)),
    memoryview: lambda value, depth: Ext(_BYTEARRAY, bytes(value)),
    datetime: _time,
    Decimal: lambda value, depth: Ext(_DECIMAL, str(value).encode()),
}

Reader: TypeAlias = "Callable[[memoryview], Any]"

_READERS: dict[int, Reader] = {
    _TEXT: lambda data: bytes(data).decode("utf-8", "surrogatepass"),
    _INTEGER: lambda data: int.from_bytes(data, "big", signed=True),
    _TUPLE: lambda data: tuple(_decode(data)),
    _MAP: lambda data: dict(_decode(data)),
    _BYTEARRAY: bytearray,
    _DECIMAL: lambda data: Decimal(bytes(data).decode()),
    _TIME: lambda data: datetime.fromisoformat(bytes(data).decode()),
    _TIMESTAMP: lambda data: Timestamp(_decode(data)),
}


def _restore(code: int, data: memoryview) -> Any:
    return _READERS[code](data)


_decode: Callable[[bytes | memoryview], Any] = Decoder(ext_hook=_restore).decode
