"""Phase two of writing into a journal: the driver appends what was staged, each epoch of a producer exactly once.

``producers/PRODUCER.json`` in the journal's directory has the producer's last epoch.  It is written twice: before the first row
is appended, with all that is needed to go on after a crash (which files, from which offset, at which time), and
when the last one is there.  Whoever finds an epoch that is not done compares what the journal has from that offset on with
the files, and appends only the rest: also when another writer came in between.
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

PATIENCE = 30.0
"""Seconds that another writer may keep the journal: another query's commit takes milliseconds."""


def publish(journal: Path, producer: str, epoch: int, files: Sequence[str]) -> bool:
    """Append the rows of staged files; return False if this epoch, or a later one, is there already.

    All rows survive a loss of power when this returns.  ``JournalBusy`` if another writer keeps the journal.
    """
    with _writer(journal) as writer:
        last = last_epoch(journal, producer)
        if last is not None and not last.done:
            _append(writer, producer, last, resumed=True)
        fresh = last is None or last.epoch < epoch
        if fresh and files:
            begun = Epoch(epoch, tuple(files), writer.next_offset, writer.stamp())
            note(journal, producer, begun)
            _append(writer, producer, begun, resumed=False)
    forget_epochs(journal, producer, epoch)
    return fresh


def _append(writer: JournalWriter, producer: str, epoch: Epoch, *, resumed: bool) -> None:
    offset = epoch.start
    for name in epoch.files:
        for batch in staged(writer.path, producer, name):
            if resumed and _is_there(writer.path, offset, epoch.ts, batch):
                offset += batch.num_rows
                continue
            resumed = False  # what follows was not appended either
            stored = _stored(batch, writer.next_offset, epoch.ts)
            writer.append_stored(stored, epoch.ts, len(batch.column("envelope").dictionary))
    writer.sync()
    note(writer.path, producer, msgspec.structs.replace(epoch, done=True))


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
    there = pa.Table.from_batches(reader.batches(offset, offset + batch.num_rows, ["ts", "body"]))
    stamps = there.column("ts").cast(pa.int64()).unique().to_pylist()
    bodies = pa.chunked_array([batch.column("body")])
    return stamps == [ts] and bool(there.column("body").equals(bodies))


@contextmanager
def _writer(journal: Path) -> Iterator[JournalWriter]:
    deadline = time.monotonic() + PATIENCE
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
