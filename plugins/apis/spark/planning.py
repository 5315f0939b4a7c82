"""Which rows a read is about, and which task reads which of them.  Nothing here needs Spark."""

from __future__ import annotations

from itertools import pairwise

from plugins.apis.spark.options import ReadOptions, microseconds
from plugins.apis.spark.rows import skip
from plugins.protocols.journal_format.names import segment_names
from plugins.protocols.journal_format.reader import JournalReader


def bounds(reader: JournalReader, options: ReadOptions) -> tuple[int, int]:
    """Return the first offset to read and the one after the last, as the options say and the journal has."""
    there = reader.bounds()
    first, end = there.earliest, there.end
    if options.starting_timestamp:
        first = row_at(reader, microseconds(options.starting_timestamp, "startingTimestamp"), options)
    elif isinstance(options.starting_offset, int):
        first = max(first, options.starting_offset)
    elif options.starting_offset == "latest":
        first = next_offset(reader)
    if options.ending_timestamp:
        end = row_at(reader, microseconds(options.ending_timestamp, "endingTimestamp"), options)
    elif isinstance(options.ending_offset, int):
        end = min(end, options.ending_offset)
    elif options.ending_offset == "earliest":
        end = there.earliest
    return first, max(first, end)


def next_offset(reader: JournalReader) -> int:
    """Return the offset of the next row: that of the last segment, though rows before it were lost and their offsets not used again."""
    names = segment_names(reader.path)
    return max(reader.bounds().end, names[-1].base if names else 0)


def row_at(reader: JournalReader, moment: int, options: ReadOptions) -> int:
    """Return the offset of the first row that was kept at ``moment`` (µs) or later; the journal's end if there is none."""
    return reader.row_at(moment, None if options.fail_on_data_loss else skip)


FEW = 4
WORTH_A_TASK = 50_000
"""What is too little for several tasks of the size that is set is divided among ``FEW``, if each has so many rows."""


def ranges(first: int, end: int, rows: int) -> list[tuple[int, int]]:
    """Divide rows into pieces of at most ``rows``, as even as can be."""
    count = max(end - first, 0)
    pieces = max(-(-count // rows), min(FEW, count // WORTH_A_TASK))
    edges = [first + count * piece // pieces for piece in range(pieces + 1)] if pieces else []
    return list(pairwise(edges))
