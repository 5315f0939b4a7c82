"""``spark.read.format("kernel")``: reads a range of a journal, or of several.

There is one task for about a million rows.

Processes: Spark creates a reader in a Python process beside the driver, calls ``pushFilters`` and
``partitions`` there, then pickles the reader and sends it to the Python workers, which call ``read`` once for
each task.  So a reader holds no open file, only paths and options, and each task opens the journal itself.
A task has a range of offsets: rows never change and never move to another offset, so that a task which Spark
repeats yields the same rows.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceReader,
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)
from pyspark.sql.types import StructType

from plugins.apis.spark.columns import JOURNAL, wanted_columns
from plugins.apis.spark.conditions import COLUMNS, Condition
from plugins.apis.spark.options import ReadOptions
from plugins.apis.spark.planning import bounds, ranges, row_at
from plugins.apis.spark.rows import read_rows
from plugins.apis.spark.workers import freeze_after, freeze_loaded
from plugins.protocols.journal_format.folders import Location
from plugins.protocols.journal_format.reader import JournalReader
from plugins.protocols.journal_format.schema import NEVER_NULL, ROWS

_log = logging.getLogger(__name__)

MANY_ROWS = 1_000_000
"""Rows from which on a read of all columns is worth a word: two columns would save a second."""


class Rows(InputPartition):
    """The rows of one task: ``first <= offset < end``, of one of the reader's journals."""

    def __init__(self, first: int, end: int, journal: int = 0) -> None:
        super().__init__((first, end, journal))
        self.first = first
        self.end = end
        self.journal = journal


def read_task(
    journals: Sequence[Location],
    task: InputPartition,
    schema: pa.Schema,
    options: ReadOptions,
    conditions: Sequence[Condition] = (),
) -> Iterator[Any]:
    """Yield the batches of a task."""
    # If ``partitions`` returns none, Spark makes one task all the same, with a partition of its own class.
    if not isinstance(task, Rows):
        return iter(())
    journal = journals[task.journal]
    at = schema.get_field_index(JOURNAL)
    # A row of no column at all could not be counted.
    stored = (
        schema if at < 0 else pa.schema([ROWS.field("offset")]) if len(schema) == 1 else schema.remove(at)
    )
    skip_lost = not options.fail_on_data_loss
    rows = read_rows(journal, task.first, task.end, stored, skip_lost=skip_lost, conditions=conditions)
    if at >= 0:
        rows = (_with_journal(batch, str(journal), schema, at) for batch in rows)
    return freeze_after("read", rows)


def _with_journal(batch: Any, journal: str, schema: pa.Schema, at: int) -> Any:
    """Return the rows with the column that says where they are."""
    columns = batch.columns if len(schema) > 1 else []
    columns.insert(at, pa.repeat(pa.scalar(journal), batch.num_rows))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


class BatchReader(DataSourceReader):
    """Created in the process that plans the query; Spark pickles it and sends it to the executors."""

    def __init__(self, schema: StructType, options: ReadOptions) -> None:
        self.schema = wanted_columns(schema)
        self.options = options
        self.journals = options.journals

    def partitions(self) -> Sequence[Rows]:
        tasks = [
            Rows(*part, number)
            for number, journal in enumerate(self.journals)
            for part in ranges(*self._bounds(JournalReader(journal)), self.options.rows_per_task)
        ]
        self._complain_of_columns(sum(task.end - task.first for task in tasks))
        freeze_loaded("plan")
        return tasks

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return read_task(self.journals, partition, self.schema, self.options)

    def _complain_of_columns(self, rows: int) -> None:
        """Say that all columns are read, of many rows, and nobody has asked for all."""
        # Spark does not tell which columns a query uses, so it may be right.  To name all of them ends this.
        if rows >= MANY_ROWS and not self.options.columns and len(self.schema) >= len(ROWS):
            _log.warning(
                "all %d columns of %d rows are read, which takes several times as long as two of them: name in the "
                "option 'columns' those that the query uses",
                len(self.schema),
                rows,
            )

    def _bounds(self, reader: JournalReader) -> tuple[int, int]:
        return bounds(reader, self.options)


