"""Definition records: exchanges, queues, bindings and stored sets, and which of them were dropped.

Each definition has a number, which is never used again and by which other records refer to it.  Its record is
a MessagePack array (``values.py``): the sort of definition, and its fields in order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from struct import Struct, pack, unpack_from
from typing import Any, NamedTuple, get_type_hints

from plugins.engines.broker.storage.envelopes import Format1
from plugins.engines.broker.storage.framing import Kind
from plugins.engines.broker.storage.values import decode_value, encode_value

FORMAT = 3
"""The version of the store's format.  Format 2 is read as format 3 is; it has no stored sets.  In format 1,
which can be read, too, envelopes and arguments were in AMQP's encodings."""
_RANGE = Struct(">QQQ")


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


class SetDefinition(NamedTuple):
    """A stored set.  Its numbers are what positions are of a queue."""

    number: int
    vhost: str
    name: str
    next_number: int
    """No number below this is ever given to a new message."""


Definition = ExchangeDefinition | QueueDefinition | BindingDefinition | SetDefinition

# These names are part of the store's format.
_SORTS: dict[str, type] = {
    "exchange": ExchangeDefinition,
    "queue": QueueDefinition,
    "binding": BindingDefinition,
    "set": SetDefinition,
}
_NAMES = {made: name for name, made in _SORTS.items()}
_FORMAT_1: dict[int, type] = {
    Kind.EXCHANGE_1: ExchangeDefinition,
    Kind.QUEUE_1: QueueDefinition,
    Kind.BINDING_1: BindingDefinition,
}
DEFINITION_KINDS_1 = tuple(_FORMAT_1)


def encode_definition(definition: Definition) -> bytes:
    """Return the payload of a DEFINITION record.  Raises ``CannotStore``."""
    return encode_value([_NAMES[type(definition)], *definition])


def decode_definition(payload: bytes) -> Definition:
    """Undo ``encode_definition``."""
    sort, *fields = decode_value(payload)
    definition: Definition = _SORTS[sort](*fields)
    return definition


def decode_definition_1(kind: int, payload: bytes, format_1: Format1) -> Definition:
    """Read a definition of format 1.

    Numbers have 8 octets, text has its length before it, flags have one octet, arguments are AMQP's tables.
    """
    made = _FORMAT_1[kind]
    values: list[Any] = []
    at = 0
    value: Any
    # The fields of a definition have not changed since format 1, so that the annotations say how each was
    # encoded.
    for type_ in get_type_hints(made).values():
        if type_ is bool:
            value, at = bool(payload[at]), at + 1
        elif type_ is int:
            value, at = unpack_from(">Q", payload, at)[0], at + 8
        elif type_ is str:
            end = at + 4 + unpack_from(">I", payload, at)[0]
            value, at = payload[at + 4 : end].decode("utf-8", "surrogateescape"), end
        else:
            value, at = format_1.decode_table(payload, at)
        values.append(value)
    definition: Definition = made(*values)
    return definition


class Begins(NamedTuple):
    """What the first record of a segment says.

    It names the segment before, so that recovery notices when that one is missing or was cut.
    """

    version: int
    number: int
    before: int
    """The number of the segment before; 0: there was none, or an older version wrote this."""
    size: int
    """Octets that the segment before had for certain."""


def encode_segment(number: int, before: int, size: int) -> bytes:
    """Return the payload of a segment's first record; see ``Begins``."""
    return pack(">HQQQ", FORMAT, number, before, size)


def decode_segment(payload: memoryview) -> Begins:
    """Undo ``encode_segment``."""
    version, number = unpack_from(">HQ", payload)
    if len(payload) < 26:  # written before segments named the one before
        return Begins(version, number, 0, 0)
    before, size = unpack_from(">QQ", payload, 10)
    return Begins(version, number, before, size)


def encode_number(number: int) -> bytes:
    """Return the payload of a DROP record."""
    return pack(">Q", number)


def decode_number(payload: memoryview) -> int:
    """Undo ``encode_number``."""
    number: int = unpack_from(">Q", payload)[0]
    return number


def encode_ranges(ranges: Iterable[tuple[int, int, int]]) -> bytes:
    """Return the payload of an ACKNOWLEDGED or CLEAN record from (queue, first, stop)."""
    return b"".join([_RANGE.pack(*one) for one in ranges])


def decode_ranges(payload: memoryview) -> list[tuple[int, int, int]]:
    """Undo ``encode_ranges``."""
    return list(_RANGE.iter_unpack(payload))
