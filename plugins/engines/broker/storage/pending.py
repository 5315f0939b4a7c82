"""Pending: what was told to a log and is in no group yet."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

import msgspec

from kernel.contracts.message import Batch
from plugins.engines.broker.storage.framing import Kind
from plugins.engines.broker.storage.location import Location
from plugins.engines.broker.storage.message_records import Entry, in_one_piece
from plugins.engines.broker.storage.stored_queue import StoredQueue

Held: TypeAlias = tuple[StoredQueue, Entry]

_MOST_JOINED = 256
_MOST_JOINED_BYTES = 64 * 1024
"""Messages and octets that single messages make a batch of: so much is lost if its record is damaged."""


class Pending(msgspec.Struct):
    """Definitions, batches and settled messages, in the order in which they came."""

    notes: list[tuple[Kind, bytes]] = []
    batches: list[tuple[Batch, list[Held], Location]] = []
    last_batch: Batch | None = None
    settling: dict[StoredQueue, None] = {}
    demanded: bool = False
    """Whether somebody waits for it, whatever it is."""

    def __bool__(self) -> bool:
        return bool(self.batches or self.settling or self.notes)

    def joined(self) -> Iterator[JoinedBatch]:
        """Return what still lives of the batches, neighbours as one that have everything in common."""
        last: JoinedBatch | None = None
        for batch, held, location in self.batches:
            # What has gone already need not be written.
            entries = [entry for stored, entry in held if stored.live.overlaps(entry.first, entry.last)]
            if not entries or (last is not None and last.take(batch, entries, location)):
                continue
            if last is not None:
                yield last
            last = JoinedBatch(batch, entries, location)
        if last is not None:
            yield last


class JoinedBatch:
    """Batches that become one record."""

    __slots__ = ("_open", "batch", "entries", "locations")

    def __init__(self, batch: Batch, entries: list[Entry], location: Location) -> None:
        self.batch = in_one_piece(batch)
        self.entries = entries
        self.locations = [location]
        entry = entries[0]
        self._open = len(entries) == 1 and entry.start == 0 and entry.stop == len(batch.bodies)

    def take(self, batch: Batch, entries: list[Entry], location: Location) -> bool:
        """Take in the batch that follows, if it can be; return whether it was."""
        if not self._open or batch.envelope is not self.batch.envelope or len(entries) != 1:
            return False
        mine, other = self.entries[0], entries[0]
        follows = mine.queue == other.queue and mine.last == other.first and mine.expires == other.expires
        count = len(batch.bodies)
        if not follows or other.start or other.stop != count:
            return False
        if mine.stop + count > _MOST_JOINED or self.batch.size + batch.size > _MOST_JOINED_BYTES:
            return False
        if len(self.locations) == 1:  # what was handed to us must not change
            self.batch = msgspec.structs.replace(self.batch, bodies=list(self.batch.bodies))
        self.batch.extend(in_one_piece(batch))
        self.entries = [mine._replace(stop=mine.stop + count)]
        self.locations.append(location)
        return True
