"""Message records: one batch, written once, with the places that its messages have in queues.

    number of entries 2 · number of messages 4 · length of the envelope 4 · size of each body 4 · priority 1
    entries: queue 8 · base 8 · start 4 · stop 4 · expiry 8       message i has position base + i, start <= i < stop
    envelope · [sizes 4 each, where they differ] · bodies

The envelope is the exchange, the key and the properties as AMQP writes them (class basic): it is the
form in which they mostly come and go, and it keeps every type that a header can have.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from struct import Struct, iter_unpack, pack, unpack_from
from typing import NamedTuple

from kernel.contracts.message import Batch, Envelope, batch_of
from plugins.protocols.amqp091.content import envelope_of, raw_properties

_HEAD = Struct(">HIIIB")
_ENTRY = Struct(">QqIId")
_SIZES_DIFFER = 0xFFFFFFFF
_MOST_ENVELOPES = 1000


class Entry(NamedTuple):
    """Where messages of a batch are: ``start`` up to ``stop`` of it, from ``base + start`` on in a queue."""

    queue: int
    base: int
    start: int
    stop: int
    expires: float
    """Time of day; 0: never."""

    @property
    def first(self) -> int:
        """The position of its first message."""
        return self.base + self.start

    @property
    def last(self) -> int:
        """The position behind its last message."""
        return self.base + self.stop


class Head(NamedTuple):
    """All of a message record but the bodies."""

    entries: list[Entry]
    messages: int
    size: int
    """Of all bodies together."""
    priority: int


def encode_envelope(envelope: Envelope) -> bytes:
    """Return exchange, key and properties, each with its length in front."""
    exchange = envelope.exchange.encode("utf-8", "surrogateescape")
    key = envelope.key.encode("utf-8", "surrogateescape")
    return pack(">II", len(exchange), len(key)) + exchange + key + raw_properties(envelope)


def decode_envelope(octets: bytes) -> Envelope:
    """Undo ``encode_envelope``."""
    exchange_size, key_size = unpack_from(">II", octets)
    key_at = 8 + exchange_size
    exchange = octets[8:key_at].decode("utf-8", "surrogateescape")
    key = octets[key_at : key_at + key_size].decode("utf-8", "surrogateescape")
    return envelope_of(exchange, key, octets[key_at + key_size :])


def encode_messages(entries: Sequence[Entry], batch: Batch, envelope: bytes, priority: int) -> bytes:
    """Return the payload of a message record; the messages have one part each."""
    bodies = batch.bodies
    count, size, sizes = len(bodies), batch.width, b""
    if not size:
        each = list(map(len, bodies))
        if count and each.count(each[0]) == count:
            size = each[0]
        else:
            size, sizes = _SIZES_DIFFER, pack(f">{count}I", *each)
    head = _HEAD.pack(len(entries), count, len(envelope), size, min(priority, 255))
    places = [_ENTRY.pack(*entry) for entry in entries]
    return b"".join([head, *places, envelope, sizes, *bodies])


def decode_head(payload: memoryview) -> Head:
    """Read what recovery wants to know."""
    entry_count, count, envelope_size, size, priority = _HEAD.unpack_from(payload)
    at = _HEAD.size
    end = at + entry_count * _ENTRY.size
    entries = [Entry(*fields) for fields in _ENTRY.iter_unpack(payload[at:end])]
    bodies_at = end + envelope_size + (4 * count if size == _SIZES_DIFFER else 0)
    return Head(entries, count, len(payload) - bodies_at, priority)


class Messages(NamedTuple):
    """A message record, read whole."""

    entries: list[Entry]
    bodies: list[bytes]
    envelope: bytes
    priority: int


def decode_messages(payload: memoryview) -> Messages:
    """Read a whole message record; the bodies are copies."""
    entry_count, count, envelope_size, size, priority = _HEAD.unpack_from(payload)
    at = _HEAD.size
    end = at + entry_count * _ENTRY.size
    entries = [Entry(*fields) for fields in _ENTRY.iter_unpack(payload[at:end])]
    at, end = end, end + envelope_size
    envelope = bytes(payload[at:end])
    if size != _SIZES_DIFFER:
        joined = payload[end:]
        bodies = [body for (body,) in iter_unpack(f"{size}s", joined)] if size else [b""] * count
        return Messages(entries, bodies, envelope, priority)
    sizes = unpack_from(f">{count}I", payload, end)
    octets = bytes(payload[end + 4 * count :])
    stops = list(accumulate(sizes))
    bodies = [octets[stop - length : stop] for stop, length in zip(stops, sizes, strict=True)]
    return Messages(entries, bodies, envelope, priority)


class EnvelopeCache:
    """Envelopes by their octets, so that messages which shared one do so again."""

    def __init__(self) -> None:
        self._known: dict[bytes, Envelope] = {}
        self._last: Envelope | None = None
        self._last_octets = b""

    def decode(self, octets: bytes) -> Envelope:
        """Return the envelope of these octets."""
        envelope = self._known.get(octets)
        if envelope is None:
            if len(self._known) >= _MOST_ENVELOPES:
                self._known.clear()
            envelope = self._known[octets] = decode_envelope(octets)
        return envelope

    def encode(self, envelope: Envelope) -> bytes:
        """Return the octets of an envelope; the last one is remembered."""
        if envelope is not self._last:
            self._last_octets = encode_envelope(envelope)
            self._last = envelope
        return self._last_octets


def in_one_piece(batch: Batch) -> Batch:
    """Return a batch whose messages have one part each."""
    return batch_of([b"".join(parts) for parts in batch.bodies], batch.envelope) if batch.multipart else batch
