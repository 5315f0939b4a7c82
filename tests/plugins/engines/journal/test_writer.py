"""The writer alone: one at a time, rolling, full disks, and time that goes back."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from kernel.contracts.message import batch_of
from plugins.engines.journal import segment_writer
from plugins.engines.journal.lock import JournalBusy
from plugins.engines.journal.writer import DiskFull, JournalWriter, WriterSettings
from plugins.protocols.journal_format.envelopes import NOWHERE
from plugins.protocols.journal_format.identity import identity_of
from plugins.protocols.journal_format.index import SIZE
from plugins.protocols.journal_format.reader import Bounds, JournalReader
from plugins.protocols.journal_format.schema import STORED_BYTES
from tests.plugins.engines.journal.conftest import (
    Clock,
    LimitedDisk,
    append,
    bodies_in,
    descriptors_in,
    numbered,
)

HEADERS = len(STORED_BYTES) + SIZE
"""Bytes of a segment without rows."""


def test_what_is_appended_is_there_at_once(tmp_path: Path) -> None:
    with JournalWriter(tmp_path / "deep" / "journal") as writer:
        append(writer, b"0", b"1")
        assert bodies_in(writer.path) == [b"0", b"1"]
        append(writer, b"2")
        assert JournalReader(writer.path).bounds() == Bounds(0, 3) == Bounds(0, writer.next_offset)


def test_a_writer_goes_on_where_the_last_one_stopped(tmp_path: Path) -> None:
    for number in range(4):
        with JournalWriter(tmp_path) as writer:
            assert (writer.next_offset, any(writer.recovered)) == (number, False)
            append(writer, b"%d" % number)
    assert bodies_in(tmp_path) == numbered(0, 4)
    assert len(JournalReader(tmp_path).segments()) == 1


def test_a_journal_keeps_its_identity_and_one_that_is_begun_anew_gets_another(tmp_path: Path) -> None:
    def begun() -> str | None:
        with JournalWriter(tmp_path) as writer:
            append(writer, b"0")
        return identity_of(tmp_path)

    first = begun()
    assert begun() == first
    for path in tmp_path.glob("0*"):
        path.unlink()
    second = begun()
    (tmp_path / "identity.json").unlink()  # as a journal of an earlier version
    assert len({first, second, begun(), None}) == 4


def test_a_second_writer_is_told_who_has_the_journal(tmp_path: Path) -> None:
    with (
        JournalWriter(tmp_path),
        pytest.raises(JournalBusy, match=rf"{tmp_path}: process \d+ is writing this journal; .* one writer"),
    ):
        JournalWriter(tmp_path)
    JournalWriter(tmp_path).close()


def test_nobody_outside_the_group_reads_a_journal(tmp_path: Path) -> None:
    with JournalWriter(tmp_path) as writer:
        append(writer, b"secret")
    assert {file.stat().st_mode & 0o007 for file in tmp_path.rglob("*") if file.is_file()} == {0}


def test_segments_end_at_their_size(tmp_path: Path, small: WriterSettings) -> None:
    with JournalWriter(tmp_path, small) as writer:
        for body in numbered(0, 30):
            append(writer, body)
    summaries = JournalReader(tmp_path).summaries()
    assert len(summaries) > 3
    assert all(8000 <= segment.bytes < 12000 for segment in summaries[:-1])
    assert bodies_in(tmp_path) == numbered(0, 30)


def test_segments_end_at_their_age(tmp_path: Path, clock: Clock) -> None:
    with JournalWriter(tmp_path, WriterSettings(roll_seconds=60), clock=clock) as writer:
        assert not writer.roll_if_due()
        append(writer, b"0")
        clock.now += 59
        append(writer, b"1")
        clock.now += 1
        assert writer.roll_if_due()
        clock.now += 1000
        assert not writer.roll_if_due(), "an empty segment is not rolled"
        append(writer, b"2")
    assert [segment.start for segment in JournalReader(tmp_path).summaries()] == [0, 2]


def test_time_never_goes_back(tmp_path: Path, clock: Clock) -> None:
    with JournalWriter(tmp_path, clock=clock) as writer:
        append(writer, b"0")
        writer.roll()
    clock.now -= 500
    with JournalWriter(tmp_path, clock=clock) as writer:  # whose segment is empty
        append(writer, b"1")
        assert writer.stamp(later=True) == 1000_000001
        append(writer, b"2")
    entries = [entry for segment in JournalReader(tmp_path).segments() for entry in segment.entries()]
    assert [entry.max_ts for entry in entries] == [1000_000000, 1000_000000, 1000_000001]


def test_rows_of_an_earlier_time_are_refused(tmp_path: Path, clock: Clock) -> None:
    with JournalWriter(tmp_path, clock=clock) as writer:
        append(writer, b"0")
        with pytest.raises(ValueError, match=r"rows of 999999999 µs cannot follow one of 1000000000 µs"):
            writer.append([(batch_of([b"1"]), 999_999999, NOWHERE)])
        with pytest.raises(ValueError, match="in the order of their times"):
            writer.append([(batch_of([b"1"]), 1000_000000 + later, NOWHERE) for later in (1, 0)])
        append(writer, b"2")
    assert bodies_in(tmp_path) == [b"0", b"2"]


def test_a_disk_that_is_full_at_any_byte_leaves_no_trace(tmp_path: Path) -> None:
    disk = LimitedDisk()
    with JournalWriter(tmp_path, disk=disk) as writer:
        append(writer, b"0")
        files = {path: path.read_bytes() for path in tmp_path.iterdir()}
        before = disk.room
        append(writer, b"1")
        size = before - disk.room
        wanted = [b"0", b"1"]
        for room in range(0, size, 7):
            files = {path: path.read_bytes() for path in tmp_path.iterdir()}
            disk.room = room
            with pytest.raises(DiskFull, match=f"{tmp_path}: No space left"):
                append(writer, b"x")
            assert {path: path.read_bytes() for path in tmp_path.iterdir()} == files
        disk.room = 1 << 40
        append(writer, b"2")
    assert bodies_in(tmp_path) == [*wanted, b"2"]


def test_a_disk_that_is_full_when_a_segment_begins(tmp_path: Path, small: WriterSettings) -> None:
    disk = LimitedDisk()
    with JournalWriter(tmp_path, small, disk=disk) as writer:
        for body in numbered(0, 5):
            append(writer, body)
        files = {path.name for path in tmp_path.iterdir()}
        for room in (0, 500, 1030, 1070):
            disk.room = room
            with pytest.raises(DiskFull):
                append(writer, b"x")
            assert {path.name for path in tmp_path.iterdir()} == files
        disk.room = 1 << 40
        append(writer, b"5")
    assert bodies_in(tmp_path) == numbered(0, 6)


def test_a_segment_that_could_not_begin_is_in_nobodys_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even if who takes it back is killed on the way."""

    class Killed(BaseException):
        pass

    class FullDisk(LimitedDisk):
        def sync_directory(self, path: Path) -> None:
            if not self.room:
                raise OSError(errno.ENOSPC, "No space left on device")

    def dying(path: Path, missing_ok: bool = False) -> None:
        if path.exists():
            unlink(path)
            raise Killed

    unlink = Path.unlink
    disk = FullDisk()
    with JournalWriter(tmp_path, disk=disk) as writer:
        append(writer, b"0")
        disk.room = HEADERS
        with monkeypatch.context() as patch:
            patch.setattr(Path, "unlink", dying)
            with pytest.raises(Killed):
                writer.roll()
    with JournalWriter(tmp_path) as writer:
        append(writer, b"1")
    assert bodies_in(tmp_path) == numbered(0, 2)


