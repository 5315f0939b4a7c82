"""Mending one segment: entries of the index that are damaged or missing are made anew from the data."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from plugins.engines.journal.disk import Disk
from plugins.protocols.journal_format.checksum import crc32
from plugins.protocols.journal_format.commit import commit_crc
from plugins.protocols.journal_format.decode import commit_at
from plugins.protocols.journal_format.errors import Damaged
from plugins.protocols.journal_format.index import Entry, Header, encode_entry, encode_header
from plugins.protocols.journal_format.names import DATA, SegmentName, segment_names
from plugins.protocols.journal_format.schema import STORED_BYTES
from plugins.protocols.journal_format.segment import Segment


class Mended(NamedTuple):
    """A segment after mending."""

    entries: list[Entry]
    stop: int
    """The position after the last commit."""
    end: int
    """The offset after the last row."""
    adopted: int
    """Rows that were whole in the data, but not in the index."""
    replaced: int
    """Entries of the index that were damaged or missing."""
    behind: int
    """Bytes of the data behind the last commit; negative: so many are missing."""
    lost: list[Damaged]
    """What could not be mended: an entry and its commit."""


def mend(journal: Path, segment: Segment, disk: Disk) -> Mended:
    """Bring a segment's index up to what its data prove.  The caller holds the writer's lock."""
    lost: list[Damaged] = []
    entries = segment.entries(lost.append)
    raw = segment.raw_entries()
    replaced = len(set(entries) - set(raw))
    stop = entries[-1].stop if entries else segment.header.data_start
    end = entries[-1].end if entries else segment.name.base
    found = list(whole_commits(segment, end, stop))
    if found:
        stop, end = found[-1].stop, found[-1].end
    entries = [*entries, *found]
    if found or replaced or lost or not segment.header_is_whole:
        write_index(journal, segment.header, entries, disk)
    adopted = sum(entry.rows for entry in found)
    behind = segment.data_path.stat().st_size - stop
    return Mended(entries, stop, end, adopted, replaced, behind, lost)


def whole_commits(segment: Segment, offset: int, position: int) -> Iterator[Entry]:
    """Yield the commits that follow each other from ``position`` on, by their own CRC, as far as they are whole."""
    with segment.data_path.open("rb") as file:
        file.seek(position)
        tail = pa.py_buffer(file.read())
    schema = segment.schema_bytes()
    at = 0
    while at < tail.size:
        entry = commit_at(tail, at, schema)
        if entry is None or entry.offset != offset:
            return
        yield entry._replace(position=position + at)
        offset, at = entry.end, entry.stop


def is_whole(segment: Segment, entry: Entry) -> bool:
    """Whether a commit is there, byte for byte."""
    with segment.data_path.open("rb") as file:
        file.seek(entry.position)
        commit = file.read(entry.length)
    return len(commit) == entry.length and commit_crc(commit, entry.check_at) == entry.crc


def give_index(journal: Path, disk: Disk, *, compacted: bool) -> None:
    """Give the data of segments that have no index an empty one, so that they can be mended.

    ``compacted``: also those of compacted ones.  Never while what they stand for is there: a compaction is at work on them, or was
    killed, and what it has written by then must not stand for all of it.
    """
    bases = {name.base for name in segment_names(journal)}
    for path in journal.glob(f"*{DATA}"):
        name = name_of(path)
        if name is None or (name.generation and (not compacted or name.base in bases)):
            continue
        if not name.index_path(journal).exists():
            header = Header(name.base, name.generation, len(STORED_BYTES), crc32(STORED_BYTES), 0)
            name.index_path(journal).write_bytes(encode_header(header))
            mend(journal, Segment(journal, name), disk)


def name_of(path: Path) -> SegmentName | None:
    """Return which segment a data file belongs to; None for another file."""
    base, _, generation = path.stem.partition("-")
    return SegmentName(int(base), int(generation)) if base.isdigit() and generation.isdigit() else None


def write_index(journal: Path, header: Header, entries: list[Entry], disk: Disk) -> None:
    """Put an index in its place as a whole: readers see what was there before, or this."""
    path = SegmentName(header.base, header.generation).index_path(journal)
    written = path.with_name(f".{path.name}.new")
    written.unlink(missing_ok=True)
    fd = disk.create(written)
    try:
        disk.write(fd, [encode_header(header), *map(encode_entry, entries)])
        disk.sync(fd)
    finally:
        disk.close(fd)
    written.replace(path)
    disk.sync_directory(journal)
