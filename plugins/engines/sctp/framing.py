"""Framing: what the user messages of an association are, named by the first word of an address.

``backend``: units (``plugins.protocols.backend.units``) and control messages between them, told apart by the
payload protocol identifier. ``plain``: each message is a user message, and there is nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Protocol

import msgspec

from kernel.contracts.errors import RemoteProtocolError
from kernel.contracts.message import Batch, batch_of
from plugins.protocols.backend.units import UnitDecoder, UnitEncoder

UNIT = 16 * 1024
"""Bytes, roughly, of small messages that share a user message."""
SMALL_UNIT = 1024
"""The same for messages that may be lost or overtaken individually."""
FRAGMENT = 32 * 1024
"""Bytes beyond which a unit is split, so that a peer needs no more than that to reassemble a user message."""

VERSION = 1


class Kind(IntEnum):
    """Payload protocol identifiers of ``backend``: "kn" and a number."""

    GREETING = 0x6B6E_0001
    """MessagePack map; the first user message each way, on stream 0."""
    UNIT = 0x6B6E_0002
    """Messages that need no confirmation."""
    COUNTED = 0x6B6E_0003
    """Messages that are to be confirmed."""
    FRAGMENT = 0x6B6E_0004
    """The unit continues in the next user message of the stream."""
    CONFIRM = 0x6B6E_0005
    """8 bytes: number of counted messages of this stream that all destinations have confirmed."""
    WINDOW = 0x6B6E_0006
    """8 bytes: number of bytes of units that may have been sent on this stream altogether."""
    SENT = 0x6B6E_0007
    """8 bytes: number of bytes of units sent on this stream so far, abandoned ones included."""
    SUBSCRIBE = 0x6B6E_0008
    """A pattern (UTF-8): send messages whose key matches, on all streams."""


class Greeting(msgspec.Struct, frozen=True, kw_only=True):
    """What each side says first. Unknown fields are ignored: later versions only add fields."""

    version: int = VERSION
    streams: int = 1
    """Streams each way; the listener repeats the dialler's number."""
    window: int = 64 * 1024
    """Bytes of units that may be sent on each stream before the first WINDOW."""
    max_message: int = (1 << 56) - 1


_greeting = msgspec.msgpack.Decoder(Greeting)
_encoder = msgspec.msgpack.Encoder()


def encode_greeting(greeting: Greeting) -> bytes:
    """Return the encoded payload of a GREETING."""
    return _encoder.encode(greeting)


def decode_greeting(payload: bytes) -> Greeting:
    """Decode the payload of a GREETING. Raises ``RemoteProtocolError``."""
    try:
        greeting = _greeting.decode(payload)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise RemoteProtocolError(f"malformed greeting: {error}") from None
    # A higher version is accepted: later versions only add fields.
    if greeting.version < 1 or greeting.streams < 1 or greeting.window < 1:
        raise RemoteProtocolError(f"invalid greeting: {greeting}")
    return greeting


class Framing(Protocol):
    """The framing of one stream, both ways."""

    def encode(self, batch: Batch, *, droppable: bool) -> list[bytes]:
        """Return user messages; small ones if they are ``droppable``: each may be lost or overtaken."""
        ...

    def decode(self, data: Sequence[bytes]) -> list[Batch]:
        """Return the batches in consecutive user messages. Raises ``RemoteProtocolError``."""
        ...


class BackendFraming:
    """Units of the backend protocol."""

    def __init__(self, max_message: int) -> None:
        self._encoder = UnitEncoder(UNIT)
        self._loose = UnitEncoder(SMALL_UNIT)
        self._decoder = UnitDecoder(max_message)

    def encode(self, batch: Batch, *, droppable: bool) -> list[bytes]:
        return (self._loose if droppable else self._encoder).encode([batch])

    def decode(self, data: Sequence[bytes]) -> list[Batch]:
        batches = self._decoder.decode(data)
        # Unlike over multicast, nothing is missing here: a malformed unit is the peer's fault.
        if self._decoder.malformed:
            raise RemoteProtocolError("a malformed unit")
        return batches


class PlainFraming:
    """Messages as they are; parts are joined."""

    def encode(self, batch: Batch, *, droppable: bool) -> list[bytes]:
        if batch.multipart:
            return [b"".join(parts) for parts in batch.bodies]
        return list(map(bytes, batch.bodies))

    def decode(self, data: Sequence[bytes]) -> list[Batch]:
        return [batch_of(data)]
