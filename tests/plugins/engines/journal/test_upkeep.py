"""Retention and compaction: what may go, what must stay, and what a reader that is at work sees."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path

import pyarrow as pa
import pytest

from kernel.cli.main import run
from kernel.contracts.message import Envelope, batch_of
from plugins.engines.journal import compaction, retention
from plugins.engines.journal.compaction import compact
from plugins.engines.journal.lock import JournalBusy, compaction_lock
from plugins.engines.journal.options import KeepOptions
from plugins.engines.journal.positions import write_position
from plugins.engines.journal.retention import delete, expired
from plugins.engines.journal.writer import DiskFull, JournalWriter, WriterSettings
from plugins.protocols.journal_format.envelopes import Source
from plugins.protocols.journal_format.errors import Damaged
from plugins.protocols.journal_format.names import SegmentName
from plugins.protocols.journal_format.reader import Bounds, JournalReader
from tests.plugins.engines.journal.conftest import (
    Clock,
    LimitedDisk,
    append,
    bodies_in,
    descriptors_in,
    numbered,
)

SECOND = 1_000_000


@pytest.fixture
def journal(tmp_path: Path, small: WriterSettings, clock: Clock) -> Path:
    """30 commits, one a second from 1000 s on, in some segments."""
    with JournalWriter(tmp_path, small, clock=clock) as writer:
        for number, body in enumerate(numbered(0, 30)):
            append(
                writer,
                body,
                envelope=Envelope(key=f"k.{number % 2}", properties={"headers": {"a": number % 2}}),
            )
            clock.now += 1
    return tmp_path


def starts(journal: Path) -> list[int]:
    return [segment.start for segment in JournalReader(journal).summaries()]


def kept(journal: Path, keep: KeepOptions, now: float = 1030) -> list[int]:
    """Return the first offsets of the segments that stay."""
    gone = {segment.start for segment in expired(journal, keep, int(now * SECOND))}
    return [start for start in starts(journal) if start not in gone]


def test_without_limits_all_is_kept(journal: Path) -> None:
    assert kept(journal, KeepOptions(), now=1e9) == starts(journal)


def test_by_size_the_oldest_go_first(journal: Path) -> None:
    segments = JournalReader(journal).summaries()
    total = sum(segment.bytes for segment in segments)
    assert kept(journal, KeepOptions(bytes=total)) == starts(journal)
    assert kept(journal, KeepOptions(bytes=total - 1)) == starts(journal)[1:]
    assert kept(journal, KeepOptions(bytes=1)) == starts(journal)[-1:], "the one that is written to stays"


def test_by_age_only_what_is_wholly_old_goes(journal: Path) -> None:
    first, second = JournalReader(journal).summaries()[:2]
    age = (1030 * SECOND - first.max_ts) / SECOND
    assert kept(journal, KeepOptions(seconds=age)) == starts(journal)
    assert kept(journal, KeepOptions(seconds=age - 0.5)) == starts(journal)[1:]
    assert second.start in kept(journal, KeepOptions(seconds=age - 0.5))


def test_consumers_are_waited_for(journal: Path) -> None:
    second = starts(journal)[1]
    write_position(journal, "fast", 30)
    write_position(journal, "slow", second)
    assert kept(journal, KeepOptions(bytes=1)) == starts(journal)[1:]
    assert kept(journal, KeepOptions(bytes=1, for_consumers=False)) == starts(journal)[-1:]
    assert kept(journal, KeepOptions(unread_only=True)) == starts(journal)[1:]
    write_position(journal, "slow", second - 1)
    assert kept(journal, KeepOptions(unread_only=True)) == starts(journal)


def test_without_consumers_nothing_counts_as_read(journal: Path) -> None:
    assert kept(journal, KeepOptions(unread_only=True)) == starts(journal)


def test_what_is_deleted_is_gone_and_a_writer_goes_on(journal: Path) -> None:
    gone = expired(journal, KeepOptions(bytes=1), 0)
    delete(journal, gone)
    with JournalWriter(journal) as writer:
        append(writer, b"30")
    assert JournalReader(journal).bounds() == Bounds(gone[-1].end, 31)
    assert bodies_in(journal) == numbered(gone[-1].end, 31)


def test_what_is_deleted_does_not_come_back_from_a_compaction_that_was_killed(
    tmp_path: Path, journal: Path
) -> None:
    """It was killed before the first of the old files was deleted; the writer goes on all the time."""
    before = [path for path in journal.iterdir() if path.is_file()]
    kept = tmp_path / "kept"
    kept.mkdir()
    for path in before:
        shutil.copy(path, kept)
    (done,) = compact(journal)
    for path in before:
        if not path.exists():
            shutil.copy(kept / path.name, path)
    gone = expired(journal, KeepOptions(bytes=1), 0)
    assert [segment.name for segment in gone] == [done.name]
    delete(journal, gone)
    assert JournalReader(journal).bounds() == Bounds(gone[-1].end, 30)
    assert len(list(journal.glob("*.arrows"))) == 1


def test_compaction_changes_no_row(journal: Path) -> None:
    before = pa.Table.from_batches(JournalReader(journal).record_batches())
    sealed = starts(journal)[-1]
    (done,) = compact(journal)
    assert (done.batches_before, done.record_batches) == (sealed, 1)
    assert done.bytes < done.bytes_before / 5
    assert pa.Table.from_batches(JournalReader(journal).record_batches()).equals(before)
    assert [segment.name for segment in JournalReader(journal).segments()] == [
        SegmentName(0, 1),
        SegmentName(sealed, 0),
    ]
    assert len(list(journal.glob("*.arrows"))) == 2
    assert compact(journal) == [], "nothing is gained by doing it again"


def test_compaction_while_a_reader_reads_and_a_writer_writes(journal: Path, small: WriterSettings) -> None:
    reading = JournalReader(journal).record_batches(columns=["body"])
    got = next(reading).column(0).to_pylist()
    with JournalWriter(journal, small) as writer:
        compact(journal)
        for body in numbered(30, 40):
            append(writer, body)
        compact(journal)
        got += [body for record_batch in reading for body in record_batch.column(0).to_pylist()]
    assert got == numbered(0, 40)
    assert bodies_in(journal) == numbered(0, 40)


def test_compacted_segments_are_no_larger_than_asked_for(journal: Path) -> None:
    compact(journal, segment_bytes=20_000)
    names = [segment.name for segment in JournalReader(journal).segments()]
    assert len(names) > 2
    assert all(name.generation == 1 for name in names[:-1])
    assert bodies_in(journal) == numbered(0, 30)


@pytest.mark.parametrize("number", [0, 2])
def test_what_is_damaged_is_left_alone_and_told_and_what_is_beside_it_compacted(
    journal: Path, number: int
) -> None:
    *sealed, _ = starts(journal)
    bad, behind = sealed[number : number + 2]
    path = SegmentName(bad, 0).data_path(journal)
    good = path.read_bytes()
    path.write_bytes(good[:2000] + b"?" + good[2001:])
    told: list[Damaged] = []
    done = [(one.name, one.segments) for one in compact(journal, on_damage=told.append)]
    assert done == [
        *([(SegmentName(0, 1), number)] if number else []),
        (SegmentName(behind, 1), len(sealed) - number - 1),
    ]
    (lost,) = told
    assert path.exists()
    assert lost.start == bad
    read = JournalReader(journal).record_batches(on_damage=lambda _: None)
    rows = {row for record_batch in read for row in record_batch["offset"].to_pylist()}
    assert rows == set(range(30)) - set(range(lost.start, lost.stop))


def test_rows_on_both_sides_of_a_gap_do_not_become_neighbours(journal: Path) -> None:
    """Somebody has moved away a segment that was damaged."""
    _, second, third, *_ = starts(journal)
    for path in journal.glob(f"{SegmentName(second, 0)}.*"):
        path.unlink()
    compact(journal)
    offsets = [
        row
        for record_batch in JournalReader(journal).record_batches(third)
        for row in record_batch["offset"].to_pylist()
    ]
    assert offsets == list(range(third, 30))
    assert bodies_in(journal, third) == numbered(third, 30)
    assert run(["journal", "repair", str(journal)]) == 0
    assert bodies_in(journal, third) == numbered(third, 30)


def test_an_index_is_durably_gone_before_its_data_and_before_the_next_index(
    journal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a loss of power could leave an index without data, or a gap: both are damage to readers."""
    calls: list[str] = []
    unlink, sync = Path.unlink, retention.sync_directory

    def unlinked(path: Path, missing_ok: bool = False) -> None:
        calls.append(path.name)
        unlink(path, missing_ok)

    def synced(path: Path) -> None:
        assert path == journal
        calls.append("sync")
        sync(path)

    monkeypatch.setattr(Path, "unlink", unlinked)
    monkeypatch.setattr(retention, "sync_directory", synced)
    first, second = JournalReader(journal).summaries()[:2]
    delete(journal, [first, second])
    assert calls == [
        word
        for segment in (first, second)
        for word in (f"{segment.name}.index", "sync", f"{segment.name}.arrows")
    ]


