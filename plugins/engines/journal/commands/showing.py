"""``kernel journal head``, ``tail`` and ``cat``."""

from __future__ import annotations

import select
import sys
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import pyarrow as pa

from plugins.engines.journal.commands.common import (
    DamageReport,
    F,
    filter_options,
    range_options,
    readable_argument,
    selection_of,
)
from plugins.engines.journal.commands.formats import FORMATS, header_of
from plugins.engines.journal.moments import Moment, offset_of
from plugins.engines.journal.selection import Selection
from plugins.engines.journal.watch import watch_directory
from plugins.protocols.journal_format.decode import flat
from plugins.protocols.journal_format.folders import Location, is_address
from plugins.protocols.journal_format.reader import EVERYTHING, JournalReader
from plugins.protocols.journal_format.schema import ROWS

_AT_ONCE = 10_000
"""Rows that are formatted at a time."""

_count = click.option(
    "-n", "count", type=click.IntRange(min=0), default=10, show_default=True, help="How many."
)
_format = click.option(
    "--format",
    "form",
    type=click.Choice(list(FORMATS)),
    default="text",
    show_default=True,
    help="The output format.",
)


def _showing(command: F) -> F:
    return readable_argument(filter_options(_format(command)))


@click.command("head")
@_showing
@_count
def head(journal: Location, count: int, form: str, **filters: Any) -> None:
    """Show the first messages."""
    _show(_limited(_rows(JournalReader(journal), selection_of(**filters)), count), form)


@click.command("tail")
@_showing
@_count
@click.option("-f", "--follow", is_flag=True, help="Continue with new messages, until Ctrl-C.")
def tail(journal: Location, count: int, form: str, follow: bool, **filters: Any) -> None:
    """Show the last messages; with --follow, also new ones."""
    reader, selection = JournalReader(journal), selection_of(**filters)
    if follow and is_address(journal):
        raise click.UsageError("an archive cannot be followed: only the directory has what is being written")
    watch = watch_directory(Path(journal)) if follow else None
    # The watch was opened before the end is read, so that no row is missed in between.
    end = reader.bounds().end
    _show(iter(_last(reader, selection, end, count)), form)
    while watch is not None:
        select.select([watch], [], [])
        watch.drain()
        following = reader.bounds().end
        _show(_rows(reader, selection, end, following), form, header=False)
        end = following


@click.command("cat")
@_showing
@range_options
def cat(journal: Location, start: Moment, end: Moment, form: str, **filters: Any) -> None:
    """Show all messages, or those from an offset or time to another.

    JSON has one object per line.  CSV begins with the names of the columns.  raw has only the bodies, with a
    line feed after each.
    """
    reader = JournalReader(journal)
    rows = _rows(reader, selection_of(**filters), offset_of(reader, start), offset_of(reader, end))
    _show(rows, form)


def _rows(
    reader: JournalReader, selection: Selection, start: int | None = None, stop: int = EVERYTHING
) -> Iterator[pa.RecordBatch]:
    first = reader.bounds().earliest if start is None else start
    for stored in reader.stored(first, stop, on_damage=DamageReport()):
        wanted = selection.of(stored)
        # A commit may have a million rows, and as text they take several times their memory.
        for at in range(0, wanted.num_rows, _AT_ONCE):
            yield flat(wanted.slice(at, _AT_ONCE), ROWS)


def _limited(record_batches: Iterator[pa.RecordBatch], count: int) -> Iterator[pa.RecordBatch]:
    while count > 0:
        record_batch = next(record_batches, None)
        if record_batch is None:
            return
        yield record_batch.slice(0, count)
        count -= record_batch.num_rows


def _last(reader: JournalReader, selection: Selection, end: int, count: int) -> list[pa.RecordBatch]:
    """Return the last ``count`` selected rows before ``end``.  Reads segments from the last one backwards."""
    found: deque[pa.RecordBatch] = deque()
    missing = count
    for segment in reversed(reader.segments()):
        first = segment.name.base
        # Without a selection the rows that are wanted can be counted; otherwise the whole segment has to be
        # read.
        if selection.everything():
            first = max(first, min(end, segment.end) - missing)
        record_batches = list(_rows(reader, selection, first, min(segment.end, end)))
        while record_batches and missing > 0:
            record_batch = record_batches.pop()
            kept = record_batch.slice(max(record_batch.num_rows - missing, 0))
            missing -= kept.num_rows
            found.appendleft(kept)
        if missing <= 0:
            break
    return list(found)


def _show(record_batches: Iterator[pa.RecordBatch], form: str, *, header: bool = True) -> None:
    out = sys.stdout.buffer
    make: Callable[[pa.RecordBatch], bytes] = FORMATS[form]
    if header:
        out.write(header_of(form))
    for record_batch in record_batches:
        out.write(make(record_batch))
    out.flush()
