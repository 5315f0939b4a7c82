"""Compactor: keeps a log from growing beyond about twice what lives in it.

The oldest segment goes as soon as nothing in it lives.  When most of the log is dead, but something in the
oldest segment is not, then what lives there is written again with the next groups, a piece each.

It changes nothing by itself: it says which segments to forget and what to write again, and the log does that.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from typing import NamedTuple

from kernel.contracts.message import Batch, batch_of
from plugins.engines.broker.storage.counters import LogCounters
from plugins.engines.broker.storage.envelopes import Envelopes
from plugins.engines.broker.storage.files import Files
from plugins.engines.broker.storage.framing import Damage, Record, RecordReader
from plugins.engines.broker.storage.group import Group
from plugins.engines.broker.storage.intervals import Intervals
from plugins.engines.broker.storage.location import Extent
from plugins.engines.broker.storage.message_records import MESSAGE_KINDS, Entry, decode_head, decode_messages
from plugins.engines.broker.storage.segment import Reader, Segment
from plugins.engines.broker.storage.stored_queue import StoredQueue

_FEWEST_SEGMENTS = 4
"""With fewer there is nothing to gain."""
_LOOK_AFTER_GROUPS = 100
_PIECE = 256 * 1024
"""Octets that are looked through with a small group; with a large one, twice its size."""
_NEAR = 64 * 1024
"""Octets between two places that are still read in one go."""


class _Home(NamedTuple):
    old_start: int
    extent: Extent


class Survivors(NamedTuple):
    """What lives of one message record: to be written again as these records."""

    old_start: int
    """Where the record begins in its segment."""
    records: list[tuple[list[Entry], Batch, bytes, int]]
    """Entries, messages, envelope and priority of each."""


class Compactor:
    """The compactor of one log."""

    def __init__(
        self,
        files: Files,
        marker: bytes,
        envelopes: Envelopes,
        segment_bytes: int,
        segments: list[Segment],
        queues: dict[int, StoredQueue],
        counters: LogCounters,
        on_damage: Callable[[Segment, Damage], None],
    ) -> None:
        """``segments``, ``queues`` and ``counters`` are the log's own, which change."""
        self._files = files
        self._marker = marker
        self._envelopes = envelopes
        self._segment_bytes = segment_bytes
        self._segments = segments
        self._queues = queues
        self._counters = counters
        self._on_damage = on_damage
        self.compacted = 0
        """Segments that were written again."""
        self._source: Segment | None = None
        self._records: Iterator[Record | Damage] = iter(())
        self._exhausted = False
        self._homes: list[_Home] = []
        self._saved = 0
        """Octets written again so far."""
        self._groups = 0
        self._looked_at = 0
        self._witness: tuple[Segment, int] | None = None
        self._unreadable: Segment | None = None

    def wanted(self, *, closing: bool) -> bool:
        """Whether the next group is to take something along; nothing new is begun while ``closing``."""
        segments = self._segments
        if self._source is not None:
            return True
        if len(segments) < _FEWEST_SEGMENTS or closing or segments[0] is self._unreadable:
            return False
        self._groups += 1
        fresh = self._counters.written_bytes - self._looked_at
        if self._groups < _LOOK_AFTER_GROUPS and fresh < self._segment_bytes // 8:
            return False
        self._groups, self._looked_at = 0, self._counters.written_bytes
        if not self._pays():
            return False
        source = self._source = segments[0]
        self._exhausted = False
        self._homes = []
        self._saved = 0
        self._records = iter(RecordReader(self._read, self._marker, 0, source.size))
        return True

    def step(self, group_bytes: int) -> list[Survivors]:
        """Return what the next group, which has so many octets, is to take along of the segment that is compacted."""
        source = self._source
        assert source is not None, "asked for only when wanted"
        survivors: list[Survivors] = []
        budget = max(_PIECE, 2 * group_bytes)
        try:
            for record in self._records:
                if isinstance(record, Damage):
                    self._on_damage(source, record)
                elif record.kind in MESSAGE_KINDS:
                    survivors += self._survivors(record)
                budget -= record.stop - record.start
                if budget <= 0:
                    return survivors
        except OSError as error:
            self._counters.last_error = str(error)
            self._unreadable, self._source = source, None
            return survivors
        self._exhausted = True
        return survivors

    def has_moved(self, group: Group, segment: Segment, at: int) -> Segment | None:
        """A group is safe, at this offset of a segment; return the segment that is to be forgotten, if one is."""
        if self._source is None:
            return None
        for moved in group.moved:
            self._homes.append(_Home(moved.old_start, Extent(segment, at + moved.start, at + moved.stop)))
            self._saved += moved.stop - moved.start
        return self._finish(self._source) if self._exhausted else None

    def dead(self) -> list[Segment]:
        """Return the segments at the front that nothing lives in; the last of all is never among them."""
        dead: list[Segment] = []
        for segment in self._segments[:-1]:
            if segment is self._source or self._lives(segment):
                break
            dead.append(segment)
        return dead

    def _read(self, offset: int, length: int) -> bytes:
        assert self._source is not None
        return self._files.read(self._source.name, offset, length)

    def _survivors(self, record: Record) -> list[Survivors]:
        """Return what lives of a message record, each stretch of it as a record of its own."""
        queues = self._queues
        alive = [
            (entry, first - entry.base, stop - entry.base)
            for entry in decode_head(record.payload).entries
            if entry.queue in queues
            for first, stop in queues[entry.queue].live.within(entry.first, entry.last)
        ]
        if not alive:
            return []
        messages = decode_messages(record.payload)
        envelope = self._envelopes.current(record.kind, messages.envelope)
        records: list[tuple[list[Entry], Batch, bytes, int]] = []
        for low, high in Intervals((start, stop) for _, start, stop in alive).ranges():
            entries = [
                Entry(entry.queue, entry.base + low, start - low, stop - low, entry.expires)
                for entry, start, stop in alive
                if low <= start < high
            ]
            records.append((entries, batch_of(messages.bodies[low:high]), envelope, messages.priority))
        return [Survivors(record.start, records)]

    def _finish(self, source: Segment) -> Segment:
        """All that lives of a segment is safe elsewhere: the pages learn where."""
        starts = [home.old_start for home in self._homes]
        for page in list(source.pages):
            page.detach()
            page.extents = self._new_extents(page, source, starts)
            page.attach()
        self._source = None
        self._homes = []
        self._witness = None
        self.compacted += 1
        if 2 * self._saved < source.content:  # it was worth it: the next one may be, too
            self._groups = _LOOK_AFTER_GROUPS
        return source

    def _new_extents(self, page: Reader, source: Segment, starts: list[int]) -> list[Extent]:
        extents: list[Extent] = []
        for extent in page.extents:
            if extent.segment is not source:
                extents.append(extent)
                continue
            low, high = bisect_left(starts, extent.start), bisect_left(starts, extent.stop)
            for home in self._homes[low:high]:
                new = home.extent
                last = extents[-1] if extents else None
                if last and last.segment is new.segment and 0 <= new.start - last.stop <= _NEAR:
                    extents[-1] = Extent(new.segment, last.start, new.stop)
                else:
                    extents.append(new)
        return extents

    def _lives(self, segment: Segment) -> bool:
        """Whether anything in a segment may live; the queue that said so last is asked first."""
        stored = self._queues
        if self._witness is not None and self._witness[0] is segment:
            queue = self._witness[1]
            if queue in stored and stored[queue].live.overlaps(*segment.ranges[queue]):
                return True
        for queue, (first, stop) in segment.ranges.items():
            if queue in stored and stored[queue].live.overlaps(first, stop):
                self._witness = segment, queue
                return True
        return False

    def _pays(self) -> bool:
        """Whether most of the log is dead, or in many small files."""
        segments, segment_bytes = self._segments, self._segment_bytes
        size = sum(segment.content for segment in segments)
        if len(segments) > 2 * _FEWEST_SEGMENTS + 4 * size // segment_bytes:
            return True
        return 2 * sum(map(self._living_bytes, segments)) < size - segment_bytes

    def _living_bytes(self, segment: Segment) -> int:
        stored = self._queues
        count = sum(
            stored[queue].live.count(first, stop)
            for queue, (first, stop) in segment.ranges.items()
            if queue in stored
        )
        return segment.content * min(count, segment.entries) // segment.entries if segment.entries else 0
