"""``kernel journal verify`` and ``repair``."""

from __future__ import annotations

from pathlib import Path

import click

from plugins.engines.journal.commands.common import DamageTold, journal_argument, progress
from plugins.engines.journal.disk import Disk
from plugins.engines.journal.lock import writer_lock
from plugins.engines.journal.mending import give_index, mend, whole_commits
from plugins.protocols.journal_format.errors import Damaged
from plugins.protocols.journal_format.index import Entry
from plugins.protocols.journal_format.names import segment_names
from plugins.protocols.journal_format.reader import JournalReader
from plugins.protocols.journal_format.segment import Segment


@click.command("verify")
@journal_argument
def verify(journal: Path) -> int:
    """Read everything and compare every checksum; damage is named by file and offset.

    Exit status 1 if there is any.
    """
    reader = JournalReader(journal)
    segments = reader.segments()
    told = DamageTold()
    rows = spoilt = 0
    end = segments[0].name.base
    with progress("verifying", segments[-1].end - end) as step:
        for segment in segments:
            if segment.name.base != end:
                click.echo(
                    f"kernel: {journal}: offsets {end} to {segment.name.base - 1} are in no segment", err=True
                )
                told.places += 1
            end = segment.end
            try:
                spoilt += _spoilt_entries(segment)
                for _, record_batch in segment.stored(segment.name.base, end, ["offset"], told):
                    rows += record_batch.num_rows
                    step(record_batch.num_rows)
            except FileNotFoundError:
                if segment.lost_its_data():
                    told(Damaged(str(segment.data_path), segment.name.base, end, "the file is missing"))
                else:
                    click.echo(f"{segment.name} was deleted or compacted meanwhile")
    behind = sum(entry.rows for entry in _behind(segments[-1]))
    if behind:
        click.echo(f"{behind} rows behind the end of {segments[-1].data_path} are whole, but not in the index: "
                   "the next writer, or repair, takes them in")  # fmt: skip
    if spoilt:
        click.echo(
            f"{spoilt} entries or headers of indexes are damaged or missing; what their rows hold is read from the data;"
            " repair writes them again"
        )
    click.echo(f"{rows:,} rows in {len(segments)} segments are whole; {told.rows:,} are damaged")
    return 1 if told.places or spoilt else 0


@click.command("repair")
@journal_argument
def repair(journal: Path) -> int:
    """Make good what the data prove: an index that is lost or damaged is made anew.

    Nothing that an index promises is deleted.  The journal must not be written meanwhile.  Exit status 1 if something
    stays lost.
    """
    lost = 0
    disk = Disk()
    with writer_lock(journal):
        give_index(journal, disk, compacted=True)
        for name in segment_names(journal):
            mended = mend(journal, Segment(journal, name), disk)
            for damage in mended.lost:
                click.echo(f"kernel: {damage}", err=True)
            lost += len(mended.lost)
            if mended.adopted or mended.replaced:
                click.echo(
                    f"{name}: {mended.adopted} rows and {mended.replaced} index entries were made good"
                )
    click.echo("the indexes agree with the data" if not lost else f"{lost} commits stay lost")
    return 1 if lost else 0


def _spoilt_entries(segment: Segment) -> int:
    """Return how many entries are damaged or missing, and whether the header is."""
    raw = segment.raw_entries()
    damaged = raw.count(None)
    missing = len(segment.entries()) - (len(raw) - damaged)
    return max(damaged, missing) + (not segment.header_is_whole)


def _behind(segment: Segment) -> list[Entry]:
    """Return the commits that are whole in the data and that no entry covers."""
    if segment.lost_its_data():
        return []
    last = segment.last()
    position = segment.header.data_start if last is None else last.stop
    return list(whole_commits(segment, segment.end, position))
