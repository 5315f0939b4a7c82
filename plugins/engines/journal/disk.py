"""The calls of the operating system that the writer needs.  Tests replace them by a full or a broken disk."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kernel.hosting import disk

_APPENDING = os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC


class Disk:
    """The real disk.  All calls may block, and raise ``OSError``."""

    def create(self, path: Path) -> int:
        """Open a new file for appending."""
        return os.open(path, _APPENDING | os.O_CREAT | os.O_EXCL, 0o644)

    def reopen(self, path: Path, size: int) -> int:
        """Open a file for appending, truncated to ``size`` bytes."""
        fd = os.open(path, _APPENDING)
        os.ftruncate(fd, size)
        return fd

    def write(self, fd: int, buffers: Sequence[Any]) -> None:
        """Append all buffers.  If it raises, some of their bytes may have been appended."""
        left = [memoryview(buffer) for buffer in buffers]
        while left:
            written = os.writev(fd, left[:64])
            while left and written >= len(left[0]):
                written -= len(left.pop(0))
            if written:
                left[0] = left[0][written:]

    def open_direct(self, path: Path) -> int | None:
        """Open an existing file for direct I/O (O_DIRECT); return None if the system does not support it."""
        return disk.open_direct(path)

    def write_direct(self, fd: int, pages: memoryview, position: int) -> None:
        """Write whole pages with direct I/O.  If it raises, some of them may have been written.

        ``EINVAL``: the file system does not support direct I/O, or wants larger pages.
        """
        while pages:
            written = os.pwrite(fd, pages, position)
            position += written
            pages = pages[written:]

    def cut(self, fd: int, size: int) -> None:
        """Truncate the file to ``size`` bytes."""
        os.ftruncate(fd, size)

    def sync(self, fd: int) -> None:
        """Synchronise the file's data, so that it survives a power failure."""
        disk.sync_data(fd)

    def forget(self, fd: int, start: int, stop: int) -> None:
        """Drop these bytes, which must be on the disk, from the system's page cache."""
        disk.will_not_read(fd, start, stop - start)

    def sync_directory(self, path: Path) -> None:
        """Synchronise a directory, so that the names of new and renamed files survive a power failure."""
        disk.sync_directory(path)

    def close(self, fd: int) -> None:
        """Close a file."""
        os.close(fd)

    def free(self, path: Path) -> int:
        """Return the number of bytes that this process may still use on the file system of ``path``."""
        return disk.free_bytes(path)
