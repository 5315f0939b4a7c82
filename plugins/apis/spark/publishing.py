"""Phase two of writing into a journal: the driver appends what was staged, each epoch of a producer exactly once.

``producers/PRODUCER.json`` in the journal's directory has the producer's last epoch.  It is written before the first row
is appended, with all that is needed to go on after a crash (which files, from which offset, at which time), and again
when the last one is there.  Whoever finds an epoch that is not done looks which of its rows the journal has from that offset
on, and begins anew with the rest: at the journal's end, where another writer may have come in between, and at a time of
its own, since time never goes back in a journal.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from plugins.apis.spark.producers import Epoch, last_epoch, note
from plugins.apis.spark.staging import forget_epochs, staged
from plugins.engines.journal.lock import JournalBusy
from plugins.engines.journal.writer import JournalWriter
from plugins.protocols.journal_format.columns import offsets_from
from plugins.protocols.journal_format.reader import JournalReader
from plugins.protocols.journal_format.schema import STORED

TIMEOUT = 30.0
"""Seconds that another writer may keep the journal: another query's commit takes milliseconds."""


def publish(journal: Path, producer: str, epoch: int, files: Sequence[str]) -> bool:
    """Append the rows of staged files; return False if this epoch, or a later one, is there already.

    All rows survive a loss of power when this returns.  ``JournalBusy`` if another writer keeps the journal.
    """
    with _writer(journal) as writer:
        last = last_epoch(journal, producer)
        if last is not None and not last.done:
            rest = msgspec.structs.replace(
                last, appended=last.appended + _rows_there(journal, producer, last)
            )
            _append(writer, producer, rest)
        fresh = last is None or last.epoch < epoch
        if fresh and files:
            _append(writer, producer, Epoch(epoch, tuple(files)))
    forget_epochs(journal, producer, epoch)
    return fresh


def _append(writer: JournalWriter, producer: str, epoch: Epoch) -> None:
    """Append the rows of an epoch that are not there yet."""
    if epoch.appended:
        writer.sync()  # before it is noted: whoever was cut off had perhaps not come to it
    ts = writer.stamp(later=True)
    begun = msgspec.structs.replace(epoch, start=writer.next_offset, ts=ts)
    note(writer.path, producer, begun)
    for batch in _left(writer.path, producer, begun):
        stored = _stored(batch, writer.next_offset, ts)
        writer.append_stored(stored, ts, len(batch.column("envelope").dictionary))
    writer.sync()
    note(writer.path, producer, msgspec.structs.replace(begun, done=True))


def _left(journal: Path, producer: str, epoch: Epoch) -> Iterator[Any]:
    """Yield the staged batches of an epoch, but for those whose rows were appended when it was noted."""
    row = 0
    for name in epoch.files:
        for batch in staged(journal, producer, name):
            if row >= epoch.appended:
                yield batch
            row += batch.num_rows


def _rows_there(journal: Path, producer: str, epoch: Epoch) -> int:
    """Return how many rows were appended since an epoch was noted: a batch is there whole or not at all."""
    offset = epoch.start
    for batch in _left(journal, producer, epoch):
        if not _is_there(journal, offset, epoch.ts, batch):
            break
        offset += batch.num_rows
    return offset - epoch.start


def _stored(batch: Any, offset: int, ts: int) -> Any:
    rows = batch.num_rows
    stamps = pa.repeat(pa.scalar(ts, STORED.field("ts").type), rows)
    return pa.RecordBatch.from_arrays([offsets_from(offset, rows), stamps, *batch.columns], schema=STORED)


def _is_there(journal: Path, offset: int, ts: int, batch: Any) -> bool:
    """Whether the journal has the rows of a staged batch from ``offset`` on."""
    reader = JournalReader(journal)
    earliest, end = reader.bounds()
    if offset < earliest:
        return True  # and retention has taken them already
    if end < offset + batch.num_rows:
        return False
    if not any(segment.name.base <= offset < segment.end for segment in reader.segments()):
        return False  # lost with the power, and not used again because a consumer had passed it
    there = pa.Table.from_batches(reader.record_batches(offset, offset + batch.num_rows, ["ts", "body"]))
    stamps = there.column("ts").cast(pa.int64()).unique().to_pylist()
    bodies = pa.chunked_array([batch.column("body")])
    return stamps == [ts] and bool(there.column("body").equals(bodies))


@contextmanager
def _writer(journal: Path) -> Iterator[JournalWriter]:
    deadline = time.monotonic() + TIMEOUT
    while True:
        try:
            writer = JournalWriter(journal)
            break
        except JournalBusy as busy:
            if time.monotonic() > deadline:
                raise JournalBusy(
                    f"{busy} (a journal that a running kernel writes is written through it: give the sink the kernel's address)"
                ) from busy
            time.sleep(0.02)
    with writer:
        yield writer
