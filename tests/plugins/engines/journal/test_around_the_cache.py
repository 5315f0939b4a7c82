"""Large commits go around the system's cache: the same bytes in the same places, whatever the disk says to it."""

import errno
import os
from pathlib import Path

import pytest

from kernel.contracts.message import Batch, batch_of
from plugins.engines.journal import data_file
from plugins.engines.journal.writer import DiskFull, JournalWriter, WriterSettings
from plugins.protocols.journal_format.buffer_pool import PAGE
from plugins.protocols.journal_format.envelopes import NOWHERE, Source
from plugins.protocols.journal_format.reader import JournalReader
from tests.plugins.engines.journal.conftest import LimitedDisk, append, bodies_in

SIZES = (PAGE, 5 * PAGE + 1, 100, 3 * PAGE - 700, 9 * PAGE, 2 * PAGE)
"""Of bodies, one a commit: commits that begin and end anywhere in a page."""


class PretendingDisk(LimitedDisk):
    """Goes around the cache on any file system: what has to be aligned is looked at, and then written like anything else."""

    def __init__(self, refuse: int = 0, taken_before: int = 0) -> None:
        super().__init__()
        self.taken_before = taken_before
        self.around: list[tuple[int, int]] = []
        self.descriptors: set[int] = set()
        self.refuse = refuse

    def open_direct(self, path: Path) -> int:
        fd = os.open(path, os.O_WRONLY)
        self.descriptors.add(fd)
        return fd

    def close(self, descriptor: int) -> None:
        self.descriptors.discard(descriptor)
        super().close(descriptor)

    def write_direct(self, descriptor: int, pages: memoryview, position: int) -> None:
        if self.refuse:
            super().write_direct(descriptor, pages[: self.taken_before], position)
            raise OSError(self.refuse, os.strerror(self.refuse))
        assert descriptor in self.descriptors
        assert (position % PAGE, len(pages) % PAGE, _address(pages) % PAGE) == (0, 0, 0)
        self.around.append((position, len(pages)))
        super().write_direct(descriptor, pages, position)


@pytest.fixture(autouse=True)
def whole_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few bytes are enough to go around the cache, as long as they are whole pages."""
    monkeypatch.setattr(data_file, "DIRECT_FROM", PAGE)


def test_a_file_is_the_same_whichever_way_it_was_written(tmp_path: Path) -> None:
    disk = PretendingDisk()
    bodies = _fill(tmp_path / "around", disk)
    _fill(tmp_path / "real")
    _fill(tmp_path / "cached", LimitedDisk())
    assert bodies_in(tmp_path / "around") == bodies_in(tmp_path / "real") == bodies
    files = [[path.read_bytes() for path in sorted(folder.glob("0*"))] for folder in tmp_path.iterdir()]
    assert files[0] == files[1] == files[2]
    assert len(disk.around) == len(SIZES) - 2  # two have no whole page to themselves
    assert sum(size for _, size in disk.around) > sum(SIZES) * 0.8
    assert not disk.descriptors


def test_a_disk_that_is_full_at_any_page_leaves_no_trace(tmp_path: Path) -> None:
    disk = PretendingDisk()
    with JournalWriter(tmp_path, disk=disk) as writer:
        append(writer, b"0" * 700)
        before = disk.room
        append(writer, b"1" * 5 * PAGE)
        for room in range(0, before - disk.room, PAGE // 3):
            files = {path: path.read_bytes() for path in tmp_path.iterdir()}
            disk.room = room
            with pytest.raises(DiskFull, match=f"{tmp_path}: No space left"):
                append(writer, b"x" * 5 * PAGE)
            assert {path: path.read_bytes() for path in tmp_path.iterdir()} == files
        disk.room = 1 << 40
        append(writer, b"2" * 5 * PAGE)
    assert bodies_in(tmp_path) == [b"0" * 700, b"1" * 5 * PAGE, b"2" * 5 * PAGE]


@pytest.mark.parametrize("taken_before", [0, 100, PAGE])
def test_a_file_system_that_refuses_is_not_asked_again(tmp_path: Path, taken_before: int) -> None:
    disk = PretendingDisk(errno.EINVAL, taken_before)
    bodies = _fill(tmp_path, disk)
    assert bodies_in(tmp_path) == bodies
    assert not disk.around
    assert not disk.descriptors


def test_a_slow_disk_is_waited_for_by_the_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = iter(range(1000))
    monkeypatch.setattr(data_file.time, "perf_counter", lambda: next(seconds))
    monkeypatch.setattr(data_file, "_MEASURED_BYTES", 18 * PAGE)
    monkeypatch.setattr(data_file, "_CACHED_WHEN_SLOW", 50 * PAGE)
    disk = PretendingDisk()
    with JournalWriter(tmp_path, disk=disk) as writer:
        for _ in range(20):
            append(writer, b"x" * 10 * PAGE)
    starts = [position // PAGE for position, _ in disk.around]
    assert starts[1] - starts[0] < 12  # two, until it is known
    assert 60 < starts[2] - starts[1] < 75  # then as much as is said goes through the cache
    assert starts[3] - starts[2] < 12  # and the disk gets another chance


def test_a_commit_that_was_made_for_another_place_goes_through_the_cache(tmp_path: Path) -> None:
    disk = PretendingDisk()
    with JournalWriter(tmp_path, WriterSettings(roll_bytes=8 * PAGE), disk=disk) as writer:
        batches = [_stamped(writer, b"a" * 10 * PAGE)]
        first = writer.encode(batches)
        second = writer.encode([_stamped(writer, b"b" * 10 * PAGE)], after=first)
        writer.append_encoded(first)
        writer.append_encoded(second)  # begins a segment
    assert len(JournalReader(tmp_path).segments()) == 2
    assert len(disk.around) == 1
    assert bodies_in(tmp_path) == [b"a" * 10 * PAGE, b"b" * 10 * PAGE]


def _fill(path: Path, disk: LimitedDisk | None = None) -> list[bytes]:
    bodies = [bytes([number]) * size for number, size in enumerate(SIZES)]
    with JournalWriter(path, disk=disk, clock=lambda: 1000.0) as writer:
        for body in bodies:
            append(writer, body)
    return bodies


def _stamped(writer: JournalWriter, body: bytes) -> tuple[Batch, int, Source]:
    return batch_of([body]), writer.stamp(), NOWHERE


def _address(memory: memoryview) -> int:
    import ctypes

    return ctypes.addressof(ctypes.c_char.from_buffer(memory))
