"""Combines the commits of a journal into batches of a good size for Spark.  This module does not need Spark.

Spark needs twice as long for batches of 100 rows as for batches of 10,000.  Commits are combined in their
stored form, with a dictionary of envelopes, and converted into rows afterwards: one lookup per column for all
of them.
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
"""Approximate limits of a batch; larger ones only need more memory."""
AHEAD = 3
"""Batches that are made before the first of them is passed to Spark.

Making them one by one takes a fifth longer, because the processor's caches are cold; with more of them Spark
waits."""
AHEAD_BYTES = 4 << 20
"""With this number of bytes fewer batches are made ahead."""


def read_rows(
    journal: Path, first: int, end: int, schema: pa.Schema, *, skip_lost: bool = False
) -> Iterator[Any]:
    """Yield rows with the columns of ``schema``, as Arrow batches of about ``BATCH_ROWS`` rows or ``BATCH_BYTES`` bytes.

    Rows that are damaged, or that retention deletes meanwhile, raise a ``JournalError``; with ``skip_lost``
    they are left out.
    """
    commits = _commits(JournalReader(journal), first, end, schema.names, skip_lost)
    batches = (flat(_joined(collected), schema) for collected in _grouped(commits))
    while ahead := list(_ahead(batches)):
        yield from ahead


def _ahead(batches: Iterator[Any]) -> Iterator[Any]:
    """Yield some batches: the caller makes them one after the other before it passes the first one on."""
    size = 0
    for batch in islice(batches, AHEAD):
        yield batch
        size += batch.get_total_buffer_size()
        if size >= AHEAD_BYTES:
            return


def _grouped(commits: Iterator[Any]) -> Iterator[list[Any]]:
    """Divide commits into lists of about the size of a batch."""
    collected: list[Any] = []
    rows = size = 0
    for commit in commits:
        nbytes = commit.get_total_buffer_size()  # not exact, but twenty times faster than ``nbytes``
        if collected and size + nbytes > BATCH_BYTES:
            yield collected
            collected, rows, size = [], 0, 0
        collected.append(commit)
        rows += commit.num_rows
        size += nbytes
        if rows >= BATCH_ROWS or size >= BATCH_BYTES:
            yield collected
            collected, rows, size = [], 0, 0
    if collected:
        yield collected


def _joined(commits: Sequence[Any]) -> Any:
    """Return several commits as one; its dictionary is the concatenation of theirs."""
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
    """Ignore damaged rows: reading continues after them."""
