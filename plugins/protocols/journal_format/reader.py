"""A journal as a reader sees it: rows by offset, over all its segments.  Any number of readers, in any process.

A reader takes no lock and writes nothing.  It trusts the index alone, so it never meets half a batch of a writer that is
at work, or was killed; it notices that a segment has been compacted or deleted, and looks again.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from plugins.protocols.journal_format.decode import flat, rows_schema
from plugins.protocols.journal_format.errors import Damaged, OutOfRange
from plugins.protocols.journal_format.index import Entry
from plugins.protocols.journal_format.names import SegmentName, segment_names
from plugins.protocols.journal_format.segment import OnDamage, Segment, raise_damage

EVERYTHING = 1 << 62
"""Later than any offset."""


class Bounds(NamedTuple):
    """Which rows there are: ``earliest <= offset < end``."""

    earliest: int
    end: int


class SegmentInfo(NamedTuple):
    """What is known of a segment without reading it."""

    name: SegmentName
    start: int
    end: int
    record_batches: int
    bytes: int
    """Of the data file, as far as it is committed."""
    min_ts: int
    """Of its first batch, microseconds since 1970 UTC."""
    max_ts: int
    """Of its last batch."""


class JournalReader:
    """Reads the journal in a directory; one that is not there yet is empty."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    def __repr__(self) -> str:
        return f"<JournalReader {self.path}>"

    def bounds(self) -> Bounds:
        """Return which rows there are: a listing, and the last entry of the last segment."""
        names = segment_names(self.path)
        for name in reversed(names):
            segment = self._open(name)
            if segment is None:
                return self.bounds()  # compacted or deleted meanwhile
            if len(segment) or name is names[0]:
                return Bounds(names[0].base, segment.end)
        return Bounds(names[0].base, names[0].base) if names else Bounds(0, 0)

    def segments(self) -> list[Segment]:
        """Return the segments that hold the journal's rows now: of several generations the newest."""
        found: list[Segment] = []
        end = -1
        for name in segment_names(self.path):
            if name.base < end:
                continue  # superseded by a compacted one
            segment = self._open(name)
            if segment is None:
                return self.segments()
            if found and found[-1].name.base == name.base:
                continue
            found.append(segment)
            end = segment.end
        return found

    def sealed(self) -> list[Segment]:
        """Return the segments that nobody writes to any more: those before the last one with rows.

        One without any may be taken back, for want of room; the one before is gone on with then.
        """
        found = self.segments()
        while found and not len(found[-1]):
            found.pop()
        return found[:-1]

    def summaries(self) -> list[SegmentInfo]:
        """Return what there is to know of each segment at a glance."""
        return [_summary(segment) for segment in self.segments()]

    def record_batches(
        self,
        start: int = 0,
        stop: int = EVERYTHING,
        columns: Sequence[str] | None = None,
        on_damage: OnDamage | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Yield rows with ``start <= offset < stop`` in order, a batch for each commit.

        ``columns`` are names of ``schema.ROWS``; None: all.  Raises ``OutOfRange`` when rows from ``start`` on are no longer
        there (ask ``bounds`` first for what is), ``Damaged`` at the first damage unless ``on_damage`` takes it.
        """
        schema = rows_schema(columns)
        for stored in self.stored(start, stop, columns, on_damage):
            yield flat(stored, schema)

    def stored(
        self,
        start: int = 0,
        stop: int = EVERYTHING,
        columns: Sequence[str] | None = None,
        on_damage: OnDamage | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """The same as they are stored (``schema.STORED``), with the stored columns that ``columns`` need."""
        offset = start
        while offset < stop:
            segment = self._segment_with(offset, stop)
            if segment is None:
                later = [name.base for name in segment_names(self.path) if name.base > offset]
                segment = self._segment_with(offset, stop)  # what was looked at first may have grown, or gone
                if segment is None and not later:
                    return
            if segment is None:
                behind = min(later[0], stop)
                (on_damage or raise_damage)(Damaged(str(self.path), offset, behind, "in no segment"))
                offset = behind
                continue
            try:
                for end, record_batch in segment.stored(offset, stop, columns, on_damage):
                    offset = end
                    yield record_batch
            except FileNotFoundError:  # deleted or compacted between the look at its index and at its data
                if not segment.lost_its_data():
                    continue
                tell = on_damage or raise_damage
                tell(Damaged(str(segment.data_path), offset, min(segment.end, stop), "the file is missing"))
            offset = max(segment.end, offset)

    def offset_at(self, ts: int) -> int:
        """Return the first offset of the first batch with a row at or after ``ts`` (microseconds since 1970 UTC)."""
        entry = self._entry_at(ts)
        return self.bounds().end if entry is None else entry.offset

    def row_at(self, ts: int, on_damage: OnDamage | None = None) -> int:
        """Return the offset of the first row at or after ``ts``; the journal's end if there is none.

        Raises ``Damaged``; if ``on_damage`` takes it, the damaged batch counts as one row.
        """
        from pyarrow import compute

        entry = self._entry_at(ts)
        if entry is None:
            return self.bounds().end
        record_batch = next(self.record_batches(entry.offset, entry.end, ["offset", "ts"], on_damage), None)
        if record_batch is None:
            return entry.offset
        later = compute.greater_equal(record_batch.column("ts").cast(pa.int64()), ts)
        place = compute.index(later, True).as_py()
        return int(record_batch.column("offset")[max(place, 0)].as_py())

    def _entry_at(self, ts: int) -> Entry | None:
        """Return the first batch with a row at or after ``ts``."""
        for segment in self.segments():
            last = segment.last()
            if last is not None and last.max_ts >= ts:
                entries = segment.entries()
                return entries[bisect_left(entries, ts, key=lambda entry: entry.max_ts)]
        return None

    def _segment_with(self, offset: int, stop: int) -> Segment | None:
        """Return a segment to read from ``offset`` on; None at the end of what is committed."""
        names = segment_names(self.path)
        if not names or offset >= stop:
            return None
        if offset < names[0].base:
            raise OutOfRange(str(self.path), offset, min(names[0].base, stop))
        at = bisect_right(names, offset, key=lambda name: name.base)
        for name in reversed(names[:at]):
            segment = self._open(name)
            if segment is None:
                return self._segment_with(offset, stop)
            if offset < segment.end:
                return segment
        return None

    def _open(self, name: SegmentName) -> Segment | None:
        try:
            return Segment(self.path, name)
        except FileNotFoundError:
            return None


def _summary(segment: Segment) -> SegmentInfo:
    last = segment.last()
    if last is None:
        return SegmentInfo(segment.name, segment.name.base, segment.name.base, 0, 0, 0, 0)
    first = segment.first()
    return SegmentInfo(
        segment.name, segment.name.base, last.end, len(segment), last.stop, first.min_ts, last.max_ts
    )
