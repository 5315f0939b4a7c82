"""``kernel journal compact`` and ``export``."""

from __future__ import annotations

from pathlib import Path

import click

from kernel.contracts.counts import counted
from plugins.engines.journal import compaction
from plugins.engines.journal.commands.common import (
    DamageReport,
    filter_options,
    journal_argument,
    progress,
    range_options,
    readable_argument,
    selection_of,
)
from plugins.engines.journal.export import PARTITIONS, export_parquet
from plugins.engines.journal.lock import compaction_lock
from plugins.engines.journal.moments import Moment, offset_of
from plugins.engines.journal.moving import abandon_move, begin_move, finish_move, is_recorded, record_move
from plugins.protocols.journal_format.folders import Location
from plugins.protocols.journal_format.reader import JournalReader

_MEBIBYTE = 1 << 20


@click.command("compact")
@journal_argument
@click.option(
    "--compression",
    type=click.Choice(["zstd", "lz4", "none"]),
    default="zstd",
    show_default=True,
    help="Compression of the rows.",
)
@click.option(
    "--segment-mb",
    type=click.IntRange(min=1),
    default=1024,
    show_default=True,
    help="Largest size of a segment.",
)
@click.option(
    "--parquet",
    type=click.Path(file_okay=False, path_type=Path),
    help="Move the rows of all closed segments from the journal into Parquet files in this directory.",
)
@click.option(
    "--by", multiple=True, type=click.Choice(PARTITIONS), help="With --parquet: a column to partition by."
)
def compact(
    journal: Path, compression: str, segment_mb: int, parquet: Path | None, by: tuple[str, ...]
) -> int:
    """Merge many small batches into few large, compressed ones; rows keep their offsets.

    The last segment, which a writer appends to, is not compacted.  Writers and readers may be active.
    """
    damage_report = DamageReport()
    if parquet is not None:
        return _move_to_parquet(journal, parquet, compression, by)
    segment_bytes = segment_mb * _MEBIBYTE
    groups = compaction.candidates(journal, segment_bytes)
    rows = sum(segment.end - segment.name.base for group in groups for segment in group)
    with progress("compacting", rows) as step:
        done = compaction.compact(
            journal,
            compression=None if compression == "none" else compression,
            segment_bytes=segment_bytes,
            on_rows=step,
            on_damage=damage_report,
        )
    for one in done:
        click.echo(
            f"{one.name}: {counted(one.segments, 'segment')}, "
            f"{counted(one.batches_before, 'batch', 'batches')}, {one.bytes_before:,} bytes are now "
            f"{counted(one.record_batches, 'batch', 'batches')}, {one.bytes:,} bytes"
        )
    if not done:
        click.echo("there is nothing to compact")
    return 1 if damage_report.count else 0


@click.command("export")
@readable_argument
@click.argument("directory", type=click.Path(file_okay=False, path_type=Path))
@range_options
@filter_options
@click.option(
    "--by", multiple=True, type=click.Choice(PARTITIONS), help="A column to partition by; may be repeated."
)
@click.option(
    "--compression",
    type=click.Choice(["zstd", "snappy", "lz4", "none"]),
    default="zstd",
    show_default=True,
    help="Compression of the files.",
)
def export(
    journal: Location,
    directory: Path,
    start: Moment,
    end: Moment,
    by: tuple[str, ...],
    compression: str,
    match: tuple[str, ...],
    exchange: str | None,
    engine: str | None,
) -> int:
    """Write Parquet files into DIRECTORY, one row per message.

    With --by the files are in directories such as date=2026-11-21/key=weather, as Spark, DuckDB and pandas
    expect.  The names of the files contain the offsets: exporting the same rows again replaces them.
    """
    reader = JournalReader(journal)
    first, stop = offset_of(reader, start), offset_of(reader, end)
    damage_report = DamageReport()
    with progress("exporting", stop - first) as step:
        rows = export_parquet(
            reader,
            directory,
            first,
            stop,
            by=by,
            compression=compression,
            selection=selection_of(match, exchange, engine),
            on_rows=step,
            on_damage=damage_report,
        )
    click.echo(f"{counted(rows, 'row')} in {directory}")
    return 1 if damage_report.count else 0


def _move_to_parquet(journal: Path, directory: Path, compression: str, by: tuple[str, ...]) -> int:
    """Export the sealed segments, and delete them when the files are durable: see ``moving.py``."""
    reader = JournalReader(journal)
    with compaction_lock(journal):
        finish_move(journal)
        # After ``finish_move``, which deletes segments.
        sealed = reader.sealed()
        if not sealed:
            click.echo("there is nothing to compact")
            return 0
        first, stop = sealed[0].name.base, sealed[-1].end
        damage_report = DamageReport()
        staging = begin_move(journal, directory)
        try:
            with progress("exporting", stop - first) as step:
                rows = export_parquet(
                    reader,
                    staging,
                    first,
                    stop,
                    by=by,
                    compression=compression,
                    on_rows=step,
                    on_damage=damage_report,
                )
            if damage_report.count:
                # A damaged row is in no Parquet file, and deleting its segment would take the chance to
                # repair it.
                click.echo("kernel: some rows are damaged: nothing was removed from the journal", err=True)
                return 1
            record_move(journal, directory, stop)
        finally:
            # Once the move is recorded it is never undone: the next command finishes it, with the files in
            # the staging directory.
            if not is_recorded(journal):
                abandon_move(journal, directory)
        finish_move(journal)
    click.echo(f"{counted(rows, 'row')} in {directory}")
    return 0
