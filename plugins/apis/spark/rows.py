"""Commits of a journal as the batches that Spark likes.  Nothing here needs Spark.

Batches of 100 rows take Spark twice as long as batches of 10,000.  Commits are put together as they are stored, with their
envelopes apart, and only then made into rows: one look-up a column for all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa

from plugins.protocols.journal_format.decode import flat
from plugins.protocols.journal_format.errors import Damaged, OutOfRange
from plugins.protocols.journal_format.reader import JournalReader

BATCH_ROWS = 10_000
BATCH_BYTES = 16 << 20
"""About what is handed over at a time; more only takes memory."""
AHEAD = 3
"""Batches that are made before the first of them is handed over: making each on its own takes a fifth longer; with more, Spark waits."""
AHEAD_BYTES = 4 << 20
"""With so many bytes fewer batches do."""


def read_rows(
    journal: Path, first: int, end: int, schema: pa.Schema, *, skip_lost: bool = False
) -> Iterator[Any]:
    """Yield rows with the columns of ``schema`` as Arrow batches of about ``BATCH_ROWS`` rows or ``BATCH_BYTES``, whatever the commits were.

    What retention takes meanwhile, or is damaged, raises a ``JournalError`` that names it, unless ``skip_lost``.
    """
    commits = _commits(JournalReader(journal), first, end, schema.names, skip_lost)
    batches = (flat(_joined(gathered), schema) for gathered in _gathered(commits))
    while ahead := list(_ahead(batches)):
        yield from ahead


def _ahead(batches: Iterator[Any]) -> Iterator[Any]:
    """Take some batches, so that they are made one after the other: what is made in between of handing over finds the caches cold."""
    size = 0
    for batch in islice(batches, AHEAD):
        yield batch
        size += batch.get_total_buffer_size()
        if size >= AHEAD_BYTES:
            return


def _gathered(commits: Iterator[Any]) -> Iterator[list[Any]]:
    """Divide commits into lists of about the size of a batch."""
    gathered: list[Any] = []
    rows = size = 0
    for commit in commits:
        nbytes = commit.get_total_buffer_size()  # not to the byte, and twenty times as quick as counting them
        if gathered and size + nbytes > BATCH_BYTES:
            yield gathered
            gathered, rows, size = [], 0, 0
        gathered.append(commit)
        rows += commit.num_rows
        size += nbytes
        if rows >= BATCH_ROWS or size >= BATCH_BYTES:
            yield gathered
            gathered, rows, size = [], 0, 0
    if gathered:
        yield gathered


def _joined(commits: Sequence[Any]) -> Any:
    """Return commits as one; its envelopes are those of the first, the second and so on."""
    if len(commits) == 1:
        return commits[0]
    names = commits[0].schema.names
    columns = [[commit.column(name) for commit in commits] for name in names]
    joined = [
        _joined_envelopes(column) if name == "envelope" else pa.concat_arrays(column)
        for name, column in zip(names, columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(joined, names=names)


def _joined_envelopes(columns: Sequence[Any]) -> Any:
    from pyarrow import compute

    indices, before = [], 0
    for column in columns:
        indices.append(compute.add(column.indices, pa.scalar(before, pa.int32())))
        before += len(column.dictionary)
    envelopes = pa.concat_arrays([column.dictionary for column in columns])
    return pa.DictionaryArray.from_arrays(pa.concat_arrays(indices), envelopes, safe=False)


def _commits(
    reader: JournalReader, first: int, end: int, columns: Sequence[str], skip_lost: bool
) -> Iterator[Any]:
    while True:
        try:
            yield from reader.stored(first, end, columns, skip if skip_lost else None)
            return
        except OutOfRange as lost:
            if not skip_lost:
                raise
            first = lost.stop


def skip(damage: Damaged) -> None:
    """Go on behind damaged rows."""
