"""Phase two of writing into a journal: the driver appends the staged rows, each epoch exactly once.

The problem
-----------
Spark repeats a micro-batch (an epoch) if it has no record that its commit succeeded.  It cannot know whether
the driver was killed before, during or after the append.  A journal has no transactions over several commits,
and its rows do not say who wrote them.  So the sink keeps a record of its own, ``producers/PRODUCER.json`` in
the journal's directory, with the last epoch of the producer (docs/decisions/0011-sparks-sink.md).

The steps
---------
All of them with the lock of the journal's writer, so that nobody else appends in between:

1. Before the first row is appended, the epoch is recorded: the files, the offset at which they begin, their
   time.
2. The rows are appended and synchronised.
3. The epoch is recorded again, with ``done``.

What a killed driver leaves
---------------------------
* Before step 1: staged files, which nobody publishes.  Spark repeats the epoch.
* Between 1 and 3: an epoch that is not ``done``.  The next driver compares the journal's rows from the
  recorded offset on with the staged rows; a batch is either completely there or not at all.  It then repeats
  the steps with the rest, from the files of the record.  What Spark stages when it repeats the epoch is
  dropped.
* After step 3: a record that is ``done``.  Spark repeats the epoch, and its rows are dropped.

Invariants
----------
* The rest of an epoch gets a new offset, because another writer may have appended rows in between, and a new
  time, because times never decrease in a journal.
* No earlier row of the journal has the time of an epoch.  So rows of others are never taken for ours, even if
  their bodies are equal.
* What a record counts as appended is synchronised before the record is written.  Otherwise a power failure
  could keep the record and lose the rows.
* Staged files that a record names are deleted only after it is ``done``.

What cannot be decided
----------------------
If retention has deleted all rows at the recorded offset before the next driver comes, nothing says whether
they were ours or those of a writer that came after a driver killed before its first append.  They are taken
for ours, with a warning: if they were appended again, rows could come twice.
"""

from __future__ import annotations

import logging
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

_log = logging.getLogger(__name__)

TIMEOUT = 30.0
"""Time limit in seconds for waiting for another writer of the journal; the commit of a query takes
milliseconds."""


def publish(journal: Path, producer: str, epoch: int, files: Sequence[str]) -> bool:
    """Append the rows of staged files.

    Return False if this epoch, or a later one, has already been published.

    When this returns all rows survive a power failure.  Raises ``JournalBusy`` if another writer keeps the
    lock.
    """
    with _writer(journal) as writer:
        # Read with the lock: before, another driver of the same query might still be at work.
        last = last_epoch(journal, producer)
        # First the epoch that was cut off, also if this call is for a later one.
        if last is not None and not last.done:
            rest = msgspec.structs.replace(
                last, appended=last.appended + _appended_rows(journal, producer, last)
            )
            _append(writer, producer, rest)
        # An epoch without rows is not recorded: if it is repeated, it has no rows again.
        fresh = last is None or last.epoch < epoch
        if fresh and files:
            _append(writer, producer, Epoch(epoch, tuple(files)))
    forget_epochs(journal, producer, epoch)
    return fresh


def _append(writer: JournalWriter, producer: str, epoch: Epoch) -> None:
    """Append the rows of an epoch that the journal does not have yet."""
    # The killed driver may not have synchronised the rows that the record below counts as appended.
    if epoch.appended:
        writer.sync()
    # ``later``: also if the clock stands still or goes back, no earlier row has this time.
    ts = writer.stamp(later=True)
    begun = msgspec.structs.replace(epoch, start=writer.next_offset, ts=ts)
    note(writer.path, producer, begun)
    for batch in _remaining(writer.path, producer, begun):
        stored = _stored(batch, writer.next_offset, ts)
        writer.append_stored(stored, ts, len(batch.column("envelope").dictionary))
    writer.sync()
    note(writer.path, producer, msgspec.structs.replace(begun, done=True))


def _remaining(journal: Path, producer: str, epoch: Epoch) -> Iterator[Any]:
    """Yield the staged batches of an epoch, without those that were recorded as appended."""
    # ``appended`` is always the end of a batch, since a batch is a commit of the journal and a commit is
    # appended whole or not at all.
    row = 0
    for name in epoch.files:
        for batch in staged(journal, producer, name):
            if row >= epoch.appended:
                yield batch
            row += batch.num_rows


def _appended_rows(journal: Path, producer: str, epoch: Epoch) -> int:
    """Return the number of rows that were appended after an epoch was recorded."""
    # Batches are appended in order, so the first one that is missing ends the search.
    offset = epoch.start
    for batch in _remaining(journal, producer, epoch):
        if not _is_appended(journal, offset, epoch.ts, batch):
            break
        offset += batch.num_rows
    # Batches are appended in order: if one could be compared, those before it were appended as well.
    if epoch.start < offset <= JournalReader(journal).bounds().earliest:
        _log.warning(
            "journal %s: retention has deleted the rows from offset %d to %d, where a driver that was killed had "
            "begun to append epoch %d of %r; they are taken for its rows and are not appended again. If another "
            "writer appended them, %d rows of the epoch are lost",
            *(journal, epoch.start, offset, epoch.epoch, producer, offset - epoch.start),
        )
    return offset - epoch.start


def _stored(batch: Any, offset: int, ts: int) -> Any:
    rows = batch.num_rows
    stamps = pa.repeat(pa.scalar(ts, STORED.field("ts").type), rows)
    return pa.RecordBatch.from_arrays([offsets_from(offset, rows), stamps, *batch.columns], schema=STORED)


def _is_appended(journal: Path, offset: int, ts: int, batch: Any) -> bool:
    """Return whether the journal has the rows of a staged batch from ``offset`` on."""
    reader = JournalReader(journal)
    earliest, end = reader.bounds()
    # Rows that retention has deleted cannot be compared.  They are taken for ours, so that no row comes
    # twice.  But retention deletes whole commits, and a batch is one commit.  So if the first row that is
    # left would be inside the batch, the deleted rows were those of another writer.
    if offset < earliest:
        return bool(offset + batch.num_rows <= earliest)
    if end < offset + batch.num_rows:
        return False
    # No segment has the offset: the rows were lost in a power failure after a consumer had passed them, and
    # the writer began at a higher offset.  To read there would raise ``Damaged``.
    if not any(segment.name.base <= offset < segment.end for segment in reader.segments()):
        return False
    # Time and bodies are enough: the time belongs to this epoch alone, and a commit is there whole.
    there = pa.Table.from_batches(reader.record_batches(offset, offset + batch.num_rows, ["ts", "body"]))
    stamps = there.column("ts").cast(pa.int64()).unique().to_pylist()
    bodies = pa.chunked_array([batch.column("body")])
    return stamps == [ts] and bool(there.column("body").equals(bodies))


@contextmanager
def _writer(journal: Path) -> Iterator[JournalWriter]:
    # Tried again and again: another query's commit is over soon.  A kernel's engine keeps the lock as long as
    # it runs, which is what the error at the end is about.
    deadline = time.monotonic() + TIMEOUT
    while True:
        try:
            writer = JournalWriter(journal)
            break
        except JournalBusy as busy:
            if time.monotonic() > deadline:
                raise JournalBusy(
                    f"{busy}. If a running kernel writes this journal, write through that kernel: "
                    "give the sink the kernel's address with the option address, and no path"
                ) from busy
            time.sleep(0.02)
    with writer:
        yield writer