@pytest.mark.parametrize("parquet", [False, True])
def test_a_segment_after_which_the_next_could_not_begin_is_still_written_to(
    journal: Path, tmp_path_factory: pytest.TempPathFactory, parquet: bool
) -> None:
    words = ["--parquet", str(tmp_path_factory.mktemp("pq"))] if parquet else []

    class FullDisk(LimitedDisk):
        def sync_directory(self, path: Path) -> None:
            assert run(["journal", "compact", str(journal), *words]) == 0
            raise OSError(errno.ENOSPC, "No space left on device")

    with JournalWriter(journal) as writer:
        writer.disk = FullDisk()
        with pytest.raises(DiskFull):
            writer.roll()
        append(writer, b"30")
    assert bodies_in(journal)[-1] == b"30"


def test_two_do_not_compact_at_once(journal: Path) -> None:
    with (
        compaction_lock(journal),
        pytest.raises(JournalBusy, match=r"process \d+ is compacting this journal"),
    ):
        compact(journal)
    with compaction_lock(journal):
        JournalWriter(journal).close()  # a writer begins nevertheless


@pytest.mark.parametrize("who", ["a writer", "repair"])
def test_what_a_killed_compaction_has_written_never_stands_for_all_of_it(
    journal: Path, monkeypatch: pytest.MonkeyPatch, who: str
) -> None:
    killed = journal / "killed"

    def interrupted(_: int) -> None:
        """Begin to write while it is at work; or find what it has left."""
        if not killed.exists():
            if who == "a writer":
                JournalWriter(journal).close()
            shutil.copytree(journal, killed)

    monkeypatch.setattr(compaction, "ROWS", 7)
    compact(journal, on_rows=interrupted)
    assert bodies_in(journal) == numbered(0, 30)
    assert SegmentName(0, 1).data_path(killed).exists()
    if who == "repair":
        assert run(["journal", "repair", str(killed)]) == 0
    JournalWriter(killed).close()
    assert bodies_in(killed) == numbered(0, 30)


