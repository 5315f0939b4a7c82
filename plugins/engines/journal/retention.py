"""Which segments may go.  Never the one that is written to, never what a registered consumer still needs."""

from __future__ import annotations

from pathlib import Path

from plugins.engines.journal.options import KeepOptions
from plugins.protocols.journal_format.consumers import positions
from plugins.protocols.journal_format.names import SegmentName, segment_names
from plugins.protocols.journal_format.reader import JournalReader, SegmentInfo

_MICROSECONDS = 1_000_000


def expired(journal: Path, keep: KeepOptions, now: int) -> list[SegmentInfo]:
    """Return the segments that may be deleted at ``now`` (microseconds), the oldest first.

    Raises ``JournalError`` if it cannot be known what a consumer still needs.
    """
    if keep.bytes is None and keep.seconds is None and not keep.unread_only:
        return []
    segments = JournalReader(journal).summaries()
    consumers = positions(journal).values() if keep.for_consumers or keep.unread_only else ()
    unread = min(consumers, default=None)
    total = sum(segment.bytes for segment in segments)
    found: list[SegmentInfo] = []
    for segment in segments[:-1]:
        if keep.for_consumers and unread is not None and segment.end > unread:
            break
        too_many = keep.bytes is not None and total > keep.bytes
        too_old = keep.seconds is not None and segment.max_ts < now - keep.seconds * _MICROSECONDS
        read = keep.unread_only and unread is not None and segment.end <= unread
        if not (too_many or too_old or read):
            break
        total -= segment.bytes
        found.append(segment)
    return found


def delete(journal: Path, segments: list[SegmentInfo]) -> None:
    """Delete segments: the index first, so that a half-deleted one does not exist.

    Before each, what it stands for and a compaction that was killed has left: it would come back.
    """
    for segment in segments:
        for name in [*_superseded(journal, segment), segment.name]:
            name.index_path(journal).unlink(missing_ok=True)
            name.data_path(journal).unlink(missing_ok=True)


def _superseded(journal: Path, segment: SegmentInfo) -> list[SegmentName]:
    base, generation = segment.name
    return [
        name
        for name in segment_names(journal)
        if base < name.base < segment.end or (name.base == base and name.generation < generation)
    ]
