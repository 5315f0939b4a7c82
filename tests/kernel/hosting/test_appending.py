"""Files that only grow at their end, on a disk that is full, writes short, or fails."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from kernel.contracts.message import Buffer
from kernel.hosting.appending import AppendedFile, Disk, replace_file
from tests.systems import linux_only


class FaultyDisk(Disk):
    """Fails the next calls of one name, or has room for so many octets only."""

    def __init__(self) -> None:
        self.faults: dict[str, list[int]] = {}
        self.room: int | None = None
        self.calls: list[str] = []

    def fail(self, call: str, *errors: int) -> None:
        """Have the next calls of this name raise these, one each."""
        self.faults[call] = list(errors)

    def _enter(self, call: str) -> None:
        self.calls.append(call)
        if self.faults.get(call):
            number = self.faults[call].pop(0)
            raise OSError(number, os.strerror(number))

    def write(self, descriptor: int, data: Buffer, position: int) -> None:
        self._enter("write")
        if self.room is not None and len(data) > self.room:
            super().write(descriptor, data[: self.room], position)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        super().write(descriptor, data, position)

    def reserve(self, descriptor: int, start: int, stop: int) -> int:
        self._enter("reserve")
        return super().reserve(descriptor, start, stop)

    def cut(self, descriptor: int, size: int) -> None:
        self._enter("cut")
        super().cut(descriptor, size)

    def sync(self, descriptor: int) -> None:
        self._enter("sync")
        super().sync(descriptor)

    def sync_directory(self, path: Path) -> None:
        self._enter("sync_directory")
        super().sync_directory(path)

    def close(self, descriptor: int) -> None:
        self.calls.append("close")
        super().close(descriptor)


@pytest.fixture
def disk() -> FaultyDisk:
    return FaultyDisk()


def test_what_is_written_stands_one_behind_the_other(disk: FaultyDisk, tmp_path: Path) -> None:
    path = tmp_path / "file"
    file = AppendedFile.create(disk, path)
    file.write(b"one")
    file.write(memoryview(b"two"))
    file.write(b"")
    assert file.position == 6
    file.sync()
    file.close()
    assert path.read_bytes() == b"onetwo"
    assert path.stat().st_mode & 0o777 == 0o640
    again = AppendedFile.reopen(disk, path, 3)
    again.write(b"three")
    again.close()
    assert path.read_bytes() == b"onethree"


def test_an_existing_file_is_never_overwritten(disk: FaultyDisk, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"somebody's")
    with pytest.raises(FileExistsError):
        AppendedFile.create(disk, path)
    assert path.read_bytes() == b"somebody's"


def test_a_system_that_writes_less_than_it_was_given_is_asked_again(
    disk: FaultyDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = os.pwrite
    sizes: list[int] = []

    def short(descriptor: int, data: memoryview, position: int) -> int:
        sizes.append(len(data))
        return write(descriptor, data[:7], position)

    monkeypatch.setattr(os, "pwrite", short)
    octets = bytes(range(100))
    file = AppendedFile.create(disk, tmp_path / "file")
    file.write(octets)
    descriptor = disk.reopen(tmp_path / "file")
    disk.write_direct(descriptor, memoryview(octets), 100)
    disk.close(descriptor)
    file.passed(100)
    file.write(b"end")
    file.close()
    assert (tmp_path / "file").read_bytes() == octets + octets + b"end"
    assert sizes[:3] == [100, 93, 86]


def test_one_call_is_given_no_more_than_systems_take(
    disk: FaultyDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = os.pwrite
    sizes: list[int] = []

    def counted(descriptor: int, data: memoryview, position: int) -> int:
        sizes.append(len(data))
        return write(descriptor, data, position)

    monkeypatch.setattr(os, "pwrite", counted)
    octets = os.urandom((2 << 20) + 5)
    file = AppendedFile.create(disk, tmp_path / "file")
    file.write(octets)
    file.close()
    assert sizes == [1 << 20, 1 << 20, 5]
    assert (tmp_path / "file").read_bytes() == octets


@pytest.mark.parametrize("reserved", [0, 1000])
def test_what_a_full_disk_took_in_part_is_overwritten_or_cut_off(
    disk: FaultyDisk, tmp_path: Path, reserved: int
) -> None:
    path = tmp_path / "file"
    file = AppendedFile.create(disk, path, reserved=reserved)
    file.write(b"whole")
    disk.room = 3
    with pytest.raises(OSError, match="No space left"):
        file.write(b"in part")
    assert file.position == 5
    assert path.read_bytes().startswith(b"wholein ")
    disk.room = None
    file.write(b"new")
    disk.room = 2
    with pytest.raises(OSError, match="No space left"):
        file.write(b"in part")
    file.cut(file.position)
    file.close()
    assert path.read_bytes() == b"wholenew"


@pytest.mark.parametrize("call", ["write", "cut"])
def test_an_error_of_the_disk_is_told_and_the_next_attempt_may_succeed(
    disk: FaultyDisk, tmp_path: Path, call: str
) -> None:
    file = AppendedFile.create(disk, tmp_path / "file")
    file.write(b"one")
    disk.fail(call, errno.EIO)
    with pytest.raises(OSError, match="Input/output error"):
        file.write(b"two") if call == "write" else file.cut(0)
    assert file.position == 3
    file.write(b"two")
    file.sync()
    file.close()
    assert (tmp_path / "file").read_bytes() == b"onetwo"


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
def test_after_a_failed_sync_nothing_of_the_file_is_trusted(
    disk: FaultyDisk, tmp_path: Path, error: int
) -> None:
    """The system says yes the next time, to data that it has dropped."""
    file = AppendedFile.create(disk, tmp_path / "file")
    file.write(b"one")
    disk.fail("sync", error)
    with pytest.raises(OSError, match=os.strerror(error)) as first:
        file.sync()
    with pytest.raises(OSError, match=os.strerror(error)) as second:
        file.sync()
    assert second.value is first.value
    assert disk.calls.count("sync") == 1
    with pytest.raises(OSError, match="an earlier sync failed") as refused:
        file.write(b"two")
    # Not "no space left": then the writer would wait for space, which does not help this file.
    assert refused.value.errno == errno.EIO
    file.cut(0)
    file.close()
    assert (tmp_path / "file").read_bytes() == b""


@linux_only
def test_room_is_reserved_ahead_so_that_a_sync_has_no_new_size_to_write(
    disk: FaultyDisk, tmp_path: Path
) -> None:
    path = tmp_path / "file"
    file = AppendedFile.create(disk, path, reserved=1000)
    for _ in range(25):
        file.write(b"x" * 100)
    assert disk.calls.count("reserve") == 3
    assert path.stat().st_size == 3300
    assert path.read_bytes() == b"x" * 2500 + bytes(800)
    file.end()
    assert path.stat().st_size == 2500
    file.close()
    assert path.read_bytes() == b"x" * 2500


def test_a_disk_that_reserves_nothing_is_written_all_the_same(
    disk: FaultyDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", refuse, raising=False)
    file = AppendedFile.create(disk, tmp_path / "file", reserved=1000)
    file.write(b"one")
    file.write(b"two")
    assert (tmp_path / "file").read_bytes() == b"onetwo"
    file.close()


def test_a_file_that_cannot_be_cut_is_closed_nevertheless(disk: FaultyDisk, tmp_path: Path) -> None:
    file = AppendedFile.create(disk, tmp_path / "file", reserved=1000)
    file.write(b"one")
    disk.fail("cut", errno.EIO)
    with pytest.raises(OSError, match="Input/output error"):
        file.close()
    assert disk.calls[-1] == "close"
    disk.fail("cut", errno.EIO)
    with pytest.raises(OSError, match="Input/output error"):
        AppendedFile.reopen(disk, tmp_path / "file", 3)
    assert disk.calls[-2:] == ["cut", "close"]


def test_a_small_file_is_replaced_as_a_whole(disk: FaultyDisk, tmp_path: Path) -> None:
    path = tmp_path / "file"
    (tmp_path / ".file.new").write_bytes(b"of a process that was killed")
    replace_file(path, b"old", disk=disk)
    replace_file(path, b"new", disk=disk, mode=0o600)
    assert path.read_bytes() == b"new"
    assert path.stat().st_mode & 0o777 == 0o600
    assert os.listdir(tmp_path) == ["file"]
    assert disk.calls == ["write", "sync", "close", "sync_directory"] * 2


@pytest.mark.parametrize(
    "break_", [lambda disk: disk.fail("write", errno.EIO), lambda disk: disk.fail("sync", errno.EIO)]
)
def test_a_small_file_that_cannot_be_replaced_stays(
    disk: FaultyDisk, tmp_path: Path, break_: Callable[[FaultyDisk], None]
) -> None:
    path = tmp_path / "file"
    replace_file(path, b"old", disk=disk)
    break_(disk)
    with pytest.raises(OSError, match="Input/output error"):
        replace_file(path, b"new", disk=disk)
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["file"]
    assert disk.calls[-1] == "close"


def test_a_name_that_may_not_be_durable_is_told(disk: FaultyDisk, tmp_path: Path) -> None:
    disk.fail("sync_directory", errno.EIO)
    with pytest.raises(OSError, match="Input/output error"):
        replace_file(tmp_path / "file", b"new", disk=disk)
