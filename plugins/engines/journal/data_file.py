"""The data file of a segment: its commits, one after the other.  Large commits are written with direct I/O.

Writing through the system's page cache costs 65 to 280 ns for the 124 bytes of a small message; direct I/O
costs 15 ns (2026-11-21, on a virtual machine; the lower figure is with cache pages that are reused).  Direct
I/O writes whole pages only: the bytes of a commit before its first page boundary and after its last one go
through the cache, and so do small commits.
"""

from __future__ import annotations

import errno
import time
from pathlib import Path

from plugins.engines.journal.disk import Disk
from plugins.protocols.journal_format.buffer_pool import PAGE
from plugins.protocols.journal_format.record_batch import EncodedRecordBatch

DIRECT_FROM = 256 << 10
"""Direct I/O is used for at least this number of bytes in whole pages: each direct write waits for the
disk."""

_SLOW = 256 << 20
"""Bytes per second.  A disk that is slower gets its data through the cache, which takes at least this
rate."""

_MEASURED_BYTES = 16 << 20
"""The disk's speed is computed after each time this number of bytes was written directly."""

_CACHED_WHEN_SLOW = 64 << 20
"""Bytes that are written through the cache before direct I/O to a slow disk is tried again."""


class DataFile:
    """A data file that is appended to.  ``position`` is its size in bytes: the end of its last commit."""

    def __init__(self, disk: Disk, fd: int, path: Path, position: int) -> None:
        """``fd`` is a descriptor for appending, of a file of size ``position``.

        This object closes it; if the constructor raises, the caller does.
        """
        self.position = position
        self._disk = disk
        self._fd = fd
        self._direct = disk.open_direct(path)
        self._bytes = 0
        self._seconds = 0.0  # spent in direct writes of ``_bytes``
        self._direct_again = 0

    def append(self, record_batch: EncodedRecordBatch) -> None:
        """Write a commit.  After an ``OSError`` the file may have some of it: the caller calls ``cut``."""
        data, lead = record_batch.data, self.position % PAGE
        first = -lead % PAGE
        last = first + (len(data) - first) // PAGE * PAGE
        if self._direct is None or record_batch.lead != lead or last - first < DIRECT_FROM or self._is_slow():
            self._disk.write(self._fd, [data])
        else:
            self._disk.write(self._fd, [data[:first]])
            self._write_direct(self._direct, data[first:last], self.position + first)
            self._disk.write(self._fd, [data[last:]])
        self.position += len(data)

    def cut(self, size: int) -> None:
        """Truncate the file to ``size`` bytes."""
        self._disk.cut(self._fd, size)
        self.position = size

    def sync(self) -> None:
        """Synchronise the file's data, so that it survives a power failure."""
        self._disk.sync(self._fd)

    def forget(self, start: int, stop: int) -> None:
        """Drop these bytes from the system's page cache."""
        self._disk.forget(self._fd, start, stop)

    def close(self) -> None:
        """Close the file."""
        self._disk.close(self._fd)
        self._close_direct()

    def _write_direct(self, direct: int, pages: memoryview, position: int) -> None:
        began = time.perf_counter()
        try:
            self._disk.write_direct(direct, pages, position)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            self._close_direct()  # this file system or disk does not support it, or wants larger pages
            self._disk.cut(self._fd, position)  # some pages may have been written before the error
            self._disk.write(self._fd, [pages])
            return
        self._bytes += len(pages)
        self._seconds += time.perf_counter() - began

    def _is_slow(self) -> bool:
        """Return whether direct writes are slower than the cache at present."""
        if self._bytes >= _MEASURED_BYTES:
            if self._bytes < _SLOW * self._seconds:
                self._direct_again = self.position + _CACHED_WHEN_SLOW
            self._bytes, self._seconds = 0, 0.0
        return self.position < self._direct_again

    def _close_direct(self) -> None:
        if self._direct is not None:
            self._disk.close(self._direct)
            self._direct = None
