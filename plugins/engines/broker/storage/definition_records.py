"""Definition records: exchanges, queues and bindings, and what of them was dropped.

Each definition has a number of its own for ever, by which other records speak of it.  Arguments are AMQP
field tables, which keep the types that a client gave them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from struct import Struct, pack, unpack_from
from typing import Any, NamedTuple, get_type_hints

from plugins.engines.broker.storage.framing import Kind
from plugins.protocols.amqp091.field_tables import decode_table, encode_table

FORMAT = 1
"""The version of the store's format."""
_SETTLED = Struct(">QQQ")


class ExchangeDefinition(NamedTuple):
    """A durable exchange."""

    number: int
    vhost: str
    name: str
    type: str
    auto_delete: bool
    internal: bool
    arguments: Mapping[str, Any]


class QueueDefinition(NamedTuple):
    """A durable queue."""

    number: int
    vhost: str
    name: str
    auto_delete: bool
    next_position: int
    """No position below this is ever given to a new message."""
    arguments: Mapping[str, Any]


class BindingDefinition(NamedTuple):
    """A binding between durable ends."""

    number: int
    vhost: str
    source: str
    destination: str
    to_exchange: bool
    key: str
    arguments: Mapping[str, Any]


Definition = ExchangeDefinition | QueueDefinition | BindingDefinition

_KIND_OF: dict[type, Kind] = {
    ExchangeDefinition: Kind.EXCHANGE,
    QueueDefinition: Kind.QUEUE,
    BindingDefinition: Kind.BINDING,
}
_CLASS_OF: dict[int, type] = {kind: made for made, kind in _KIND_OF.items()}


def kind_of(definition: Definition) -> Kind:
    """Return the kind of the record for a definition."""
    return _KIND_OF[type(definition)]


def encode_definition(definition: Definition) -> bytes:
    """Return the payload: the fields in order; numbers as 8 octets, text with its length, flags as one."""
    return b"".join(map(_encode, definition))


def decode_definition(kind: int, payload: bytes) -> Definition:
    """Undo ``encode_definition``."""
    made = _CLASS_OF[kind]
    values: list[Any] = []
    at = 0
    for type_ in get_type_hints(made).values():
        value, at = _decode(type_, payload, at)
        values.append(value)
    definition: Definition = made(*values)
    return definition


def encode_segment(number: int) -> bytes:
    """Return the payload of a segment's first record."""
    return pack(">HQ", FORMAT, number)


def decode_segment(payload: memoryview) -> int:
    """Return the format's version."""
    version: int = unpack_from(">H", payload)[0]
    return version


def encode_number(number: int) -> bytes:
    """Return the payload of a DROP record."""
    return pack(">Q", number)


def decode_number(payload: memoryview) -> int:
    """Undo ``encode_number``."""
    number: int = unpack_from(">Q", payload)[0]
    return number


def encode_ranges(ranges: Iterable[tuple[int, int, int]]) -> bytes:
    """Return the payload of a SETTLED or CLEAN record from (queue, first, stop)."""
    return b"".join([_SETTLED.pack(*one) for one in ranges])


def decode_ranges(payload: memoryview) -> list[tuple[int, int, int]]:
    """Undo ``encode_ranges``."""
    return list(_SETTLED.iter_unpack(payload))


def _encode(value: Any) -> bytes:
    if isinstance(value, bool):
        return bytes((value,))
    if isinstance(value, int):
        return pack(">Q", value)
    if isinstance(value, str):
        octets = value.encode("utf-8", "surrogateescape")
        return pack(">I", len(octets)) + octets
    return encode_table(value)


def _decode(type_: Any, payload: bytes, at: int) -> tuple[Any, int]:
    if type_ is bool:
        return bool(payload[at]), at + 1
    if type_ is int:
        return unpack_from(">Q", payload, at)[0], at + 8
    if type_ is str:
        end = at + 4 + unpack_from(">I", payload, at)[0]
        return payload[at + 4 : end].decode("utf-8", "surrogateescape"), end
    return decode_table(payload, at)
