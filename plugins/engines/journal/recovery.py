"""Recovery: a new writer finds the end of the journal, and cuts off data that was never committed.

A crash can leave the last segment in one of these states; earlier segments were synchronised before the next
one began:

* data after the last commit: cut off;
* whole commits in the data, but no entries for them (the index lost more than the data): entries are added;
* damaged entries with whole commits: the entries are rebuilt;
* entries without whole commits: nothing is appended to such a segment; a new one begins at the offset after
  it.

Rows are never deleted here.  What is cut off has no entry and is no whole commit, so it was never confirmed.
Everything can be repeated: a crash during recovery leaves a state that the next recovery handles.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from kernel.hosting.appending import AppendedFile, Disk
from plugins.engines.journal.data_file import DataFile
from plugins.engines.journal.index_repair import (
    Repaired,
    create_missing_indexes,
    is_whole,
    repair,
)
from plugins.engines.journal.lock import JournalBusy, compaction_lock
from plugins.engines.journal.positions import furthest
from plugins.engines.journal.segment_writer import SegmentWriter
from plugins.protocols.journal_format.errors import JournalError
from plugins.protocols.journal_format.index import SIZE
from plugins.protocols.journal_format.names import SegmentName, segment_names, without_index
from plugins.protocols.journal_format.reader import EVERYTHING
from plugins.protocols.journal_format.segment import Segment


class Recovered(NamedTuple):
    """What was repaired at the end of a journal; all zero if the last writer was closed properly."""

    adopted: int = 0
    """Rows that were whole in the data but had no entry in the index."""
    replaced: int = 0
    """Entries of the index that were damaged, and have been rebuilt."""
    cut: int = 0
    """Bytes after the last whole commit that were cut off."""
    lost: int = 0
    """Rows at the end that a consumer has read and that the journal no longer has."""


def recover(disk: Disk, journal: Path, now: int) -> tuple[SegmentWriter, Recovered]:
    """Return the segment to append to; ``now`` in microseconds.  The caller holds the writer's lock.

    An offset that a consumer has passed is never used again: the consumer would skip the new row as already
    read.
    """
    segment, recovered = _last_segment(disk, journal, now)
    end, read = segment.end, furthest(journal, EVERYTHING)
    if read <= end:
        return segment, recovered
    # A loss of power has taken rows that were written and not synchronised, and that a reader had already
    # seen.
    try:
        # Before the next one begins: recovery repairs the last segment only.
        segment.sync()
        following = SegmentWriter.begin(disk, journal, SegmentName(read, 0), now)
    finally:
        segment.close()
    # An empty segment would be between the others for ever, and its offsets are in no row.  The index first:
    # a data file without an index is no segment.
    if not segment.entries:
        segment.name.index_path(journal).unlink()
        segment.name.data_path(journal).unlink()
    return following, recovered._replace(lost=read - end)


def _last_segment(disk: Disk, journal: Path, now: int) -> tuple[SegmentWriter, Recovered]:
    try:
        with compaction_lock(journal):
            remove_superseded(journal)
            create_missing_indexes(journal, disk, compacted=True)
    except JournalBusy:
        # The running compaction removes superseded segments itself.  Not for compacted segments: without the
        # lock, such a data file may be one that is being written.
        create_missing_indexes(journal, disk, compacted=False)
    names = segment_names(journal)
    if not names:
        return SegmentWriter.begin(disk, journal, SegmentName(0, 0), now), Recovered()
    segment = Segment(journal, names[-1])
    repaired = repair(journal, segment, disk)
    recovered = Recovered(repaired.adopted, repaired.replaced, max(repaired.behind, 0))
    # Not even the schema is there, so the segment has no row.  It is begun again under the same name.
    if not repaired.entries and repaired.behind < 0 and not repaired.lost:
        segment.name.index_path(journal).unlink()
        return SegmentWriter.begin(disk, journal, segment.name, now), recovered
    if (
        repaired.lost
        or repaired.behind < 0
        # The last commit of the index is checked in full: it is the one whose data a loss of power is most
        # likely to have taken.  Earlier ones are checked when they are read.
        or (repaired.entries and not is_whole(segment, repaired.entries[-1]))
    ):
        return _after_damage(disk, journal, segment, repaired, now), recovered
    index_path, index_size = segment.name.index_path(journal), SIZE + SIZE * len(repaired.entries)
    # The kernel restarts an engine that fails here, so each descriptor that is left open is one for each
    # attempt.
    with ExitStack() as opened:
        data = AppendedFile.reopen(disk, segment.name.data_path(journal), repaired.stop)
        opened.callback(data.close)
        index = AppendedFile.reopen(disk, index_path, index_size)
        opened.callback(index.close)
        writer = SegmentWriter(
            segment.name,
            DataFile(disk, data, segment.name.data_path(journal)),
            index,
            entries=len(repaired.entries),
            end=repaired.end,
            created=segment.header.created or now,
        )
        opened.pop_all()
    return writer, recovered


def remove_superseded(journal: Path) -> None:
    """Delete segments that a compaction has replaced, and the files of a compaction that was killed.

    The caller holds the lock for compaction.
    """
    end = -1
    for name in segment_names(journal):
        segment = Segment(journal, name)
        # Its rows are in a compacted segment that was finished, but the process was killed before it deleted
        # the old ones.
        if name.base < end and segment.end <= end:
            name.index_path(journal).unlink()
            name.data_path(journal).unlink(missing_ok=True)
        elif name.base >= end and _may_supersede(segment):
            end = segment.end
    bases = {name.base for name in segment_names(journal)}
    for name in without_index(journal):
        # A compaction that was killed before its index was written: all its rows are still in the old
        # segments.  Without the first of these the index was lost, and this file has the only copy.
        if name.generation and name.base in bases:
            name.data_path(journal).unlink()
    # The beginning of a file that was to replace another (``replace_file``).
    for path in journal.glob(".*.new"):
        path.unlink()


def _may_supersede(segment: Segment) -> bool:
    """Return whether other segments may be deleted because this one has their rows.

    Its index alone does not prove that: it may be that of another journal.
    """
    if not segment.name.generation or not segment.header_is_whole or segment.lost_its_data():
        return False
    last = segment.last()
    return last is not None and is_whole(segment, last)


def _after_damage(disk: Disk, journal: Path, segment: Segment, repaired: Repaired, now: int) -> SegmentWriter:
    """Begin a new segment after one whose data does not have everything that its index lists."""
    name = SegmentName(repaired.end, 0)
    # The damaged segment has no row that can be read, so the new one would have the same name and overwrite
    # it.
    if name.index_path(journal).exists():
        raise JournalError(
            f"{segment.data_location}: nothing of this segment can be read; move it away to continue without its rows"
        )
    return SegmentWriter.begin(disk, journal, name, now)
