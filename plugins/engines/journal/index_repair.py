"""Repairs the index of a segment: damaged and missing entries are rebuilt from the data file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from kernel.hosting.appending import Disk, replace_file
from plugins.protocols.journal_format.checksum import crc32
from plugins.protocols.journal_format.commit import commit_crc
from plugins.protocols.journal_format.decode import commit_at
from plugins.protocols.journal_format.errors import Damaged
from plugins.protocols.journal_format.index import Entry, Header, encode_entry, encode_header
from plugins.protocols.journal_format.names import FILE_MODE, SegmentName, segment_names, without_index
from plugins.protocols.journal_format.schema import STORED_BYTES
from plugins.protocols.journal_format.segment import Segment


class Repaired(NamedTuple):
    """The result of repairing a segment."""

    entries: list[Entry]
    stop: int
    """The position after the last commit."""
    end: int
    """The offset after the last row."""
    adopted: int
    """Rows that were whole in the data but had no entry after the last one of the index; they have one
    now."""
    replaced: int
    """Entries of the index that were damaged or missing, and have been rebuilt."""
    behind: int
    """Bytes of the data file after the last commit; a negative number: bytes that are missing there."""
    lost: list[Damaged]
    """Rows that stay damaged: their entry and their commit are."""


def repair(journal: Path, segment: Segment, disk: Disk) -> Repaired:
    """Make a segment's index complete: an entry for each whole commit of its data file.

    The caller holds the writer's lock.  The index is written only if something changes.
    """
    lost: list[Damaged] = []
    if segment.lost_its_data():
        end = segment.end
        lost.append(Damaged(segment.data_location, segment.name.base, end, "the file is missing"))
        return Repaired([], 0, end, 0, 0, 0, lost)
    # These are the entries that are whole, and those that could be rebuilt from the data up to the last whole
    # one.
    entries = segment.entries(lost.append)
    raw = segment.raw_entries()
    # What is in the result and not in the file was rebuilt.
    replaced = len(set(entries) - set(raw))
    stop = entries[-1].stop if entries else segment.header.data_start
    end = entries[-1].end if entries else segment.name.base
    if entries and not is_whole(segment, entries[-1]):
        # The data decide if they are commits up to their end: then this is the index of another journal.
        other = list(whole_commits(segment, segment.name.base, segment.header.data_start))
        if other and other[-1].stop == segment.name.data_path(journal).stat().st_size:
            write_index(journal, segment.header, other, disk)
            replaced = len(set(other) - set(raw))
            return Repaired(other, other[-1].stop, other[-1].end, 0, replaced, 0, [])
    # Behind the last entry: a writer was killed between the data and the entry, or the index has lost its
    # end.  These rows were not confirmed unless they were synchronised, but they are whole, and keeping them
    # is always right.
    found = list(whole_commits(segment, end, stop))
    if found:
        stop, end = found[-1].stop, found[-1].end
    entries = [*entries, *found]
    if found or replaced or lost or not segment.header_is_whole:
        write_index(journal, segment.header, entries, disk)
    adopted = sum(entry.rows for entry in found)
    behind = segment.name.data_path(journal).stat().st_size - stop
    return Repaired(entries, stop, end, adopted, replaced, behind, lost)


def whole_commits(segment: Segment, offset: int, position: int) -> Iterator[Entry]:
    """Yield the entries of consecutive commits from ``position`` on, up to the first one that is not whole.

    ``offset`` is the offset that the first one must have.  The commits' own CRCs are checked; the index is
    not read.
    """
    with segment.folder.open(segment.name.data_name) as file:
        file.seek(position)
        # Only what is behind the last entry: usually nothing, or one commit.
        tail = pa.py_buffer(file.read())
    schema = segment.schema_bytes()
    at = 0
    while at < tail.size:
        entry = commit_at(tail, at, schema)
        # The chain of offsets has to be unbroken, or two rows could have the same offset.
        if entry is None or entry.offset != offset:
            return
        yield entry._replace(position=position + at)
        offset, at = entry.end, entry.stop


def is_whole(segment: Segment, entry: Entry) -> bool:
    """Return whether the data file has all bytes of a commit, unchanged."""
    with segment.folder.open(segment.name.data_name) as file:
        file.seek(entry.position)
        commit = file.read(entry.length)
    return len(commit) == entry.length and commit_crc(commit, entry.check_at) == entry.crc


def create_missing_indexes(journal: Path, disk: Disk, *, compacted: bool) -> None:
    """Create the missing indexes of data files, and fill them from the data.

    With ``compacted``, also those of compacted segments, but only if none of the segments that such a one
    replaces exists.  While they exist, a compaction is running or was killed: its data file may have only
    some of the rows.
    """
    bases = {name.base for name in segment_names(journal)}
    for name in without_index(journal):
        if name.generation and (not compacted or name.base in bases):
            continue
        header = Header(name.base, name.generation, len(STORED_BYTES), crc32(STORED_BYTES), 0)
        # Not durable, and need not be: without it the next recovery does the same again.
        name.index_path(journal).write_bytes(encode_header(header))
        repair(journal, Segment(journal, name), disk)


def write_index(journal: Path, header: Header, entries: list[Entry], disk: Disk) -> None:
    """Write an index as a whole: readers see the previous one or this one, also after a power failure."""
    path = SegmentName(header.base, header.generation).index_path(journal)
    octets = b"".join([encode_header(header), *map(encode_entry, entries)])
    replace_file(path, octets, mode=FILE_MODE, disk=disk)
