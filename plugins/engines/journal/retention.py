"""Retention: which segments may be deleted, and their deletion.

The last segment, which the writer appends to, is never deleted.  With ``for_consumers`` neither is a segment
that a registered consumer has not read completely.
"""

from __future__ import annotations

from pathlib import Path

from kernel.hosting.disk import sync_directory
from plugins.engines.journal.archive_folder import raise_earliest
from plugins.engines.journal.options import KeepOptions
from plugins.engines.journal.positions import positions
from plugins.protocols.journal_format.names import SegmentName, segment_names
from plugins.protocols.journal_format.reader import JournalReader, SegmentInfo

_MICROSECONDS = 1_000_000


def expired(journal: Path, keep: KeepOptions, now: int) -> list[SegmentInfo]:
    """Return the segments that may be deleted at ``now`` (microseconds since 1970 UTC), the oldest first.

    Raises ``JournalError`` if a consumer's position cannot be read.
    """
    # The usual case, without reading the directory.
    if keep.bytes is None and keep.seconds is None and not keep.unread_only:
        return []
    segments = JournalReader(journal).summaries()
    consumers = positions(journal).values() if keep.for_consumers or keep.unread_only else ()
    unread = min(consumers, default=None)
    total = sum(segment.bytes for segment in segments)
    found: list[SegmentInfo] = []
    # From the oldest on.  The first one that is to be kept ends the search: a gap in the middle would be
    # taken for damage.
    for segment in segments[:-1]:
        if keep.for_consumers and unread is not None and segment.end > unread:
            break
        too_many = keep.bytes is not None and total > keep.bytes
        too_old = keep.seconds is not None and segment.max_ts < now - keep.seconds * _MICROSECONDS
        # Without any consumer nothing has been read by all, so nothing is deleted.
        read = keep.unread_only and unread is not None and segment.end <= unread
        if not (too_many or too_old or read):
            break
        total -= segment.bytes
        found.append(segment)
    return found


def delete(journal: Path, segments: list[SegmentInfo]) -> None:
    """Delete segments, of each the index first: a data file without an index has no rows for a reader.

    Before a compacted segment, the segments that it has replaced are deleted.  A compaction that was killed
    may have left some of them, and readers would find their rows again.

    Raises ``ArchiveUnavailable`` if the journal has an archive that cannot be reached.

    The order holds after a loss of power, too: each index is durably gone before its data file and before the
    next index.
    """
    if not segments:
        return
    # Readers of an archive take what is before its first offset for deleted, and what is missing
    # behind it for lost.
    archive = raise_earliest(journal, segments[-1].end)
    for segment in segments:
        if archive is not None and segment.archived:
            archive.delete_segment(segment.name)
            continue
        # The old ones first: once the compacted segment has gone, readers would take them for valid.
        for name in [*_superseded(journal, segment), segment.name]:
            name.index_path(journal).unlink(missing_ok=True)
            # Not every file system keeps the order of two deletions.  An index without data is damage to
            # readers, and so is a gap, if a later segment has gone and this one is back.  A data file without
            # an index is harmless: recovery makes the index again, and retention deletes both again.
            sync_directory(journal)
            name.data_path(journal).unlink(missing_ok=True)


def _superseded(journal: Path, segment: SegmentInfo) -> list[SegmentName]:
    """Return the segments whose rows are all in ``segment``, which a compaction has written."""
    base, generation = segment.name
    return [
        name
        for name in segment_names(journal)
        if base < name.base < segment.end or (name.base == base and name.generation < generation)
    ]
