"""Encodes and decodes greetings and envelopes, which are MessagePack maps on the wire."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec.structs import replace

from kernel.contracts.errors import RemoteProtocolError
from kernel.contracts.message import PLAIN, Envelope
from kernel.contracts.timestamp import Timestamp

VERSION = 1


class Greeting(msgspec.Struct, frozen=True, kw_only=True):
    """The payload of a GREETING.  Unknown fields are ignored: later versions only add fields."""

    version: int = VERSION
    confirm: bool = False
    """This side can send CONFIRM frames for what it receives."""
    heartbeat: int = 0
    """Milliseconds: this side is never silent for longer.  0: it may be silent."""
    max_message: int = (1 << 56) - 1
    """Bytes of the largest message that this side accepts."""
    envelopes: int = 1
    """Envelopes that this side remembers: the peer uses the numbers from 0 to one less than this."""
    envelope_bytes: int = (1 << 56) - 1
    """Bytes of the maps of these envelopes together."""
    sync: int = 0
    """1: this side answers SYNC frames.  0: it does not."""
    mixed: int = 0
    """1: this side reads MIXED frames, 2: with keys in them.  0: it does not."""


_greeting = msgspec.msgpack.Decoder(Greeting)
_envelope = msgspec.msgpack.Decoder(Envelope)
_encoder = msgspec.msgpack.Encoder()
# RecursionError: a peer may send deeply nested lists.
MALFORMED = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


def encode_greeting(greeting: Greeting) -> bytes:
    """Encode the payload of a GREETING."""
    return _encoder.encode(greeting)


def decode_greeting(payload: bytes) -> Greeting:
    """Decode the payload of a GREETING.  Raises ``RemoteProtocolError``."""
    try:
        return _greeting.decode(payload)
    except MALFORMED as error:
        raise RemoteProtocolError(f"malformed greeting: {error}") from None


def encode_envelope(envelope: Envelope) -> bytes:
    """Encode an envelope.  Raises for values that MessagePack cannot express; see the next function.

    The fields of an ``Envelope`` are those of the map, and those with their defaults are left out.
    """
    # Values that MessagePack cannot express are sent as text (docs/backend_protocol.md).  Any mapping becomes
    # a dict: some protocols have a type of their own, also for none at all.
    properties = {name: _plain(value) for name, value in envelope.properties.items()}
    return _encoder.encode(replace(envelope, properties=properties or PLAIN.properties))


def encode_readable_envelope(envelope: Envelope) -> bytes:
    """Encode an envelope so that the peer can decode it; raise ``ValueError`` if that is impossible."""
    try:
        encoded = encode_envelope(envelope)
        # A key of type bytes, for example, can be encoded but not decoded.  This costs 0.3 to 0.9 us.
        _envelope.decode(encoded)
    except (msgspec.MsgspecError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise ValueError(f"an envelope that cannot be sent: {error}") from None
    return encoded


def decode_envelope(payload: bytes) -> Envelope:
    """Decode an envelope.  Raises ``RemoteProtocolError``."""
    try:
        return _envelope.decode(payload)
    except MALFORMED as error:
        raise RemoteProtocolError(f"malformed envelope: {error}") from None


def _plain(value: Any) -> Any:
    """Return ``value``, with text in place of what MessagePack cannot express."""
    try:
        _encoder.encode(value)
    except (TypeError, OverflowError, ValueError):
        if isinstance(value, dict):
            return {str(name): _plain(item) for name, item in value.items()}
        if isinstance(value, list | tuple):
            return [_plain(item) for item in value]
        # A ``Timestamp`` is an int of another type, which MessagePack does not encode.
        return int(value) if isinstance(value, Timestamp) else str(value)
    return value