def test_a_disk_that_is_full_when_all_but_the_index_is_written_gets_its_room_back(
    journal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = LimitedDisk()
    monkeypatch.setattr(compaction, "Disk", lambda: disk)

    def filled(rows: int) -> None:
        disk.room = 10

    files = {path.name for path in journal.glob("*.arrows")}
    with pytest.raises(OSError, match="No space left"):
        compact(journal, on_rows=filled)
    assert {path.name for path in journal.glob("*.arrows")} == files
    assert not descriptors_in(journal)


def test_what_retention_takes_meanwhile_is_not_compacted(
    journal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, _, third, *_ = starts(journal)
    size = JournalReader(journal).summaries()[0].bytes

    def taken(_: int) -> None:
        if starts(journal)[0] < third:
            delete(journal, JournalReader(journal).summaries()[:2])

    monkeypatch.setattr(compaction, "ROWS", 4)
    done = compact(journal, segment_bytes=2 * size + 100, on_rows=taken)
    assert {path.name for path in journal.glob(f"{SegmentName(first, 1)}*")} == set()
    assert [one.name.base for one in done] == starts(journal)[:-1]
    assert bodies_in(journal) == numbered(third, 30)


def test_multi_part_messages_and_sources_survive_compaction(tmp_path: Path) -> None:
    with JournalWriter(tmp_path, WriterSettings(roll_bytes=1)) as writer:
        for number in range(3):
            batch = batch_of([(b"a", b"%d" % number)], Envelope(key="k"), multipart=True)
            writer.append([(batch, writer.stamp(), Source(f"e{number}", "r"))])
    before = pa.Table.from_batches(JournalReader(tmp_path).record_batches())
    compact(tmp_path)
    assert pa.Table.from_batches(JournalReader(tmp_path).record_batches()).equals(before)
    assert before.column("engine").to_pylist() == ["e0", "e1", "e2"]
