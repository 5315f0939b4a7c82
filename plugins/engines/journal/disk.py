"""What the writer asks of the operating system.  Tests put a full or a broken disk in its place."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kernel.hosting import disk

_APPENDING = os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC


class Disk:
    """The real one.  All calls may block, and raise ``OSError``."""

    def create(self, path: Path) -> int:
        """Open a new file for appending."""
        return os.open(path, _APPENDING | os.O_CREAT | os.O_EXCL, 0o644)

    def reopen(self, path: Path, size: int) -> int:
        """Open a file for appending after ``size`` bytes; what it has more is cut off."""
        fd = os.open(path, _APPENDING)
        os.ftruncate(fd, size)
        return fd

    def write(self, fd: int, pieces: Sequence[Any]) -> None:
        """Append all of the pieces; or some of them, and raise."""
        left = [memoryview(piece) for piece in pieces]
        while left:
            written = os.writev(fd, left[:64])
            while left and written >= len(left[0]):
                written -= len(left.pop(0))
            if written:
                left[0] = left[0][written:]

    def open_direct(self, path: Path) -> int | None:
        """Open a file that is there for writing around the system's cache; None where that cannot be had."""
        return disk.open_direct(path)

    def write_direct(self, fd: int, pages: memoryview, position: int) -> None:
        """Write whole pages around the cache, all or some, and raise.  ``EINVAL``: the file system does not do that."""
        while pages:
            written = os.pwrite(fd, pages, position)
            position += written
            pages = pages[written:]

    def cut(self, fd: int, size: int) -> None:
        """Take back what was appended after ``size`` bytes."""
        os.ftruncate(fd, size)

    def sync(self, fd: int) -> None:
        """Have the file's bytes survive a loss of power."""
        disk.sync_data(fd)

    def forget(self, fd: int, start: int, stop: int) -> None:
        """Give the memory that caches these bytes, which are on the disk, to others."""
        disk.will_not_read(fd, start, stop - start)

    def sync_directory(self, path: Path) -> None:
        """Have the names in a directory survive a loss of power."""
        disk.sync_directory(path)

    def close(self, fd: int) -> None:
        """Close a file."""
        os.close(fd)

    def free(self, path: Path) -> int:
        """Bytes that are free for us on the file system of ``path``."""
        return disk.free_bytes(path)
