"""Moves segments that are complete from a journal's directory to its archive, and deletes them there.

Each segment is moved in steps.  Every step can be repeated, and after each of them, also if the process is
killed, all rows are in a segment that readers find:

1. It is compacted together with its neighbours, if it has small commits.
2. Its data file is copied to the archive.
3. Its index is copied.  From here on it is in both places, with the same rows; readers take the local one.
4. The archive's record says how far its rows go, then ``archive.json`` in the directory does.
5. The local index is deleted, then the local data file.

A reader lists the directory first and the archive second, so that it finds a segment in at least one of them.
A segment that is damaged stays where ``kernel journal repair`` can mend it.

Deleting (``retention.py``) raises the record's first offset before it deletes: what is before it does not
exist for readers, even if the deletion is cut short.  The next call of ``archive_sealed`` finishes that.

The lock for compaction is held all the time, so that no other process compacts a segment
that is being copied.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from kernel.hosting.appending import Disk
from kernel.hosting.disk import sync_directory
from plugins.engines.journal.archive_folder import ArchiveFolder
from plugins.engines.journal.compaction import compact_locked
from plugins.engines.journal.index_repair import is_whole, repair
from plugins.protocols.journal_format.errors import Damaged, JournalError
from plugins.protocols.journal_format.folders import (
    Archive,
    Archived,
    archived_of,
)
from plugins.protocols.journal_format.identity import encode_identity, identity_in, identity_of
from plugins.protocols.journal_format.names import (
    ARCHIVE,
    IDENTITY,
    SegmentName,
    segment_names,
    segments_among,
    without_index,
    without_index_among,
)
from plugins.protocols.journal_format.reader import JournalReader
from plugins.protocols.journal_format.segment import Segment

_SEGMENT_BYTES = 1 << 30
"""Largest size of the segments that are made one before they are moved."""


class Moved(NamedTuple):
    """The result of ``archive_sealed``."""

    segments: int
    damaged: tuple[str, ...]
    """What is wrong with segments that are left in the directory."""


def archive_sealed(journal: Path, address: str, *, going: Callable[[], bool] = lambda: True) -> Moved:
    """Move all segments that are not written any more to the archive at ``address``; blocks.

    The caller holds the lock for compaction.  Raises ``ArchiveUnavailable``, ``Stopped`` if ``going`` is no
    longer true, and ``JournalError`` if the archive is another journal's.
    """
    folder = ArchiveFolder(address)
    # An index that somebody has replaced is in memory as it was.
    folder.archive.forget()
    record = _opened(journal, folder)
    _finish(journal, folder, record)
    damaged: list[str] = []
    compact_locked(
        journal,
        compression="zstd",
        segment_bytes=_SEGMENT_BYTES,
        on_damage=lambda damage: damaged.append(str(damage)),
    )
    moved = 0
    for segment in _sealed(journal):
        if wrong := _wrong_with(journal, segment):
            damaged.append(wrong)
            continue
        record = _move(journal, folder, segment, record, going)
        moved += 1
    return Moved(moved, tuple(dict.fromkeys(damaged)))


def _sealed(journal: Path) -> list[Segment]:
    """Return the segments of the directory that are not written any more."""
    return JournalReader(journal, with_archive=False).sealed()


def _opened(journal: Path, folder: ArchiveFolder) -> Archived:
    """Return the record of the archive, and make the archive ours if it is nobody's."""
    archive = folder.archive
    try:
        known = archived_of(journal)
    except JournalError:
        # The file is missing or damaged.  The archive knows the same, if it is ours.
        known = None
    if known is not None and known.address != archive.address:
        raise JournalError(
            f"{journal}: segments were moved to {known.address}, and the option archive is {archive.address}. Copy "
            f"everything there and put the new address into {journal / ARCHIVE}, or use the old one"
        )
    present = segments_among(archive.files())
    ours, theirs = identity_of(journal), identity_in(archive)
    if theirs is None and not present:
        folder.put_bytes(IDENTITY, encode_identity(ours or ""))
    elif theirs != ours:
        raise JournalError(
            f"{archive.address} is the archive of another journal than {journal}, or has lost its {IDENTITY}: give each "
            "journal its own address, or copy the file from the directory"
        )
    said = archive.record()
    both = [record for record in (said, known) if record is not None]
    if not both:
        first = JournalReader(journal, with_archive=False).bounds().earliest
        both = [Archived(archive.address, min([first, *(name.base for name in present)]), first)]
    # After a crash one of them may be behind.
    record = Archived(archive.address, max(each.earliest for each in both), max(each.end for each in both))
    if record != known or record != said:
        folder.note(journal, record)
    return record


def _finish(journal: Path, folder: ArchiveFolder, record: Archived) -> None:
    """Finish what was cut short: deletions in the archive, and copies that were complete."""
    archive = folder.archive
    files = archive.files()
    there = archive.names(record, again=True)
    # Retention has deleted their rows.
    for name in segments_among(files):
        if name not in there:
            folder.delete_segment(name)
    sealed = {segment.name: segment for segment in _sealed(journal)}
    # The beginning of a copy.  While its rows are in the directory it is not needed; otherwise it is all that
    # there is of a segment whose index was lost.
    bases = {name.base for name in segment_names(journal)}
    for name in without_index_among(files):
        if name.base < record.earliest or name.base in bases:
            folder.delete(name.data_name)
    for name in there:
        local = sealed.get(name)
        if local is not None and _is_copy(Segment(archive, name), local):
            folder.note(journal, record._replace(end=max(record.end, local.end)))
            _delete_local(journal, name)
    # Of these only the index had been deleted.
    for name in without_index(journal):
        if name in there:
            name.data_path(journal).unlink()


def _is_copy(copy: Segment, local: Segment) -> bool:
    """Return whether a segment in the archive has the rows of the local one."""
    assert isinstance(copy.folder, Archive)
    entries = local.raw_entries()
    return (
        copy.header_is_whole
        and None not in entries
        and copy.raw_entries() == entries
        and copy.folder.size(copy.name.data_name) == Path(local.data_location).stat().st_size
    )


def _wrong_with(journal: Path, segment: Segment) -> str:
    """Return what is wrong with a segment, after repairing its index; empty if it is whole."""
    if segment.lost_its_data():
        return str(Damaged(segment.data_location, segment.name.base, segment.end, "the file is missing"))
    raw = segment.raw_entries()
    if None in raw or not segment.header_is_whole or segment.entries() != raw:
        repaired = repair(journal, segment, Disk())
        if repaired.lost:
            return str(repaired.lost[0])
        segment.refresh()
    last = segment.last()
    if last is not None and not is_whole(segment, last):
        return str(Damaged(segment.data_location, last.offset, last.end, "the commit is damaged"))
    return ""


def _move(
    journal: Path, folder: ArchiveFolder, segment: Segment, record: Archived, going: Callable[[], bool]
) -> Archived:
    """Move a segment; return the new record."""
    name = segment.name
    folder.put(name.data_name, name.data_path(journal), going)
    folder.put_bytes(name.index_name, name.index_path(journal).read_bytes())
    record = record._replace(end=max(record.end, segment.end))
    folder.note(journal, record)
    _delete_local(journal, name)
    return record


def _delete_local(journal: Path, name: SegmentName) -> None:
    name.index_path(journal).unlink()
    # An index without data is damage for a reader, and not every file system keeps the
    # order of two deletions.
    sync_directory(journal)
    name.data_path(journal).unlink()