class PushdownReader(BatchReader):
    """Reads only the rows that filters on ``offset``, ``ts`` and the texts of envelopes may select.

    Filters on ``offset`` and on texts that are never null are applied completely here.  Spark applies all
    others to the rows, and copies each row for that.
    """

    def __init__(self, schema: StructType, options: ReadOptions) -> None:
        super().__init__(schema, options)
        self._filters: list[Filter] = []
        self._conditions: list[Condition] = []

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        # What is returned Spark applies to the rows.  A filter that is dropped here although it is not
        # applied completely would give wrong results, so that ``ts``, which only narrows, is returned.
        self._filters = filters
        conditions = {id(each): condition_of(each) for each in filters}
        self._conditions = [condition for condition in conditions.values() if condition is not None]
        return [each for each in filters if conditions[id(each)] is None and not _is_applied_here(each)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return read_task(self.journals, partition, self.schema, self.options, self._conditions)

    def _bounds(self, reader: JournalReader) -> tuple[int, int]:
        first, end = super()._bounds(reader)
        for each in self._filters:
            low, high = _narrowed(each, reader, self.options)
            first = first if low is None else max(first, low)
            end = end if high is None else min(end, high)
        return first, max(first, end)


_TESTS: dict[type[Filter], str] = {
    EqualTo: "is",
    EqualNullSafe: "is",
    In: "in",
    StringStartsWith: "begins",
    StringEndsWith: "ends",
    StringContains: "contains",
}


def condition_of(each: Filter) -> Condition | None:
    """Return what a filter demands of an envelope's texts; None if it is about something else."""
    if isinstance(each, Not):
        inner = condition_of(each.child)
        return None if inner is None else inner._replace(negated=not inner.negated)
    test, value = _TESTS.get(type(each)), getattr(each, "value", None)
    attribute: tuple[str, ...] = getattr(each, "attribute", ())
    if test is None or len(attribute) != 1 or attribute[0] not in COLUMNS:
        return None
    texts = tuple(value) if isinstance(value, list | tuple) else (value,)
    # A null among them would make the answer unknown for every row that is none of the others.
    if not all(isinstance(text, str) for text in texts):
        return None
    return Condition(attribute[0], test, texts if test == "in" else texts[0])


def _is_applied_here(each: Filter) -> bool:
    """Return whether this reader applies the filter completely, so that Spark need not apply it again."""
    attribute: tuple[str, ...] = getattr(each, "attribute", ())
    # Spark adds such a filter to comparisons.  Of these columns it is always true, but a filter that stays
    # makes Spark copy each row.  More than one name is a field of a struct.
    if isinstance(each, IsNotNull):
        return len(attribute) == 1 and attribute[0] in NEVER_NULL
    compares = isinstance(each, EqualTo | GreaterThan | GreaterThanOrEqual | LessThan | LessThanOrEqual)
    # ``type`` and not ``isinstance``: a bool is an int as well.
    return compares and attribute == ("offset",) and type(getattr(each, "value", None)) is int


def _narrowed(each: Filter, reader: JournalReader, options: ReadOptions) -> tuple[int | None, int | None]:
    """Return the range of offsets that a filter may select, as (first, end).

    None for a side without a bound.
    """
    attribute, value = getattr(each, "attribute", ()), getattr(each, "value", None)
    if attribute == ("offset",) and type(value) is int:
        at, after = value, value + 1
    elif attribute == ("ts",) and isinstance(value, datetime):
        # Times never decrease in a journal, so that a range of times is a range of offsets.
        moment = _micros(value)
        at, after = row_at(reader, moment, options), row_at(reader, moment + 1, options)
    else:
        return None, None
    if isinstance(each, EqualTo):
        return at, after
    if isinstance(each, GreaterThan | GreaterThanOrEqual):
        return (after if isinstance(each, GreaterThan) else at), None
    if isinstance(each, LessThan | LessThanOrEqual):
        return None, (at if isinstance(each, LessThan) else after)
    return None, None


def _micros(moment: datetime) -> int:
    # ``round``: the float of a time in microseconds is not exact, and ``int`` would be one too low at times.
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return round(aware.timestamp() * 1_000_000)
