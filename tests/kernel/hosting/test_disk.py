"""Locks and syncs, the same everywhere."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kernel.hosting import disk
from kernel.hosting.disk import FileLock, Locked

HOLDER = """
import sys
from pathlib import Path
from kernel.hosting.disk import FileLock
lock = FileLock(Path(sys.argv[1]))
print("held", flush=True)
sys.stdin.read()
"""


def test_a_lock_says_who_has_it_and_ends_with_its_process(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    with pytest.raises(Locked, match=f"process {holder.pid}"):
        FileLock(path)
    holder.kill()
    holder.communicate()
    with FileLock(path), pytest.raises(Locked, match=f"process {os.getpid()}"):
        FileLock(path)
    FileLock(path).release()


def test_without_fdatasync_the_drive_is_told_to_empty_its_cache(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked: list[tuple[int, int]] = []
    monkeypatch.delattr(os, "fdatasync", raising=False)
    monkeypatch.setattr(fcntl, "F_FULLFSYNC", 51, raising=False)
    monkeypatch.setattr(fcntl, "fcntl", lambda descriptor, command: asked.append((descriptor, command)))
    disk.sync_data(7)
    assert asked == [(7, 51)]
    monkeypatch.undo()
    with (tmp_path / "file").open("wb") as file:
        disk.sync_data(file.fileno())
    disk.sync_directory(tmp_path)


def test_reading_ahead_is_left_out_where_it_cannot_be_asked_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x" * 100)
    with path.open("rb") as file:
        for advise in (disk.will_read, disk.will_not_read):
            advise(file.fileno(), 0, 100)
        monkeypatch.delattr(os, "posix_fadvise", raising=False)
        for advise in (disk.will_read, disk.will_not_read):
            advise(file.fileno(), 0, 100)


@pytest.mark.parametrize("number, ignored", [(errno.EINVAL, True), (errno.EBADF, True), (errno.EIO, False)])
def test_a_file_system_that_cannot_sync_directories_is_used_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, ignored: bool
) -> None:
    def fail(descriptor: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", fail)
    with contextlib.nullcontext() if ignored else pytest.raises(OSError, match=os.strerror(number)):
        disk.sync_directory(tmp_path)


def test_free_space_is_what_the_user_may_take(tmp_path: Path) -> None:
    assert 0 < disk.free_bytes(tmp_path) <= os.statvfs(tmp_path).f_blocks * os.statvfs(tmp_path).f_frsize
