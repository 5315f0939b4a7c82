"""What a writer does first: find where the journal really ends, and cut off what was never committed."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from plugins.engines.journal.data_file import DataFile
from plugins.engines.journal.disk import Disk
from plugins.engines.journal.lock import JournalBusy, compaction_lock
from plugins.engines.journal.mending import Mended, give_index, is_whole, mend, name_of
from plugins.engines.journal.segment_writer import SegmentWriter
from plugins.protocols.journal_format.consumers import furthest
from plugins.protocols.journal_format.errors import JournalError
from plugins.protocols.journal_format.index import SIZE
from plugins.protocols.journal_format.names import DATA, SegmentName, segment_names
from plugins.protocols.journal_format.reader import EVERYTHING
from plugins.protocols.journal_format.segment import Segment


class Recovered(NamedTuple):
    """What was found at the end of a journal; all zero after a writer that came to its end."""

    adopted: int = 0
    """Rows that were whole in the data, but not in the index."""
    replaced: int = 0
    """Entries of the index that were damaged, and made anew."""
    cut: int = 0
    """Bytes behind the last whole commit."""
    lost: int = 0
    """Rows at the end that a consumer has had, and that are no longer there."""


def recover(disk: Disk, journal: Path, now: int) -> tuple[SegmentWriter, Recovered]:
    """Return the segment to go on with; ``now`` in microseconds.  The caller holds the writer's lock.

    No offset that a consumer has passed is used again: it would take the new row for one that it has had.
    """
    segment, recovered = _last_segment(disk, journal, now)
    end, read = segment.end, furthest(journal, EVERYTHING)
    if read <= end:
        return segment, recovered
    try:
        segment.sync()  # first: a segment that follows says that this one is safe
        following = SegmentWriter.begin(disk, journal, SegmentName(read, 0), now)
    finally:
        segment.close()
    if not segment.entries:
        segment.name.index_path(journal).unlink()
        segment.name.data_path(journal).unlink()
    return following, recovered._replace(lost=read - end)


def _last_segment(disk: Disk, journal: Path, now: int) -> tuple[SegmentWriter, Recovered]:
    try:
        with compaction_lock(journal):
            remove_superseded(journal)
    except JournalBusy:
        pass  # it will do so itself
    give_index(journal, disk, compacted=False)
    names = segment_names(journal)
    if not names:
        return SegmentWriter.begin(disk, journal, SegmentName(0, 0), now), Recovered()
    segment = Segment(journal, names[-1])
    mended = mend(journal, segment, disk)
    recovered = Recovered(mended.adopted, mended.replaced, max(mended.behind, 0))
    if not mended.entries and mended.behind < 0:  # not even its beginning was written
        segment.name.index_path(journal).unlink()
        return SegmentWriter.begin(disk, journal, segment.name, now), recovered
    if mended.lost or mended.behind < 0 or (mended.entries and not is_whole(segment, mended.entries[-1])):
        return _after_damage(disk, journal, segment, mended, now), recovered
    writer = SegmentWriter(
        disk,
        segment.name,
        DataFile(disk, disk.reopen(segment.data_path, mended.stop), segment.data_path, mended.stop),
        disk.reopen(segment.name.index_path(journal), SIZE + SIZE * len(mended.entries)),
        entries=len(mended.entries),
        end=mended.end,
        created=segment.header.created or now,
    )
    return writer, recovered


def remove_superseded(journal: Path) -> None:
    """Delete what a compaction stands for, and what is left of one that did not come to its end."""
    end = -1
    for name in segment_names(journal):
        if name.base < end:
            name.index_path(journal).unlink()
            name.data_path(journal).unlink(missing_ok=True)
        else:
            end = Segment(journal, name).end
    for path in journal.glob(f"*{DATA}"):
        compacted = name_of(path)
        if compacted is not None and compacted.generation and not compacted.index_path(journal).exists():
            path.unlink()
    for path in journal.glob(".*.new"):
        path.unlink()


def _after_damage(disk: Disk, journal: Path, segment: Segment, mended: Mended, now: int) -> SegmentWriter:
    """Go on in a new segment: nothing is appended to one that has not all that its index promises."""
    name = SegmentName(mended.end, 0)
    if name.index_path(journal).exists():
        raise JournalError(
            f"{segment.data_path}: nothing of this segment can be read; move it away to go on without its rows"
        )
    return SegmentWriter.begin(disk, journal, name, now)
