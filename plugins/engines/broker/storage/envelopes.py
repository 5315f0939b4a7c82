"""Envelopes as the store writes them, in a form that is independent of protocols.

    length of a codec's name 1 · name · MessagePack array:
        key, exchange, reply_to, persistent, priority, expiration, properties

Without a codec the properties are a map (``values.py``), which holds what any protocol can put into it.  With
one they are octets that the codec of that name makes a mapping of: a front end whose messages bring their
properties as octets registers a codec, so that they are stored as they came and decoded only where somebody
looks at them.

Up to format 1 all envelopes were AMQP's class basic.  ``Format1`` reads them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, runtime_checkable
from typing import Protocol as Interface

import msgspec

from kernel.contracts.message import Envelope
from plugins.engines.broker.storage.framing import Kind
from plugins.engines.broker.storage.values import decode_value, encode_value

_MOST_ENVELOPES = 1000
"""Entries of each cache."""
_encode_fields = msgspec.msgpack.Encoder().encode
_NO_CODEC = b"\0"


class PropertiesCodec(Interface):
    """The properties of one front end's messages, as octets.  The name is part of the store's format."""

    @property
    def name(self) -> str:
        """At most 255 octets of UTF-8."""
        ...

    @property
    def properties_type(self) -> type[Mapping[str, Any]]:
        """The class of the properties that it encodes; not its subclasses."""
        ...

    def encode(self, properties: Any) -> bytes:
        """Return the octets of properties of that class.  May not fail."""
        ...

    def decode(self, octets: bytes) -> Mapping[str, Any]:
        """Undo ``encode``."""
        ...


@runtime_checkable
class Format1(Interface):
    """Reads what format 1 had in AMQP's encodings: optional for a codec."""

    def decode_envelope(self, exchange: str, key: str, properties: bytes) -> Envelope:
        """Return an envelope."""
        ...

    def decode_table(self, octets: bytes, position: int) -> tuple[dict[str, Any], int]:
        """Return the field table at a position, and the position behind it."""
        ...


class MissingCodec(Exception):
    """Something was written by a codec that this store does not have; the text says by which."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"the codec {name!r} is missing, with which records were written; add the front end that has it"
        )


class Codecs:
    """The codecs that a store was opened with."""

    def __init__(self, codecs: Iterable[PropertiesCodec] = ()) -> None:
        self._format_1: Format1 | None = None
        self.by_type: dict[type, PropertiesCodec] = {}
        self.by_name: dict[bytes, PropertiesCodec] = {}
        self.prefixes: dict[type, bytes] = {}
        for codec in codecs:
            name = codec.name.encode()
            # By exact type: a subclass could have state that the codec does not know.
            self.by_type[codec.properties_type] = codec
            self.by_name[name] = codec
            self.prefixes[codec.properties_type] = bytes((len(name),)) + name
            if isinstance(codec, Format1):
                self._format_1 = codec

    @property
    def format_1(self) -> Format1:
        """The reader of format 1; raises ``MissingCodec``."""
        if self._format_1 is None:
            raise MissingCodec("amqp091")
        return self._format_1

    def require_format_1(self) -> None:
        """Raise ``MissingCodec`` if format 1 cannot be read."""
        _ = self.format_1

    def require(self, name: bytes) -> None:
        """Raise ``MissingCodec`` if there is none of this name; the empty one is always there."""
        if name and name not in self.by_name:
            raise MissingCodec(name.decode("utf-8", "backslashreplace"))


class Envelopes:
    """Encodes and decodes envelopes.

    Caches them, so that messages that shared an envelope share one again.
    """

    def __init__(self, codecs: Codecs) -> None:
        self._codecs = codecs
        self._decoded: dict[bytes, Envelope] = {}
        self._encoded: dict[Envelope, bytes] = {}
        self._converted: dict[bytes, bytes] = {}
        # The last envelope that was encoded.  One flow mostly has one envelope, and comparing identity is
        # cheaper than a look into a dictionary.
        self._last: Envelope | None = None
        self._last_octets = b""

    def check(self, envelope: Envelope) -> None:
        """Raise ``CannotStore`` for an envelope that ``encode`` would raise it for."""
        # A codec may not fail, so only envelopes without one are tried.  The result is remembered for
        # ``encode``, and for a second check: a message for queues and for a stored set is checked twice.
        if type(envelope.properties) not in self._codecs.by_type and envelope not in self._encoded:
            _remember(self._encoded, envelope, self._encode(envelope))

    def encode(self, envelope: Envelope) -> bytes:
        """Return the octets of an envelope, or raise ``CannotStore``."""
        if envelope is not self._last:
            # Taken out: the cache holds only what was checked and not written yet.
            self._last_octets = self._encoded.pop(envelope, b"") or self._encode(envelope)
            self._last = envelope
        return self._last_octets

    def decode(self, octets: bytes) -> Envelope:
        """Return the envelope of these octets."""
        envelope = self._decoded.get(octets)
        if envelope is None:
            envelope = _remember(self._decoded, octets, self._decode(octets))
        return envelope

    def current(self, kind: int, octets: bytes) -> bytes:
        """Return the envelope of a message record of this kind as it is written now."""
        return self.of_format_1(octets) if kind == Kind.MESSAGES_1 else octets

    def of_format_1(self, octets: bytes) -> bytes:
        """Return the octets of an envelope that format 1 has written so."""
        # Cached, as thousands of messages share an envelope, and a page converts each record.
        converted = self._converted.get(octets)
        if converted is None:
            exchange_size, key_size = int.from_bytes(octets[:4]), int.from_bytes(octets[4:8])
            key_at = 8 + exchange_size
            exchange = octets[8:key_at].decode("utf-8", "surrogateescape")
            key = octets[key_at : key_at + key_size].decode("utf-8", "surrogateescape")
            envelope = self._codecs.format_1.decode_envelope(exchange, key, octets[key_at + key_size :])
            converted = _remember(self._converted, octets, self._encode(envelope))
        return converted

    def _encode(self, envelope: Envelope) -> bytes:
        properties = envelope.properties
        codec = self._codecs.by_type.get(type(properties))
        fields = [
            envelope.key,
            envelope.exchange,
            envelope.reply_to,
            envelope.persistent,
            envelope.priority,
            envelope.expiration,
        ]
        if codec is None:
            return _NO_CODEC + encode_value([*fields, properties])
        fields.append(codec.encode(properties))
        try:
            octets = _encode_fields(fields)
        # The fast encoder cannot encode surrogates and numbers of more than 64 bits; they need extensions.
        except (UnicodeEncodeError, OverflowError):
            octets = encode_value(fields)
        return self._codecs.prefixes[type(properties)] + octets

    def _decode(self, octets: bytes) -> Envelope:
        start = 1 + octets[0]
        name = octets[1:start]
        self._codecs.require(name)
        key, exchange, reply_to, persistent, priority, expiration, properties = decode_value(octets[start:])
        return Envelope(
            key=key,
            exchange=exchange,
            reply_to=reply_to,
            persistent=persistent,
            priority=priority,
            expiration=expiration,
            properties=self._codecs.by_name[name].decode(properties) if name else properties,
        )


def _remember(known: dict[Any, Any], key: Any, value: Any) -> Any:
    """Cache a value under a key, and return it.  A full cache is cleared."""
    if len(known) >= _MOST_ENVELOPES:
        # Simpler than evicting the oldest, and as good: what is still in use comes back with the next
        # message.
        known.clear()
    known[key] = value
    return value
