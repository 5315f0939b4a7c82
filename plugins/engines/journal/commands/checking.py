"""``kernel journal verify`` and ``repair``."""

from __future__ import annotations

from pathlib import Path

import click

from kernel.contracts.counts import counted
from kernel.hosting.appending import Disk
from plugins.engines.journal.commands.common import (
    DamageReport,
    journal_argument,
    progress,
    readable_argument,
)
from plugins.engines.journal.index_repair import create_missing_indexes, whole_commits
from plugins.engines.journal.index_repair import repair as repair_index
from plugins.engines.journal.lock import writer_lock
from plugins.protocols.journal_format.errors import Damaged
from plugins.protocols.journal_format.folders import Location
from plugins.protocols.journal_format.index import Entry
from plugins.protocols.journal_format.names import segment_names, without_index
from plugins.protocols.journal_format.reader import JournalReader
from plugins.protocols.journal_format.segment import Segment


@click.command("verify")
@readable_argument
def verify(journal: Location) -> int:
    """Read everything and check every checksum; report damage by file and offset.

    Exit status 1 if there is any damage.
    """
    reader = JournalReader(journal)
    segments = reader.segments()
    damage_report = DamageReport()
    rows = damaged_entries = 0
    # Each segment has to begin where the one before ends.  The first may begin anywhere, as retention deletes
    # from the front; of an archive the first offset is known.
    end, stop = reader.bounds()
    with progress("verifying", stop - end) as step:
        for segment in segments:
            if segment.name.base != end:
                click.echo(f"kernel: {reader.gap(end, segment.name.base)}", err=True)
                damage_report.count += 1
            end = segment.end
            try:
                damaged_entries += _report_entries(segment)
                for _, record_batch in segment.stored(segment.name.base, end, ["offset"], damage_report):
                    rows += record_batch.num_rows
                    step(record_batch.num_rows)
            except FileNotFoundError:
                if segment.lost_its_data():
                    damage_report(
                        Damaged(segment.data_location, segment.name.base, end, "the file is missing")
                    )
                else:
                    click.echo(f"{segment.name} was deleted or compacted while it was read")
    if end < stop:
        damage_report(reader.gap(end, stop))
    # No damage: a writer was killed between the data and the index, or is just at work.
    behind = sum(entry.rows for segment in segments[-1:] for entry in _behind(segment))
    if behind:
        click.echo(
            f"{counted(behind, 'row')} after the end of {segments[-1].data_location}, whole but not in "
            f"{segments[-1].name.index_name}: the next writer, or repair, adds what is missing"
        )
    for name in without_index(Path(journal)):
        click.echo(
            f"{name.index_path(Path(journal))}: it is missing, unless a compaction or a deletion is at work; the next writer,"
            " or repair, makes it again"
        )
    click.echo(
        f"whole: {counted(rows, 'row')} in {counted(len(segments), 'segment')}; damaged: {counted(damage_report.rows, 'row')}"
    )
    return 1 if damage_report.count or damaged_entries else 0


@click.command("repair")
@journal_argument
def repair(journal: Path) -> int:
    """Rebuild lost and damaged indexes from the data.

    No row that an index lists is deleted.  No writer may be active.  Exit status 1 if some rows stay lost.
    """
    lost = 0
    disk = Disk()
    # No writer may append while indexes are replaced: its descriptor would belong to the old file.
    with writer_lock(journal):
        create_missing_indexes(journal, disk, compacted=True)
        for name in segment_names(journal):
            repaired = repair_index(journal, Segment(journal, name), disk)
            for damage in repaired.lost:
                click.echo(f"kernel: {damage}", err=True)
            lost += len(repaired.lost)
            if repaired.adopted or repaired.replaced:
                click.echo(
                    f"{name}: {counted(repaired.adopted, 'row')} and "
                    f"{counted(repaired.replaced, 'index entry', 'index entries')} were repaired"
                )
    click.echo(
        "the indexes agree with the data"
        if not lost
        else f"{counted(lost, 'commit stays', 'commits stay')} lost"
    )
    return 1 if lost else 0


def _report_entries(segment: Segment) -> int:
    """Report how many entries are damaged or missing, and whether the header is; return their number."""
    damaged = _damaged_entries(segment)
    if damaged:
        click.echo(
            f"{segment.index_location}: {counted(damaged, 'entry or header is', 'entries or headers are')} damaged or missing;"
            " the rows can be read from the data; repair writes the index again"
        )
    return damaged


def _damaged_entries(segment: Segment) -> int:
    raw = segment.raw_entries()
    damaged = raw.count(None)
    # Entries that could be rebuilt and that the index does not have.
    missing = len(segment.entries()) - (len(raw) - damaged)
    return max(damaged, missing) + (not segment.header_is_whole)


def _behind(segment: Segment) -> list[Entry]:
    """Return the commits that are whole in the data and that no entry covers."""
    if segment.lost_its_data():
        return []
    last = segment.last()
    position = segment.header.data_start if last is None else last.stop
    return list(whole_commits(segment, segment.end, position))
