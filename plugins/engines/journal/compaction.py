"""Compaction: merges many small commits into few large, compressed ones, in a new generation of a segment.

Rows keep their offsets.  The segment that a writer appends to is left out, and so are segments with damage,
and those in an archive.

The order makes a crash harmless at every point: the new data file is written and synchronised; its index is
put in place as a whole, and from then on readers use the new generation; only then the old segments are
deleted, index before data. A data file without an index is a compaction that was killed;
``recovery.remove_superseded`` deletes it.  Readers that have old files open keep reading them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from kernel.hosting.appending import AppendedFile, Disk
from plugins.engines.journal.index_repair import write_index
from plugins.engines.journal.lock import compaction_lock
from plugins.engines.journal.moving import finish_move
from plugins.engines.journal.recovery import remove_superseded
from plugins.protocols.journal_format.checksum import crc32
from plugins.protocols.journal_format.errors import Damaged
from plugins.protocols.journal_format.index import COMPRESSED, Entry, Header
from plugins.protocols.journal_format.names import FILE_MODE, SegmentName
from plugins.protocols.journal_format.reader import JournalReader
from plugins.protocols.journal_format.record_batch import RecordBatchEncoder, envelope_table
from plugins.protocols.journal_format.schema import STORED, STORED_BYTES
from plugins.protocols.journal_format.segment import Segment

ROWS = 65_536
BYTES = 16 << 20
"""Limits of a compacted commit.  A single commit that is larger is copied as it is."""


class Compacted(NamedTuple):
    """The result of compacting some neighbouring segments into one."""

    name: SegmentName
    segments: int
    batches_before: int
    record_batches: int
    bytes_before: int
    bytes: int


def compact(
    journal: Path,
    *,
    compression: str | None = "zstd",
    segment_bytes: int = 1 << 30,
    on_rows: Callable[[int], object] = lambda _: None,
    on_damage: Callable[[Damaged], object] = lambda _: None,
) -> list[Compacted]:
    """Compact the segments that ``candidates`` returns.

    ``segment_bytes`` limits the input of one new segment.  ``on_rows`` is called with a number of rows, as
    progress. ``on_damage`` is called for each damaged segment, which is left as it is.  Raises
    ``JournalBusy``.
    """
    with compaction_lock(journal):
        return compact_locked(
            journal,
            compression=compression,
            segment_bytes=segment_bytes,
            on_rows=on_rows,
            on_damage=on_damage,
        )


def compact_locked(
    journal: Path,
    *,
    compression: str | None,
    segment_bytes: int,
    on_rows: Callable[[int], object] = lambda _: None,
    on_damage: Callable[[Damaged], object] = lambda _: None,
) -> list[Compacted]:
    """Do what ``compact`` does, for a caller that holds the lock for compaction."""
    # First finish a move to Parquet that was killed: its rows must not get into one segment with others, or
    # they could not be deleted any more.
    finish_move(journal)
    remove_superseded(journal)
    done = []
    groups = candidates(journal, segment_bytes)
    for group in groups:
        try:
            done.append(_compact(journal, group, compression, on_rows))
        except Damaged as damage:
            on_damage(damage)
            # The loop goes on with them: one bad commit must not keep its neighbours from being compacted.
            groups += filter(_is_worth_it, _beside(damage, journal, group))
        except FileNotFoundError:
            # Retention, in the writer's process, has deleted some of them meanwhile.
            pass
    return done


def candidates(journal: Path, segment_bytes: int) -> list[list[Segment]]:
    """Return groups of neighbouring segments that are worth compacting.

    Each has at most ``segment_bytes``.
    """
    groups: list[list[Segment]] = []
    size = 0
    for segment in JournalReader(journal, with_archive=False).sealed():
        last = segment.last()
        if last is None:
            continue
        # A compacted segment stands for all offsets from its first to its last row, so it must not have gaps.
        is_neighbour = groups and groups[-1][-1].end == segment.name.base
        if not is_neighbour or size + last.stop > segment_bytes:
            groups.append([])
            size = 0
        groups[-1].append(segment)
        size += last.stop
    return [group for group in groups if _is_worth_it(group)]


def merge(record_batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    """Return one stored batch with the rows of several.  Its dictionary has each envelope once."""
    numbers: dict[tuple[object, ...], int] = {}
    indices = []
    for record_batch in record_batches:
        column = record_batch.column("envelope")
        # Each commit has a dictionary of its own.  The merged one has each envelope once, and the rows get
        # its numbers.
        rows = [tuple(row.values()) for row in column.dictionary.to_pylist()]
        # Envelope by envelope, not row by row; ``take`` then translates the whole column.
        mapped = pa.array([numbers.setdefault(row, len(numbers)) for row in rows], pa.int32())
        indices.append(mapped.take(column.indices))
    columns = {
        name: pa.concat_arrays([record_batch.column(name) for record_batch in record_batches])
        for name in STORED.names
        if name != "envelope"
    }
    columns["envelope"] = pa.DictionaryArray.from_arrays(
        pa.concat_arrays(indices), envelope_table(list(numbers))
    )
    return pa.RecordBatch.from_arrays([columns[name] for name in STORED.names], schema=STORED)


def _beside(damage: Damaged, journal: Path, group: list[Segment]) -> Iterator[list[Segment]]:
    """Yield the segments of a group before and after the damaged one, as two smaller groups."""
    for number, segment in enumerate(group):
        if damage.segment in map(str, (segment.name.data_path(journal), segment.name.index_path(journal))):
            yield from filter(None, (group[:number], group[number + 1 :]))


def _is_worth_it(group: list[Segment]) -> bool:
    """Return whether a group has several segments, or one whose commits are small or not compressed."""
    if len(group) > 1:
        return True
    (segment,) = group
    last = segment.last()
    assert last is not None
    rows = last.end - segment.name.base
    # One segment alone is worth it if merging its commits gains much, or compressing them.
    small = rows / len(segment) < ROWS / 4 and last.stop / len(segment) < BYTES / 16
    return (len(segment) > 1 and small) or not last.flags & COMPRESSED


def _compact(
    journal: Path, group: list[Segment], compression: str | None, on_rows: Callable[[int], object]
) -> Compacted:
    # Higher than each generation in the group: readers prefer the highest one with the same base.
    name = SegmentName(group[0].name.base, max(segment.name.generation for segment in group) + 1)
    disk = Disk()
    created = group[0].header.created
    header = Header(name.base, name.generation, len(STORED_BYTES), crc32(STORED_BYTES), created)
    try:
        entries = _write_data(disk, name.data_path(journal), group, RecordBatchEncoder(compression), on_rows)
        write_index(journal, header, entries, disk)
    except BaseException:
        # If the index could be put in place, readers use the new segment already, and its data must stay.
        # Also for Ctrl-C, hence ``BaseException``.
        if not name.index_path(journal).exists():
            name.data_path(journal).unlink(missing_ok=True)
        raise
    # From here on the new segment counts.  A crash leaves old segments, which ``remove_superseded`` deletes.
    before = sum(map(_size, group))
    for segment in group:
        segment.name.index_path(journal).unlink(missing_ok=True)
        segment.name.data_path(journal).unlink(missing_ok=True)
    return Compacted(name, len(group), sum(map(len, group)), len(entries), before, entries[-1].stop)


def _write_data(
    disk: Disk,
    path: Path,
    group: list[Segment],
    encoder: RecordBatchEncoder,
    on_rows: Callable[[int], object],
) -> list[Entry]:
    """Write the rows of some segments as few commits into a new file; synchronise it; return the entries."""
    data = AppendedFile.create(disk, path, mode=FILE_MODE)
    entries: list[Entry] = []
    try:
        data.write(STORED_BYTES)
        for record_batches in _grouped(group):
            merged = merge(record_batches)
            first = merged.column("offset")[0].as_py()
            ts = merged.column("ts").cast(pa.int64())
            envelopes = len(merged.column("envelope").dictionary)
            encoded = encoder.encode_stored(merged, first, ts[0].as_py(), ts[-1].as_py(), envelopes)
            # Before the write, which moves the position.
            entries.append(encoded.entry._replace(position=data.position))
            data.write(encoded.data)
            encoder.reuse(encoded)
            on_rows(merged.num_rows)
        # Before the index is written: an index makes the rows valid.
        data.sync()
    finally:
        data.close()
    return entries


def _grouped(group: list[Segment]) -> Iterator[list[pa.RecordBatch]]:
    """Divide the commits of some segments into groups that become one commit each.  Raises ``Damaged``."""
    record_batches: list[pa.RecordBatch] = []
    rows = size = 0
    for segment in group:
        for _, record_batch in segment.stored(segment.name.base, segment.end):
            if record_batches and (rows + record_batch.num_rows > ROWS or size + record_batch.nbytes > BYTES):
                yield record_batches
                record_batches, rows, size = [], 0, 0
            record_batches.append(record_batch)
            rows += record_batch.num_rows
            size += record_batch.nbytes
    if record_batches:
        yield record_batches


def _size(segment: Segment) -> int:
    last = segment.last()
    return 0 if last is None else last.stop