def test_a_disk_that_fails_when_a_segment_ends_leaves_nothing_open(tmp_path: Path) -> None:
    failing: list[OSError] = []

    class BrokenDisk(LimitedDisk):
        def sync(self, descriptor: int) -> None:
            if failing and os.fstat(descriptor).st_size > len(STORED_BYTES):  # rows
                raise failing.pop()

    writer = JournalWriter(tmp_path, disk=BrokenDisk())
    append(writer, b"0")
    failing.append(OSError(5, "Input/output error"))
    with pytest.raises(OSError, match="Input/output error"):
        writer.roll()
    assert len(JournalReader(tmp_path).segments()) == 1
    with pytest.raises(OSError, match="an earlier sync failed"):
        append(writer, b"1")
    # The disk would say yes now, to the same file.  What it failed to write is not called safe for that.
    with pytest.raises(OSError, match="Input/output error"):
        writer.close()
    assert not descriptors_in(tmp_path)
    JournalWriter(tmp_path).close()  # the lock was released


def test_some_of_the_disk_is_left_to_others(tmp_path: Path) -> None:
    disk = LimitedDisk(room=1 << 20)
    with JournalWriter(tmp_path, WriterSettings(min_free_bytes=1 << 20), disk=disk) as writer:
        with pytest.raises(DiskFull, match="fewer than 1048576 bytes are free"):
            append(writer, b"x")
        disk.room = 2 << 20
        append(writer, b"0")
    assert bodies_in(tmp_path) == [b"0"]


def test_both_files_are_synchronised_once_something_was_written(tmp_path: Path) -> None:
    disk = LimitedDisk()
    with JournalWriter(tmp_path, disk=disk) as writer:
        disk.syncs.clear()
        assert not writer.sync()
        append(writer, b"0")
        assert writer.sync()
        assert len(set(disk.syncs)) == 2
        assert not writer.sync()


@pytest.mark.parametrize("compression", ["lz4", "zstd"])
def test_compressed_rows_are_smaller_and_the_same(tmp_path: Path, compression: str) -> None:
    bodies = [b"the same words again and again"] * 5000
    with JournalWriter(tmp_path, WriterSettings(compression=compression)) as writer:
        entry = writer.append([(batch_of(bodies), 1, NOWHERE)])
    assert entry.length < 150_000 / 2
    assert bodies_in(tmp_path) == bodies


def test_memory_behind_what_is_safe_is_given_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[tuple[int, int]] = []

    class WatchedDisk(LimitedDisk):
        def forget(self, descriptor: int, start: int, stop: int) -> None:
            given.append((start, stop))
            super().forget(descriptor, start, stop)

    monkeypatch.setattr(segment_writer, "_CACHED", 5000)
    with JournalWriter(tmp_path, disk=WatchedDisk()) as writer:
        for body in numbered(0, 10):
            append(writer, body)
            assert writer.unsynced() > 0
            writer.sync()
            assert writer.unsynced() == 0
    assert len(given) > 3
    assert given[0][0] == 0
    assert [stop for _, stop in given[:-1]] == [start for start, _ in given[1:]]
    assert given[-1][1] == JournalReader(tmp_path).summaries()[0].bytes - 5000
    assert bodies_in(tmp_path) == numbered(0, 10)
