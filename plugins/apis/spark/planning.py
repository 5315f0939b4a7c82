"""Plans a read: which rows, and how they are divided among tasks.  This module does not need Spark."""

from __future__ import annotations

from itertools import pairwise

from plugins.apis.spark.errors import DataLost
from plugins.apis.spark.options import ReadOptions, microseconds
from plugins.apis.spark.rows import skip
from plugins.protocols.journal_format.reader import JournalReader


def bounds(reader: JournalReader, options: ReadOptions) -> tuple[int, int]:
    """Return the range to read, as (first, end): what the options say, limited to what the journal has.

    Raises ``DataLost`` if retention has deleted the first row that the options name by its offset.
    """
    present = reader.bounds()
    first, end = present.earliest, present.end
    if options.starting_timestamp:
        first = row_at(reader, microseconds(options.starting_timestamp, "startingTimestamp"), options)
    elif isinstance(options.starting_offset, int):
        if options.starting_offset < first and options.fail_on_data_loss:
            raise DataLost(
                f"{reader.path}: the option startingOffset is {options.starting_offset}, and offsets before "
                f"{first} no longer exist: retention has deleted them. To begin with the first row that there "
                "is, set startingOffset to earliest, or failOnDataLoss to false"
            )
        first = max(first, options.starting_offset)
    elif options.starting_offset == "latest":
        # Not ``present.end``: after a loss the next row gets a higher offset, and a stream that begins at the
        # old end would look like one whose rows were lost.
        first = next_offset(reader)
    if options.ending_timestamp:
        end = row_at(reader, microseconds(options.ending_timestamp, "endingTimestamp"), options)
    elif isinstance(options.ending_offset, int):
        end = min(end, options.ending_offset)
    elif options.ending_offset == "earliest":
        end = present.earliest
    return first, max(first, end)


def next_offset(reader: JournalReader) -> int:
    """Return the offset that the next row will have.

    After rows were lost at the end (in a power failure, for example), and a consumer had already read them,
    the writer begins a new segment at a higher offset than the journal's end: offsets are not used again.
    That segment may still be empty, so that ``bounds`` does not know it.
    """
    return max(reader.bounds().end, reader.next_base())


def row_at(reader: JournalReader, moment: int, options: ReadOptions) -> int:
    """Return the offset of the first row received at ``moment`` (µs) or later.

    The journal's end if it has none.
    """
    return reader.row_at(moment, None if options.fail_on_data_loss else skip)


FEW = 4
WORTH_A_TASK = 50_000
"""A range that would make fewer than ``FEW`` tasks is divided into up to ``FEW``, of at least
``WORTH_A_TASK`` rows.  To make that many rows takes longer than to start a task."""


def ranges(first: int, end: int, rows: int) -> list[tuple[int, int]]:
    """Divide a range of offsets into parts of nearly equal size, of at most ``rows`` rows."""
    count = max(end - first, 0)
    # At least as many as ``rows`` asks for (rounded up), and more for several processors to have work.
    parts = max(-(-count // rows), min(FEW, count // WORTH_A_TASK))
    edges = [first + count * part // parts for part in range(parts + 1)] if parts else []
    return list(pairwise(edges))
