"""Message records: one batch, written once, with the positions of its messages in all queues.

    number of entries 2 · number of messages 4 · length of the envelope 4 · size of each body 4 · priority 1
    entries: queue 8 · base 8 · start 4 · stop 4 · expiry 8
    envelope · [sizes 4 each, where they differ] · bodies

The envelope is described in ``envelopes.py``.  In records of format 1, which have a kind of their own, it is

    length of the exchange 4 · length of the key 4 · exchange · key · properties (AMQP's class basic)
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from struct import Struct, pack, unpack_from
from typing import NamedTuple

from kernel.contracts.message import Batch, batch_of
from kernel.contracts.strides import cut
from plugins.engines.broker.storage.framing import Kind

_HEAD = Struct(">HIIIB")
_ENTRY = Struct(">QqIId")
_SIZES_DIFFER = 0xFFFFFFFF
MESSAGE_KINDS = (Kind.MESSAGES, Kind.MESSAGES_1)
"""Records of messages: as they are written, and as format 1 wrote them."""


class Entry(NamedTuple):
    """The positions of messages of a batch in a queue.

    Message ``i``, for ``start <= i < stop``, has the position ``base + i``.
    """

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
    """A message record without its bodies."""

    entries: list[Entry]
    messages: int
    size: int
    """Of all bodies together."""
    priority: int
    codec: bytes
    """The name of the codec that its envelope needs (format 1 has none)."""


def encode_messages(entries: Sequence[Entry], batch: Batch, envelope: bytes, priority: int) -> bytes:
    """Return the payload of a message record; the messages have one part each."""
    bodies = batch.bodies
    # ``width`` is the size of all bodies if the batch knows that they are equal; 0 if it does not know.
    count, size, sizes = len(bodies), batch.width, b""
    if not size:
        each = list(map(len, bodies))
        # Equal sizes are the usual case of a feed, and save four octets a message.
        if count and each.count(each[0]) == count:
            size = each[0]
        else:
            size, sizes = _SIZES_DIFFER, pack(f">{count}I", *each)
    # The priority is stored beside the envelope, since recovery needs it and does not decode envelopes.
    head = _HEAD.pack(len(entries), count, len(envelope), size, max(0, min(priority, 255)))
    locations = [_ENTRY.pack(*entry) for entry in entries]
    return b"".join([head, *locations, envelope, sizes, *bodies])


def decode_head(payload: memoryview) -> Head:
    """Read what recovery needs, without the bodies."""
    entry_count, count, envelope_size, size, priority = _HEAD.unpack_from(payload)
    at = _HEAD.size
    end = at + entry_count * _ENTRY.size
    # In one call for all entries: recovery does this for each record of the log.
    entries = [Entry(*fields) for fields in _ENTRY.iter_unpack(payload[at:end])]
    bodies_at = end + envelope_size + (4 * count if size == _SIZES_DIFFER else 0)
    # The envelope begins with the name of its codec.  Format 1 has other octets there, and its callers do not
    # look at this.
    codec = bytes(payload[end + 1 : end + 1 + payload[end]])
    return Head(entries, count, len(payload) - bodies_at, priority, codec)


def entries_of(queue: int, payload: memoryview) -> list[Entry]:
    """Read the entries of one queue alone: for a page, which meets records of many."""
    stop = _HEAD.size + int.from_bytes(payload[:2]) * _ENTRY.size
    return [
        Entry._make(fields) for fields in _ENTRY.iter_unpack(payload[_HEAD.size : stop]) if fields[0] == queue
    ]


class Messages(NamedTuple):
    """A message record without its entries."""

    bodies: list[bytes]
    envelope: bytes
    priority: int


def decode_messages(payload: memoryview) -> Messages:
    """Read all of a message record but its entries; the bodies are copies."""
    entry_count, count, envelope_size, size, priority = _HEAD.unpack_from(payload)
    at = _HEAD.size + entry_count * _ENTRY.size
    end = at + envelope_size
    envelope = bytes(payload[at:end])
    if size != _SIZES_DIFFER:
        joined = payload[end:]
        # A message by itself is the usual case of a set, and of clients that publish one by one.
        if count == 1:
            return Messages([bytes(joined)], envelope, priority)
        # Copies, so that a queue does not keep the whole window of the reader in memory.
        bodies = cut(joined, 0, (0, size), count) if size else [b""] * count
        return Messages(bodies, envelope, priority)
    sizes = unpack_from(f">{count}I", payload, end)
    # One copy and then slices of it: slicing octets is cheaper than slicing a view and copying each part.
    octets = bytes(payload[end + 4 * count :])
    stops = list(accumulate(sizes))
    bodies = [octets[stop - length : stop] for stop, length in zip(stops, sizes, strict=True)]
    return Messages(bodies, envelope, priority)


def single_part(batch: Batch) -> Batch:
    """Return a batch whose messages have one part each."""
    return batch_of([b"".join(parts) for parts in batch.bodies], batch.envelope) if batch.multipart else batch
