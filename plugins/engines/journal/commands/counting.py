"""``kernel journal stat``: counts messages by a column, without Spark."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import click
import pyarrow as pa
from pyarrow import compute

from kernel.contracts.counts import counted
from plugins.engines.journal.commands.common import DamageReport, progress, range_options, readable_argument
from plugins.engines.journal.moments import Moment, offset_of
from plugins.protocols.journal_format.folders import Location
from plugins.protocols.journal_format.reader import JournalReader
from plugins.protocols.journal_format.schema import ENVELOPE_FIELDS

_FOLD = 4_000_000
"""Rows that are collected before they are summed up."""


@click.command("stat")
@readable_argument
@range_options
@click.option(
    "--by",
    type=click.Choice([field.name for field in ENVELOPE_FIELDS]),
    default="key",
    show_default=True,
    help="The column to count by.",
)
@click.option(
    "-n", "count", type=click.IntRange(min=1), default=20, show_default=True, help="How many to show."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line.")
def stat(journal: Location, start: Moment, end: Moment, by: str, count: int, as_json: bool) -> None:
    """Count messages and bytes by key, engine or another column; those with the most messages first."""
    reader = JournalReader(journal)
    began = time.perf_counter()
    table = count_by(reader, by, offset_of(reader, start), offset_of(reader, end))
    seconds = time.perf_counter() - began
    rows = table.sort_by([("messages", "descending")]).slice(0, count).to_pylist()
    if as_json:
        for row in rows:
            click.echo(json.dumps(row, default=str))
        return
    width = max([len(str(row[by])) for row in rows] + [len(by)])
    click.echo(f"{by:<{width}} {'messages':>15} {'bytes':>18}")
    for row in rows:
        click.echo(f"{row[by]!s:<{width}} {row['messages']:>15,} {row['bytes']:>18,}")
    total = compute.sum(table.column("messages")).as_py() or 0
    click.echo(f"{counted(total, 'message')}, {len(table):,} of {by}, in {seconds:.2f} s", err=True)


def count_by(reader: JournalReader, by: str, start: int, stop: int) -> pa.Table:
    """Return the columns ``by``, ``messages`` and ``bytes`` of the rows ``start <= offset < stop``."""
    with progress("counting", stop - start) as step:
        return _summed(list(_partial_sums(reader, by, start, stop, step)), by)


def _partial_sums(reader: JournalReader, by: str, start: int, stop: int, step: Any) -> Iterator[pa.Table]:
    waiting: list[pa.RecordBatch] = []
    rows = 0
    for record_batch in reader.record_batches(start, stop, [by, "body"], on_damage=DamageReport()):
        sizes = compute.binary_length(record_batch.column("body")).cast(pa.int64())
        # A column of ones without a loop in Python; the body column has no nulls.
        ones = compute.add(compute.multiply(sizes, 0), 1)
        waiting.append(
            pa.RecordBatch.from_arrays([record_batch.column(by), ones, sizes], [by, "messages", "bytes"])
        )
        rows += record_batch.num_rows
        step(record_batch.num_rows)
        # Summed up in between, so that memory does not grow with the journal.  Sums of sums are the same
        # sums.
        if rows >= _FOLD:
            yield _summed([pa.Table.from_batches(waiting)], by)
            waiting, rows = [], 0
    if waiting:
        yield _summed([pa.Table.from_batches(waiting)], by)


def _summed(tables: list[pa.Table], by: str) -> pa.Table:
    if not tables:
        return pa.table({by: pa.array([], pa.string()), "messages": pa.array([], pa.int64()), "bytes": []})
    sums = pa.concat_tables(tables).group_by(by).aggregate([("messages", "sum"), ("bytes", "sum")])
    return sums.rename_columns([by, "messages", "bytes"]).select([by, "messages", "bytes"])
