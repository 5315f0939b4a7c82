"""Compactor: keeps a log from growing beyond about twice what lives in it.

The oldest segment goes as soon as nothing in it lives.  When most of the log is dead, but something in the
oldest segment is not, then what lives there is written again with the next groups, a piece each.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from kernel.contracts.message import batch_of
from plugins.engines.broker.storage.framing import Damage, Record, RecordReader
from plugins.engines.broker.storage.group import Group, Moved
from plugins.engines.broker.storage.intervals import Intervals
from plugins.engines.broker.storage.message_records import MESSAGE_KINDS, Entry, decode_head, decode_messages
from plugins.engines.broker.storage.page import Extent, Page
from plugins.engines.broker.storage.segment import Segment

if TYPE_CHECKING:
    from plugins.engines.broker.storage.log import Log

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


class Compactor:
    """The compactor of one log."""

    def __init__(self, log: Log) -> None:
        self.log = log
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

    def wanted(self) -> bool:
        """Whether the next group is to take something along."""
        log = self.log
        if self._source is not None:
            return True
        if len(log.segments) < _FEWEST_SEGMENTS or log.closing or log.segments[0] is self._unreadable:
            return False
        self._groups += 1
        fresh = log.counters.written_bytes - self._looked_at
        if self._groups < _LOOK_AFTER_GROUPS and fresh < log.segment_bytes // 8:
            return False
        self._groups, self._looked_at = 0, log.counters.written_bytes
        if not self._pays():
            return False
        source = self._source = log.segments[0]
        self._exhausted = False
        self._homes = []
        self._saved = 0
        self._records = iter(RecordReader(self._read, log.marker, 0, source.size))
        return True

    def step(self, group: Group) -> None:
        """Add survivors of the segment that is being cleaned."""
        source = self._source
        assert source is not None, "asked for only when wanted"
        budget = max(_PIECE, 2 * group.size)
        try:
            for record in self._records:
                if isinstance(record, Damage):
                    self.log.has_damage(source, record)
                elif record.kind in MESSAGE_KINDS:
                    self._save(record, group)
                budget -= record.stop - record.start
                if budget <= 0:
                    return
        except OSError as error:
            self.log.counters.last_error = str(error)
            self._unreadable, self._source = source, None
            return
        self._exhausted = True

    def has_moved(self, group: Group, segment: Segment, at: int) -> None:
        """A group is safe, at this offset of a segment."""
        if self._source is None:
            return
        self._homes += [
            _Home(moved.old_start, Extent(segment, at + moved.start, at + moved.stop))
            for moved in group.moved
        ]
        if self._exhausted:
            self._finish(self._source)

    def forget_dead(self) -> None:
        """Have the segments at the front go that nothing lives in."""
        segments = self.log.segments
        while len(segments) > 1 and segments[0] is not self._source and not self._lives(segments[0]):
            self.log.forget(segments[0])

    def _read(self, offset: int, length: int) -> bytes:
        assert self._source is not None
        return self.log.files.read(self._source.name, offset, length)

    def _save(self, record: Record, group: Group) -> None:
        """Write what lives of a message record again, each stretch of it as a record."""
        stored = self.log.stored
        alive = [
            (entry, first - entry.base, stop - entry.base)
            for entry in decode_head(record.payload).entries
            if entry.queue in stored
            for first, stop in stored[entry.queue].live.within(entry.first, entry.last)
        ]
        if not alive:
            return
        messages = decode_messages(record.payload)
        envelope = self.log.current_envelope(record.kind, messages.envelope)
        begins = group.size
        for low, high in Intervals((start, stop) for _, start, stop in alive).ranges():
            entries = [
                Entry(entry.queue, entry.base + low, start - low, stop - low, entry.expires)
                for entry, start, stop in alive
                if low <= start < high
            ]
            batch = batch_of(messages.bodies[low:high])
            self.log.add_messages(group, entries, batch, envelope, messages.priority)
        group.moved.append(Moved(record.start, begins, group.size))
        self._saved += group.size - begins

    def _finish(self, source: Segment) -> None:
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
        self.log.forget(source)

    def _new_extents(self, page: Page, source: Segment, starts: list[int]) -> list[Extent]:
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
        stored = self.log.stored
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
        log = self.log
        size = sum(segment.content for segment in log.segments)
        if len(log.segments) > 2 * _FEWEST_SEGMENTS + 4 * size // log.segment_bytes:
            return True
        return 2 * sum(map(self._living_bytes, log.segments)) < size - log.segment_bytes

    def _living_bytes(self, segment: Segment) -> int:
        stored = self.log.stored
        count = sum(
            stored[queue].live.count(first, stop)
            for queue, (first, stop) in segment.ranges.items()
            if queue in stored
        )
        return segment.content * min(count, segment.entries) // segment.entries if segment.entries else 0
