"""Combines the commits of a journal into batches of a good size for Spark.  This module does not need Spark.

Why combine
-----------
A journal has one Arrow batch for each commit, which may have a hundred rows or a hundred thousand.  Spark
needs twice as long for batches of 100 rows as for batches of 10,000.

The steps are generators, one behind the other: ``_commits`` reads commits, ``_grouped`` collects about one
batch of them, ``_joined`` makes one commit of these, ``flat`` converts it into rows.  Commits are joined in
their stored form, where a row has a number instead of an envelope and the commit has a dictionary of the
envelopes.  So the expensive step, the lookup of each column's values, happens once for all of them, and
reading takes two thirds of the time.

Batches ahead
-------------
Spark's worker takes a batch from the generator, writes it into its socket, and takes the next one.  To make a
batch right after that write finds the processor's caches filled with the socket's work: a million rows then
take 39 ms instead of 33.  So ``AHEAD`` batches are made one after the other before the first is passed on.
With many more (a limit in bytes alone allowed nineteen of two columns) the JVM waits for them
(docs/measured.md, "Spark").
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

import pyarrow as pa

from plugins.apis.spark.conditions import Condition, fitting
from plugins.protocols.journal_format.decode import flat
from plugins.protocols.journal_format.errors import Damaged, OutOfRange
from plugins.protocols.journal_format.folders import Location
from plugins.protocols.journal_format.reader import JournalReader

BATCH_ROWS = 10_000
BATCH_BYTES = 16 << 20
"""Approximate limits of a batch; larger ones only need more memory."""
AHEAD = 3
"""Batches that are made before the first of them is passed to Spark."""
AHEAD_BYTES = 4 << 20
"""With this number of bytes fewer batches are made ahead."""


def read_rows(
    journal: Location,
    first: int,
    end: int,
    schema: pa.Schema,
    *,
    skip_lost: bool = False,
    conditions: Sequence[Condition] = (),
) -> Iterator[Any]:
    """Yield rows with the columns of ``schema``, as Arrow batches of about ``BATCH_ROWS`` rows.

    They are smaller if they would have more than ``BATCH_BYTES`` bytes.  Only rows that fit
    ``conditions`` are yielded.

    Rows that are damaged, or that retention deletes meanwhile, raise a ``JournalError``; with ``skip_lost``
    they are left out.
    """
    columns = [*schema.names, *(condition.column for condition in conditions)]
    commits = _commits(JournalReader(journal), first, end, columns, skip_lost)
    if conditions:
        found = (fitting(commit, conditions) for commit in commits)
        commits = (commit for commit in found if commit is not None)
    batches = (flat(_joined(collected), schema) for collected in _grouped(commits))
    # ``list`` makes the batches ahead, before ``yield from`` passes the first of them on.
    while ahead := list(_ahead(batches)):
        yield from ahead


def _ahead(batches: Iterator[Any]) -> Iterator[Any]:
    """Yield ``AHEAD`` batches, or fewer if they have many bytes."""
    # The size is tested after the ``yield``: at least one batch is yielded, or reading would end here.
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
        # Not exact (it counts a shared buffer whole), but twenty times faster than ``commit.nbytes``.
        nbytes = commit.get_total_buffer_size()
        # A commit is not divided: one that is larger than the limit is a batch by itself.
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

    # The dictionaries are put one behind the other, so each index grows by the sizes of those before it.  An
    # envelope of two commits is then there twice, which makes no difference in the rows.
    indices, before = [], 0
    for column in columns:
        indices.append(compute.add(column.indices, pa.scalar(before, pa.int32())))
        before += len(column.dictionary)
    envelopes = pa.concat_arrays([column.dictionary for column in columns])
    # ``safe=False`` leaves out the test that each index is in range: each was, and was shifted as a whole.
    return pa.DictionaryArray.from_arrays(pa.concat_arrays(indices), envelopes, safe=False)


def _commits(
    reader: JournalReader, first: int, end: int, columns: Sequence[str], skip_lost: bool
) -> Iterator[Any]:
    # Retention may delete segments while a task reads.  ``lost.stop`` is the first row that still exists, and
    # it is after all rows that were yielded, so that none comes twice.
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
