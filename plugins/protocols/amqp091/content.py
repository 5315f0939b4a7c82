"""Content properties and the envelope that they make (sections 4.2.6.1 and 1.8 of class basic).

A message that only passes through keeps its properties as the octets in which they came.  Four of them are
needed for routing and in queues: persistence, priority, expiration and reply-to.  They are read once, when
the envelope is made.  The other properties are decoded when somebody first asks for them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from struct import error as StructError
from struct import pack, unpack_from
from typing import Any

from kernel.contracts.errors import LocalProtocolError
from kernel.contracts.message import Envelope
from kernel.contracts.properties import Changeable, changed_values
from kernel.contracts.timestamp import time_of
from plugins.protocols.amqp091.errors import MalformedField
from plugins.protocols.amqp091.field_tables import (
    decode_table,
    encode_headers,
    encode_timestamp,
    split_table,
)
from plugins.protocols.amqp091.fields import short_string

PERSISTENT = 2
"""The value of delivery_mode that marks a message as persistent."""

_SHORT_STRING, _TABLE, _OCTET, _TIMESTAMP = range(4)

# In the order of the property list on the wire, which is that of the flags from the highest bit on (section
# 4.2.6.1).  Both directions go through this table once, from front to back.
PROPERTIES: tuple[tuple[str, int, int], ...] = (
    ("content_type", 0x8000, _SHORT_STRING),
    ("content_encoding", 0x4000, _SHORT_STRING),
    ("headers", 0x2000, _TABLE),
    ("delivery_mode", 0x1000, _OCTET),
    ("priority", 0x0800, _OCTET),
    ("correlation_id", 0x0400, _SHORT_STRING),
    ("reply_to", 0x0200, _SHORT_STRING),
    ("expiration", 0x0100, _SHORT_STRING),
    ("message_id", 0x0080, _SHORT_STRING),
    ("timestamp", 0x0040, _TIMESTAMP),
    ("type", 0x0020, _SHORT_STRING),
    ("user_id", 0x0010, _SHORT_STRING),
    ("app_id", 0x0008, _SHORT_STRING),
    ("cluster_id", 0x0004, _SHORT_STRING),
)
_UNDEFINED_FLAGS = 0x0003
"""Bit 0 announces a second word of flags, bit 1 a fifteenth property.  Class basic has neither, so both are
errors."""


class ContentProperties(Changeable):
    """The properties of a message by name, decoded on first access from ``raw``.

    ``raw`` has the property flags and the property list as on the wire, and an encoder sends it unchanged.
    So code that changes a property in an envelope must also replace its properties
    (``kernel.contracts.properties.changed``).
    """

    __slots__ = ("_values", "raw")

    def __init__(self, raw: bytes) -> None:
        # Nothing is checked: ``envelope_of`` has done that for octets of a peer.
        self.raw = raw
        self._values: dict[str, Any] | None = None

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> ContentProperties:
        """Encode these properties; a value of None means absent.  Raises ``LocalProtocolError``."""
        return cls(encode_properties(values))

    def changed(
        self, changes: Mapping[str, Any], headers: Mapping[str, Any], without: Collection[str]
    ) -> Mapping[str, Any]:
        """Return properties with these changes; all other fields are the octets that came.

        So a number keeps its type: AMQP has ten types of numbers.  See
        ``kernel.contracts.properties.changed``.
        """
        values = changed_values(self.values_by_name, changes, headers, without)
        try:
            result = ContentProperties(_changed_octets(self.raw, values, changes, headers, without))
        except LocalProtocolError:
            # AMQP cannot express a value.  The message goes on with it, and becomes undeliverable if an AMQP
            # client is to have it.
            return values
        result._values = values
        return result

    @property
    def values_by_name(self) -> dict[str, Any]:
        """The decoded properties."""
        if self._values is None:
            self._values = decode_properties(self.raw)
        return self._values

    def __getitem__(self, name: str) -> Any:
        return self.values_by_name[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.values_by_name)

    def __len__(self) -> int:
        return len(self.values_by_name)

    def __repr__(self) -> str:
        return f"ContentProperties({self.values_by_name!r})"


def decode_properties(raw: bytes) -> dict[str, Any]:
    """Decode property flags and list.  Raises ``MalformedField``, ``IndexError`` or ``struct.error``."""
    (flags,) = unpack_from(">H", raw)
    if flags & _UNDEFINED_FLAGS:
        raise MalformedField("a content header has flags for properties that do not exist")
    position = 2
    values: dict[str, Any] = {}
    for name, flag, kind in PROPERTIES:
        if not flags & flag:
            continue
        if kind == _SHORT_STRING:
            end = position + 1 + raw[position]
            values[name] = raw[position + 1 : end].decode("utf-8", "surrogateescape")
            position = end
        elif kind == _OCTET:
            values[name] = raw[position]
            position += 1
        elif kind == _TABLE:
            values[name], position = decode_table(raw, position)
        else:
            values[name] = time_of(unpack_from(">Q", raw, position)[0])
            position += 8
    if position != len(raw):
        raise MalformedField("the properties do not fill their content header exactly")
    return values


def split_properties(raw: bytes) -> dict[str, bytes]:
    """Return the octets of each property of a property list that was checked."""
    (flags,) = unpack_from(">H", raw)
    position = 2
    octets: dict[str, bytes] = {}
    for name, flag, kind in PROPERTIES:
        if not flags & flag:
            continue
        if kind == _SHORT_STRING:
            end = position + 1 + raw[position]
        elif kind == _TABLE:
            end = position + 4 + unpack_from(">I", raw, position)[0]
        else:
            end = position + (1 if kind == _OCTET else 8)
        octets[name] = raw[position:end]
        position = end
    return octets


def _changed_octets(
    raw: bytes,
    values: Mapping[str, Any],
    changes: Mapping[str, Any],
    headers: Mapping[str, Any],
    without: Collection[str],
) -> bytes:
    """Return a property list in which only these properties and headers are encoded anew."""
    before = split_properties(raw)
    after: dict[str, bytes] = {}
    flags = 0
    for name, flag, kind in PROPERTIES:
        if name not in values:
            continue
        flags |= flag
        table = before.get(name)
        if name in changes or table is None:
            after[name] = _encode_property(name, kind, values[name])
        elif kind == _TABLE and (headers or without):
            kept = [field for key, field in split_table(table) if key not in without and key not in headers]
            fields = b"".join((*kept, encode_headers(headers)[4:]))
            after[name] = pack(">I", len(fields)) + fields
        else:
            after[name] = table
    return pack(">H", flags) + b"".join(after.values())


def encode_properties(values: Mapping[str, Any]) -> bytes:
    """Encode the properties that class basic has; other names are left out.

    Raises ``LocalProtocolError`` for a value that AMQP cannot express.
    """
    flags = 0
    encoded: list[bytes] = []
    for name, flag, kind in PROPERTIES:
        value = values.get(name)
        if value is None:
            continue
        flags |= flag
        encoded.append(_encode_property(name, kind, value))
    return pack(">H", flags) + b"".join(encoded)


def _encode_property(name: str, kind: int, value: Any) -> bytes:
    try:
        if kind == _SHORT_STRING:
            return short_string(value if isinstance(value, str) else _text(name, value))
        if kind == _OCTET:
            if not 0 <= value <= 255:
                raise LocalProtocolError(f"{name} is {value}; it must lie between 0 and 255")
            return bytes((value,))
        return encode_headers(value) if kind == _TABLE else encode_timestamp(value)
    # Properties may come from any plugin or application, so a value may be of a wrong type.
    except (AttributeError, TypeError, ValueError, OverflowError, StructError):
        raise LocalProtocolError(f"property {name} cannot be {value!r:.80}") from None


def _text(name: str, value: Any) -> str:
    if isinstance(value, bytes | bytearray):
        # Other protocols have these properties as bytes.
        return value.decode("utf-8", "surrogateescape")
    if isinstance(value, int) and name == "expiration":
        return str(value)
    raise LocalProtocolError(f"property {name} must be text, not {value!r}")


def envelope_of(exchange: str, key: str, raw: bytes) -> Envelope:
    """Make the envelope of a message from the fields of its method and its raw properties.

    The properties are checked here, so that decoding them later cannot fail.  Raises ``MalformedField``,
    ``IndexError`` or ``struct.error``.  If the expiration is not a number, ``Envelope.expiration`` is None
    although ``properties`` has a value; the broker compares the two to find out.
    """
    # Delivery mode 2 and nothing else is what most clients send: the flag of delivery-mode, and its value.
    if raw == b"\x10\x00\x02":
        return Envelope(key=key, exchange=exchange, persistent=True, properties=ContentProperties(raw))
    mode, priority, reply_to, expiration = _scan(raw)
    return Envelope(
        key=key,
        exchange=exchange,
        reply_to=reply_to,
        persistent=mode == PERSISTENT,
        priority=priority,
        expiration=int(expiration) if expiration and _is_number(expiration) else None,
        properties=ContentProperties(raw),
    )


def _scan(raw: bytes) -> tuple[int, int, str, str]:  # noqa: C901 - straight down the property list
    """Check the property list; return delivery mode, priority, reply-to and expiration.

    This costs a quarter of decoding all properties.  It matters for messages that each have properties of
    their own, as the correlation ids of requests.
    """
    flags = raw[0] << 8 | raw[1]
    if flags & _UNDEFINED_FLAGS:
        raise MalformedField("a content header has flags for properties that do not exist")
    position = 2
    mode = priority = 0
    reply_to = expiration = ""
    # The order of the properties is that of their flags, from the highest bit on.  content-type and
    # content-encoding come first.
    for flag in (0x8000, 0x4000):
        if flags & flag:
            position += 1 + raw[position]
    if flags & 0x2000:
        # The headers are decoded only to find out that they can be.  Skipping them by their length would let
        # malformed ones through to a consumer.
        _, position = decode_table(raw, position)
    if flags & 0x1000:
        mode = raw[position]
        position += 1
    if flags & 0x0800:
        priority = raw[position]
        position += 1
    if flags & 0x0400:
        position += 1 + raw[position]
    if flags & 0x0200:
        end = position + 1 + raw[position]
        reply_to = raw[position + 1 : end].decode("utf-8", "surrogateescape")
        position = end
    if flags & 0x0100:
        end = position + 1 + raw[position]
        expiration = raw[position + 1 : end].decode("utf-8", "surrogateescape")
        position = end
    if flags & 0x00FC:
        # message-id, timestamp (eight octets), type, user-id, app-id, cluster-id.
        for flag in (0x0080, 0x0040, 0x0020, 0x0010, 0x0008, 0x0004):
            if flags & flag:
                position += 8 if flag == 0x0040 else 1 + raw[position]
    # A short string that runs over the end shows here, because a slice beyond the end raises nothing.
    if position != len(raw):
        raise MalformedField("the properties do not fill their content header exactly")
    return mode, priority, reply_to, expiration


def _is_number(text: str) -> bool:
    # int() would also accept signs, spaces, underscores and digits of other scripts.
    # Twenty digits hold every 64-bit number.
    return text.isascii() and text.isdigit() and len(text) <= 20


def raw_properties(envelope: Envelope) -> bytes:
    """Return an envelope's properties as octets.  Properties that came over AMQP are returned unchanged."""
    properties = envelope.properties
    if isinstance(properties, ContentProperties):
        return properties.raw
    # The message came over another protocol: the fields of the envelope become AMQP properties.
    values = dict(properties)
    if envelope.persistent:
        values["delivery_mode"] = PERSISTENT
    if envelope.priority:
        # The property is one octet; other protocols may have higher priorities.
        values["priority"] = min(envelope.priority, 255)
    if envelope.reply_to:
        values["reply_to"] = envelope.reply_to
    if envelope.expiration is not None:
        values["expiration"] = str(envelope.expiration)
    if values.get("user_properties"):
        values["headers"] = _headers_with(values["user_properties"], values.get("headers"))
    return encode_properties(values)


def _headers_with(pairs: Any, headers: Any) -> Any:
    """Return headers and user properties as headers.

    AMQP has one value for a name: a header, or the last of the user properties.
    """
    try:
        return {**dict(pairs), **(headers or {})}
    except (TypeError, ValueError):
        raise LocalProtocolError(
            f"property headers cannot be {headers!r:.80} with the user properties {pairs!r:.80}"
        ) from None
