"""Reads the rows of a journal by offset, across all its segments.  Any number of readers, in any process.

A reader takes no lock and writes nothing.  A batch counts only if the index has an entry for it, and a writer
writes the entry after the data: a reader never sees an incomplete batch, neither of a running writer nor of
one that was killed.

Compaction and retention may delete a segment between two steps of a reader.  The rules that make this
harmless:

* compaction puts the new generation's index in place before it deletes the old files, so that every row is in
  a segment at every moment; of two generations with the same base the newest one counts;
* both delete the index before the data, so that a missing index says "deleted", and missing data with an
  index "damaged";
* whenever a segment has gone, the reader lists the directory again and goes on at the offset that it had
  reached.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from plugins.protocols.journal_format.decode import flat, rows_schema
from plugins.protocols.journal_format.errors import Damaged, OutOfRange
from plugins.protocols.journal_format.folders import (
    Archived,
    Directory,
    Files,
    Located,
    Location,
    is_address,
)
from plugins.protocols.journal_format.index import Entry
from plugins.protocols.journal_format.names import SegmentName
from plugins.protocols.journal_format.segment import OnDamage, Segment, raise_damage

EVERYTHING = 1 << 62
"""Greater than any offset."""


class Bounds(NamedTuple):
    """The rows that a journal has: ``earliest <= offset < end``."""

    earliest: int
    end: int


class SegmentInfo(NamedTuple):
    """What the index says about a segment; the data file is not read."""

    name: SegmentName
    start: int
    end: int
    record_batches: int
    bytes: int
    """Committed bytes of the data file."""
    min_ts: int
    """Time of the first batch, microseconds since 1970 UTC."""
    max_ts: int
    """Time of the last batch."""
    archived: bool = False
    """Whether it is in the archive only."""


class JournalReader:
    """Reads the journal in a directory, or in an archive alone (``s3://bucket/folder``).

    A directory that does not exist yet is an empty journal.  One that names its archive is read with it,
    unless ``with_archive`` is false.
    """

    def __init__(self, path: Location, *, with_archive: bool = True) -> None:
        self.path = path if is_address(path) else Path(path)
        self._files = Files(path, with_archive=with_archive)

    def __repr__(self) -> str:
        return f"<JournalReader {self.path}>"

    def bounds(self) -> Bounds:
        """Return which rows the journal has now.

        Cheap: one listing, and the last entry of the last segment.
        """
        listed, record = self._files.listed()
        earliest, end = _expected(listed, record)
        for found in reversed(listed):
            segment = self._open(found)
            if segment is None:
                # Compacted or deleted after the listing: begin again with a new one.
                return self.bounds()
            # A new segment may still be empty.  Then the end is that of the last one with rows.
            if len(segment) or found is listed[0]:
                return Bounds(earliest, max(segment.end, end))
        return Bounds(earliest, end)

    def next_base(self) -> int:
        """Return the offset at which the last segment begins, which may have no row yet.

        0 without segments.
        """
        listed, _ = self._files.listed()
        return listed[-1].name.base if listed else 0

    def segments(self) -> list[Segment]:
        """Return the segments that have the journal's rows now, without those that were compacted."""
        found: list[Segment] = []
        end = -1
        for each in self._files.listed()[0]:
            if each.name.base < end:
                continue  # its rows are in a compacted segment that begins earlier
            segment = self._open(each)
            if segment is None:
                return self.segments()
            # The generation before, which a compaction is about to delete.  The newest one comes first.
            if found and found[-1].name.base == each.name.base:
                continue
            found.append(segment)
            end = segment.end
        return found

    def sealed(self) -> list[Segment]:
        """Return the segments that no writer appends to any more: those before the last one with rows.

        The last segment may be empty.  A writer that finds the disk full may delete it and go on with the one
        before, so that one does not count as sealed yet.
        """
        found = self.segments()
        while found and not len(found[-1]):
            found.pop()
        return found[:-1]

    def summaries(self) -> list[SegmentInfo]:
        """Return a ``SegmentInfo`` of each segment."""
        return [_summary(segment) for segment in self.segments()]

    def record_batches(
        self,
        start: int = 0,
        stop: int = EVERYTHING,
        columns: Sequence[str] | None = None,
        on_damage: OnDamage | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Yield rows with ``start <= offset < stop`` in order, one batch for each commit.

        ``columns`` are names of ``schema.ROWS``; None: all.  Raises ``OutOfRange`` if retention has deleted
        the row ``start`` (``bounds`` says which rows there are).  Raises ``Damaged`` at the first damaged
        rows; with ``on_damage`` that is called instead, and the damaged rows are left out.
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
        """Yield the same rows with the columns of ``schema.STORED`` that ``columns`` need."""
        offset = start
        while offset < stop:
            segment = self._segment_with(offset, stop)
            if segment is None:
                # No segment has the row.  This is the end of the journal, or a gap, if there are later
                # segments.
                listed, record = self._files.listed()
                later = [found.name.base for found in listed if found.name.base > offset]
                # Rows that were moved to an archive, and are in none of its segments.
                if record is not None and record.end > offset:
                    later = [*later, record.end]
                # Look again after the listing: between the two looks the last segment may have grown, or a
                # compaction may have replaced it.  Only then a gap is certain.
                segment = self._segment_with(offset, stop)
                if segment is None and not later:
                    return
            if segment is None:
                behind = min(later[0], stop)
                (on_damage or raise_damage)(self.gap(offset, behind))
                offset = behind
                continue
            try:
                for end, record_batch in segment.stored(offset, stop, columns, on_damage):
                    # Noted before the batch is given out: if the segment disappears, reading goes on behind
                    # it.
                    offset = end
                    yield record_batch
            except FileNotFoundError:
                segment.folder.forget()
                if not segment.lost_its_data():
                    continue  # deleted or compacted after its index was read: find the rows' new segment
                report = on_damage or raise_damage
                report(Damaged(segment.data_location, offset, min(segment.end, stop), "the file is missing"))
            # Damaged rows at the end of the segment were reported and are passed.
            offset = max(segment.end, offset)

    def gap(self, offset: int, stop: int) -> Damaged:
        """Return what is known of offsets that are in no segment although later ones are."""
        listed, record = self._files.listed()
        before = [found for found in listed if found.name.base <= offset]
        lost = [found for found in self._files.without_index(record) if found.name.base <= offset]
        # The last one that begins there or before should have them.
        if lost and (not before or lost[-1].name.base > before[-1].name.base):
            name, folder = lost[-1]
            first = (
                ""
                if isinstance(folder, Directory)
                else f"copy {name.data_name} into the journal's directory: "
            )
            return Damaged(
                folder.location(name.index_name),
                offset,
                stop,
                f"the file is missing; {first}kernel journal repair makes it again",
            )
        if not before:
            # What is no longer in the directory was moved.
            where = str(self.path) if record is None else record.address
            return Damaged(where, offset, stop, "in no segment")
        name, folder = before[-1]
        mends = "; if this index was cut, kernel journal repair mends it"
        return Damaged(
            folder.location(name.index_name),
            offset,
            stop,
            "in no segment" + (mends if isinstance(folder, Directory) else ""),
        )

    def offset_at(self, ts: int) -> int:
        """Return the first offset of the first batch that has a row at or after ``ts``.

        ``ts`` is in microseconds since 1970 UTC.  Only indexes are read.  If there is no such batch, return
        the journal's end.
        """
        entry = self._entry_at(ts)
        return self.bounds().end if entry is None else entry.offset

    def row_at(self, ts: int, on_damage: OnDamage | None = None) -> int:
        """Return the offset of the first row at or after ``ts``; the journal's end if there is none.

        Raises ``Damaged`` if the batch is damaged; with ``on_damage`` that is called instead, and the offset
        of the batch's first row is returned.
        """
        from pyarrow import compute

        entry = self._entry_at(ts)
        if entry is None:
            return self.bounds().end
        record_batch = next(self.record_batches(entry.offset, entry.end, ["offset", "ts"], on_damage), None)
        if record_batch is None:
            return entry.offset
        later = compute.greater_equal(record_batch.column("ts").cast(pa.int64()), ts)
        row = compute.index(later, True).as_py()
        return int(record_batch.column("offset")[max(row, 0)].as_py())

    def time_at(self, offset: int) -> int | None:
        """Return when the batch that has the row ``offset`` was received, in microseconds since 1970 UTC.

        That is the time of its first row.  Only indexes are read.  None if there is no such row, or its
        segment is being deleted or compacted.
        """
        try:
            segment = self._segment_with(offset, EVERYTHING)
            entry = None if segment is None else segment.entry_at(offset)
        except (OutOfRange, FileNotFoundError):
            return None
        return None if entry is None else entry.min_ts

    def _entry_at(self, ts: int) -> Entry | None:
        """Return the entry of the first batch that has a row at or after ``ts``; None if there is none."""
        for segment in self.segments():
            last = segment.last()
            if last is not None and last.max_ts >= ts:
                entries = segment.entries()
                # Times never decrease from row to row, so the entries are sorted by ``max_ts``.
                return entries[bisect_left(entries, ts, key=lambda entry: entry.max_ts)]
        return None

    def _segment_with(self, offset: int, stop: int) -> Segment | None:
        """Return the segment that has the row ``offset``; None if none has: the end of the journal, or a gap.

        Raises ``OutOfRange`` if retention has deleted the row.
        """
        listed, record = self._files.listed()
        if not listed or offset >= stop:
            return None
        earliest, _ = _expected(listed, record)
        if offset < earliest:
            raise OutOfRange(str(self.path), offset, min(earliest, stop))
        at = bisect_right(listed, offset, key=lambda found: found.name.base)
        # The last segment that begins at or before the offset.  While a compaction deletes the old segments,
        # this may be one of them; its rows are the same.  It may also end before the offset, when a compacted
        # segment that begins earlier has the row.
        for found in reversed(listed[:at]):
            segment = self._open(found)
            if segment is None:
                return self._segment_with(offset, stop)
            if offset < segment.end:
                return segment
        return None

    def _open(self, found: Located) -> Segment | None:
        try:
            return Segment(found.folder, found.name)
        except FileNotFoundError:
            found.folder.forget()
            return None


def _expected(listed: list[Located], record: Archived | None) -> Bounds:
    """Return the first row, and an offset that the journal has reached.

    Of segments that have gone from an archive only the record tells.  Reading then finds a gap.
    """
    first = listed[0].name.base if listed else 0
    return Bounds(first, first) if record is None else Bounds(record.earliest, record.end)


def _summary(segment: Segment) -> SegmentInfo:
    last = segment.last()
    archived = not isinstance(segment.folder, Directory)
    if last is None:
        return SegmentInfo(segment.name, segment.name.base, segment.name.base, 0, 0, 0, 0, archived)
    return SegmentInfo(
        segment.name,
        segment.name.base,
        last.end,
        len(segment),
        last.stop,
        segment.first().min_ts,
        last.max_ts,
        archived,
    )
