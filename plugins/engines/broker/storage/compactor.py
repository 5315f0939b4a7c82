"""Compactor: limits a log to about twice the size of its live messages.

The oldest segment is deleted as soon as no message in it is live.  When most of the log is dead, and the
oldest segment has live messages, these are written again, a part of them with each of the next groups.

The compactor writes and deletes nothing itself: it tells the log what to write again and which segments to
delete.

Course: ``wanted`` chooses the oldest segment as the source.  ``step`` returns live messages of the source for
the next group.  ``has_moved`` notes where they are when that group is written; after the last group it
changes the extents of the pages and returns the source, which the log deletes.

Invariants:

* Only the oldest segment is compacted, and it is deleted only as a whole (rule 2 in ``log``).
* A message is written again while it is live.  It may be acknowledged before the new copy is written; its
  ACKNOWLEDGED record is then in the same group or in a later one, behind the copy (rule 1).
* Pages refer to the source until all its live messages are safe in their new places.  So a crash, an error or
  a read in between always finds them.
* Spans in memory refer to the source by their location, which is not changed: when the source is deleted,
  their location is no longer readable, and they are written again if they have to be paged out.

Cost: with half of the log dead, each octet that is freed costs one octet that is copied.  So in the long run
no message is written much more than twice (decision 10).
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
"""With fewer segments, compaction is not worth it."""
_LOOK_AFTER_GROUPS = 100
_LEAST_READ = 256 * 1024
"""Octets of the source that are read for a small group; for a large group, twice its size."""
_NEAR = 64 * 1024
"""Two extents with at most so many octets between them are joined, and read at once."""


class _NewExtent(NamedTuple):
    old_start: int
    extent: Extent


class Survivors(NamedTuple):
    """The live messages of one message record, to be written again as these records."""

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
        """Segments whose live messages were written again."""
        self._source: Segment | None = None
        self._records: Iterator[Record | Damage] = iter(())
        self._exhausted = False
        self._new_places: list[_NewExtent] = []
        self._saved = 0
        """Octets written again so far."""
        self._groups = 0
        # ``_groups`` and ``_looked_at``: groups, and octets, that were written since the last look.  A look
        # adds up all live messages, which is too much for each group.
        self._looked_at = 0
        # The segment that was asked about last, and a queue that had a live message in it.
        self._witness: tuple[Segment, int] | None = None
        # A source that could not be read.  It is not tried again before the next start, so the log grows
        # instead of reading it in vain with each group.
        self._unreadable: Segment | None = None

    def wanted(self, *, closing: bool) -> bool:
        """Whether to call ``step`` for the next group.  While ``closing``, no new source is begun."""
        segments = self._segments
        if self._source is not None:
            return True
        # With few segments there is little to gain, and a source that is begun must be finished: a broker
        # that is being closed would have to wait for it.
        if len(segments) < _FEWEST_SEGMENTS or closing or segments[0] is self._unreadable:
            return False
        self._groups += 1
        # Whatever comes first: many small groups, or an eighth of a segment.
        fresh = self._counters.written_bytes - self._looked_at
        if self._groups < _LOOK_AFTER_GROUPS and fresh < self._segment_bytes // 8:
            return False
        self._groups, self._looked_at = 0, self._counters.written_bytes
        if not self._pays():
            return False
        source = self._source = segments[0]
        self._exhausted = False
        self._new_places = []
        self._saved = 0
        self._records = iter(RecordReader(self._read, self._marker, 0, source.size))
        return True

    def step(self, group_bytes: int) -> list[Survivors]:
        """Return live messages of the source for the next group.

        ``group_bytes``: the octets of the group without them.
        """
        source = self._source
        assert source is not None, "called only if ``wanted`` returned True"
        survivors: list[Survivors] = []
        # The broker's thread reads and copies here, so only a part at a time.  In proportion to the group: a
        # busy log is compacted faster than it grows.
        budget = max(_LEAST_READ, 2 * group_bytes)
        try:
            for record in self._records:
                # What is damaged cannot be moved.  The messages are missing when their page is read, and are
                # reported as lost then.
                if isinstance(record, Damage):
                    self._on_damage(source, record)
                elif record.kind in MESSAGE_KINDS:
                    survivors += self._survivors(record)
                budget -= record.stop - record.start
                if budget <= 0:
                    return survivors
        except OSError as error:
            self._counters.last_error = str(error)
            # What was moved so far stays a second copy in later segments, which does no harm.
            self._unreadable, self._source = source, None
            return survivors
        self._exhausted = True
        return survivors

    def has_moved(self, group: Group, segment: Segment, at: int) -> Segment | None:
        """A group was written at offset ``at`` of a segment; return the source if it can be deleted now."""
        if self._source is None:
            return None
        for moved in group.moved:
            self._new_places.append(
                # In the order of the source, as ``step`` reads it: ``_new_extents`` bisects the list.
                _NewExtent(moved.old_start, Extent(segment, at + moved.start, at + moved.stop))
            )
            self._saved += moved.stop - moved.start
        return self._finish(self._source) if self._exhausted else None

    def dead(self) -> list[Segment]:
        """Return the oldest segments as far as they have no live message; never the last segment."""
        dead: list[Segment] = []
        # Never the last one, which is appended to.  The first one that lives ends the search: segments are
        # deleted from the oldest on (rule 2).
        for segment in self._segments[:-1]:
            if segment is self._source or self._lives(segment):
                break
            dead.append(segment)
        return dead

    def _read(self, offset: int, length: int) -> bytes:
        assert self._source is not None
        return self._files.read(self._source.name, offset, length)

    def _survivors(self, record: Record) -> list[Survivors]:
        """Return the live messages of a record, each range of them as a record of its own."""
        queues = self._queues
        alive = [
            (entry, first - entry.base, stop - entry.base)
            for entry in decode_head(record.payload).entries
            # A queue that was deleted has no live messages.
            if entry.queue in queues
            for first, stop in queues[entry.queue].live.within(entry.first, entry.last)
        ]
        if not alive:
            return []
        messages = decode_messages(record.payload)
        # Records of format 1 become records of the present format here; nothing else converts them.
        envelope = self._envelopes.current(record.kind, messages.envelope)
        records: list[tuple[list[Entry], Batch, bytes, int]] = []
        # One record may be stored for several queues that have acknowledged different parts of it.  A body
        # that any queue still needs is written again, once, with an entry for each queue that needs it.
        for low, high in Intervals((start, stop) for _, start, stop in alive).ranges():
            entries = [
                Entry(entry.queue, entry.base + low, start - low, stop - low, entry.expires)
                for entry, start, stop in alive
                if low <= start < high
            ]
            records.append((entries, batch_of(messages.bodies[low:high]), envelope, messages.priority))
        return [Survivors(record.start, records)]

    def _finish(self, source: Segment) -> Segment:
        """All live messages of the source are written elsewhere: change the extents of their pages."""
        # The pages change their extents only now, when everything is safe: until then they read the source.
        starts = [new_place.old_start for new_place in self._new_places]
        # A copy of the list, since ``detach`` changes it.
        for page in list(source.pages):
            page.detach()
            page.extents = self._new_extents(page, source, starts)
            page.attach()
        self._source = None
        self._new_places = []
        self._witness = None
        self.compacted += 1
        if 2 * self._saved < source.content:  # little had to be written: look at the next segment at once
            self._groups = _LOOK_AFTER_GROUPS
        return source

    def _new_extents(self, page: Reader, source: Segment, starts: list[int]) -> list[Extent]:
        extents: list[Extent] = []
        for extent in page.extents:
            if extent.segment is not source:
                extents.append(extent)
                continue
            # All records of the source that began within the old extent.  Messages of other queues among them
            # do no harm: a page reads its own positions only.
            low, high = bisect_left(starts, extent.start), bisect_left(starts, extent.stop)
            for new_place in self._new_places[low:high]:
                new = new_place.extent
                last = extents[-1] if extents else None
                # Records that were neighbours are neighbours again, unless other groups were written between
                # them.
                if last and last.segment is new.segment and 0 <= new.start - last.stop <= _NEAR:
                    extents[-1] = Extent(new.segment, last.start, new.stop)
                else:
                    extents.append(new)
        return extents

    def _lives(self, segment: Segment) -> bool:
        """Whether a segment may have live messages.

        The queue that had one at the last call is checked first.
        """
        stored = self._queues
        # The oldest segment is asked about after each group.  Mostly the queue that kept it last time still
        # does, and one look is enough.
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
        """Whether most of the log is dead, or the log has many small segments."""
        segments, segment_bytes = self._segments, self._segment_bytes
        size = sum(segment.content for segment in segments)
        # Each start, and each error of the disk, begins a segment, however little is in it.  Many of them
        # cost descriptors and repeat the definitions.
        if len(segments) > 2 * _FEWEST_SEGMENTS + 4 * size // segment_bytes:
            return True
        # More than half is dead, and by a whole segment more, so that there is something to gain.
        return 2 * sum(map(self._living_bytes, segments)) < size - segment_bytes

    def _living_bytes(self, segment: Segment) -> int:
        stored = self._queues
        count = sum(
            stored[queue].live.count(first, stop)
            for queue, (first, stop) in segment.ranges.items()
            if queue in stored
        )
        # An estimate: all messages of the segment count as equally large.  ``count`` may include messages of
        # a later segment, because ``ranges`` may have gaps.
        return segment.content * min(count, segment.entries) // segment.entries if segment.entries else 0
