"""Pending: what a log was told to write and what is in no group yet."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

import msgspec

from kernel.contracts.message import Batch
from plugins.engines.broker.storage.framing import Kind
from plugins.engines.broker.storage.location import Location
from plugins.engines.broker.storage.message_records import Entry, single_part
from plugins.engines.broker.storage.stored_queue import StoredQueue

StoredEntry: TypeAlias = tuple[StoredQueue, Entry]

_MOST_JOINED = 256
_MOST_JOINED_BYTES = 64 * 1024
"""Messages and octets up to which single messages are joined to one record.  If it is damaged, so many are
lost."""


class Pending(msgspec.Struct):
    """Definitions, batches and acknowledged messages, in the order in which they came."""

    notes: list[tuple[Kind, bytes]] = []
    batches: list[tuple[Batch, list[StoredEntry], Location]] = []
    last_batch: Batch | None = None
    shared: set[int] = set()
    """Identities (``id``) of the batches that stored sets keep: each becomes one record."""
    acknowledging: dict[StoredQueue, None] = {}
    demanded: bool = False
    """Whether somebody waits until it is synced."""

    def __bool__(self) -> bool:
        return bool(self.batches or self.acknowledging or self.notes)

    def joined(self) -> Iterator[JoinedBatch]:
        """Return the batches that still have live messages.

        Consecutive batches of one queue and envelope are joined.
        """
        last: JoinedBatch | None = None
        others = self._gather() if self.shared else {}
        for batch, stored_entries, location in self.batches:
            # Messages that were acknowledged meanwhile need not be written.
            entries = [
                entry for stored, entry in stored_entries if stored.live.overlaps(entry.first, entry.last)
            ]
            more = others.get(id(batch)) if others else None
            # ``take`` joins only a batch that follows the last one in its queue, so the order of messages
            # stays.
            if not entries or (last is not None and not more and last.take(batch, entries, location)):
                continue
            # The batch before is as large as it gets; the present one begins another record.
            if last is not None:
                if last.is_joined:
                    last.finish()
                yield last
            last = JoinedBatch(batch, entries, location)
            if more:
                last.locations += more
        if last is not None:
            if last.is_joined:
                last.finish()
            yield last

    def _gather(self) -> dict[int, list[Location]]:
        """Move all entries of each shared batch to its first part.

        Return the locations of its other parts, which become those of the first.
        """
        # A batch has several parts if a queue had to make room before it could accept it, and gave up other
        # messages then.
        first: dict[int, list[StoredEntry]] = {}
        others: dict[int, list[Location]] = {}
        for batch, entries, location in self.batches:
            if id(batch) not in self.shared:
                continue
            gathered = first.setdefault(id(batch), entries)
            if gathered is not entries:
                gathered += entries
                entries.clear()
                others.setdefault(id(batch), []).append(location)
        return others


class JoinedBatch:
    """Batches that become one record."""

    __slots__ = ("_open", "_total", "batch", "entries", "is_joined", "locations")

    def __init__(self, batch: Batch, entries: list[Entry], location: Location) -> None:
        self.batch = single_part(batch)
        self.locations = [location]
        self.entries = entries
        """Those of the first batch, until ``finish``."""
        self._total = count = len(batch.bodies)
        self.is_joined = False
        self._open = True
        # Only a batch that all its queues have whole can be joined with others.
        for entry in entries:
            if entry.start or entry.stop != count:
                self._open = False
                break

    def take(self, batch: Batch, entries: list[Entry], location: Location) -> bool:
        """Join the next batch if it directly follows; return whether it was joined."""
        # By identity, as elsewhere in the kernel: the messages of one flow share an envelope.
        if not self._open or batch.envelope is not self.batch.envelope or len(entries) != len(self.entries):
            return False
        total, count = self._total, len(batch.bodies)
        # Not larger: a damaged record costs all its messages, and a page is read by whole records.
        if total + count > _MOST_JOINED or self.batch.size + batch.size > _MOST_JOINED_BYTES:
            return False
        # The queues are those of one route, so they come in the same order.
        for (queue, base, _, _, expires), entry in zip(self.entries, entries, strict=True):
            if entry != (queue, base + total, 0, count, expires):
                return False
        # Spans in memory refer to the first batch and must not see it grow.
        if not self.is_joined:
            self.is_joined = True
            self.batch = msgspec.structs.replace(self.batch, bodies=list(self.batch.bodies))
        self.batch.extend(single_part(batch))
        self._total = total + count
        self.locations.append(location)
        return True

    def finish(self) -> None:
        """Make the entries those of all batches together, if any was joined."""
        # Each one follows in each of the queues, so that only the number of messages is another.
        self.entries = [entry._replace(stop=self._total) for entry in self.entries]
