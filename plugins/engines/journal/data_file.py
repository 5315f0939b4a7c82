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

from kernel.hosting.appending import AppendedFile, Disk
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
    """A data file that is appended to."""

    def __init__(self, disk: Disk, file: AppendedFile, path: Path) -> None:
        """This object closes ``file``; if the constructor raises, the caller does."""
        self._disk = disk
        self._file = file
        self._direct = disk.open_direct(path)
        self._bytes = 0
        self._seconds = 0.0  # spent in direct writes of ``_bytes``
        self._direct_again = 0

    @property
    def position(self) -> int:
        """The size of the file in bytes: the end of its last commit."""
        return self._file.position

    def append(self, record_batch: EncodedRecordBatch) -> None:
        """Write a commit.  After an ``OSError`` the file may have some of it: the caller calls ``cut``."""
        # ``lead`` is how far behind a page boundary the commit begins in the file.  Its pages are aligned in
        # memory only if it was encoded for the same distance.
        data, lead = record_batch.data, self.position % PAGE
        first = -lead % PAGE
        last = first + (len(data) - first) // PAGE * PAGE
        if self._direct is None or record_batch.lead != lead or last - first < DIRECT_FROM or self._is_slow():
            self._file.write(data)
        else:
            # The pages at both ends are shared with the neighbouring commits, so they go through the cache.
            # The whole pages between are written around it.
            self._file.write(data[:first])
            self._write_direct(self._direct, data[first:last])
            self._file.write(data[last:])

    def cut(self, size: int) -> None:
        """Truncate the file to ``size`` bytes."""
        self._file.cut(size)

    def sync(self) -> None:
        """Synchronise the file's data, so that it survives a power failure."""
        self._file.sync()

    def forget(self, start: int, stop: int) -> None:
        """Drop these bytes from the system's page cache."""
        self._file.forget(start, stop)

    def close(self) -> None:
        """Close the file."""
        self._file.close()
        self._close_direct()

    def _write_direct(self, direct: int, pages: memoryview) -> None:
        position = self.position
        began = time.perf_counter()
        try:
            self._disk.write_direct(direct, pages, position)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            # This file system or disk does not support it, or wants larger pages.  It is not asked again for
            # this segment.
            self._close_direct()
            # At the same position, over the pages that were written before the error.
            self._file.write(pages)
            return
        self._file.passed(len(pages))
        # The speed is measured over many commits: a single one says little about a disk with a cache of its
        # own.
        self._bytes += len(pages)
        self._seconds += time.perf_counter() - began

    def _is_slow(self) -> bool:
        """Return whether direct writes are slower than the cache at present."""
        if self._bytes >= _MEASURED_BYTES:
            if self._bytes < _SLOW * self._seconds:
                # Later on the disk is tried again: it may have been slow because of somebody else.
                self._direct_again = self.position + _CACHED_WHEN_SLOW
            self._bytes, self._seconds = 0, 0.0
        return self.position < self._direct_again

    def _close_direct(self) -> None:
        if self._direct is not None:
            self._disk.close(self._direct)
            self._direct = None
