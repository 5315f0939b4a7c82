"""Data file: a segment's commits, one behind the other; large ones go around the system's cache.

Whoever fills page after page of the cache pays for each: 65 to 280 ns for the 124 bytes of a small message, where 15 are
needed to hand them to the disk (2026-11-21, a virtual machine; reusing pages is the cheaper end).  Only whole pages can
go around: what a commit has before the first and behind the last goes through the cache, as small commits do.
"""

from __future__ import annotations

import errno
import time
from pathlib import Path

from plugins.engines.journal.disk import Disk
from plugins.protocols.journal_format.buffer_pool import PAGE
from plugins.protocols.journal_format.record_batch import EncodedRecordBatch

DIRECT_FROM = 256 << 10
"""Bytes of whole pages from which a commit goes around the cache: each way to the disk takes its time."""

_SLOW = 256 << 20
"""Bytes a second.  The cache takes as many at least: it is the better place to wait for a slower disk."""

_JUDGED = 16 << 20
"""Bytes after which the disk's speed is looked at."""

_CACHED_WHEN_SLOW = 64 << 20
"""Bytes that go through the cache before a slow disk is tried again."""


class DataFile:
    """A file that grows.  ``position``: its size, all of it in commits."""

    def __init__(self, disk: Disk, fd: int, path: Path, position: int) -> None:
        """``fd``: a descriptor for appending that stands at ``position``; the caller's until this returns."""
        self.position = position
        self._disk = disk
        self._fd = fd
        self._direct = disk.open_direct(path)
        self._bytes = 0
        self._seconds = 0.0  # that these bytes took, around the cache
        self._direct_again = 0

    def append(self, record_batch: EncodedRecordBatch) -> None:
        """Write a commit.  After an ``OSError`` some of it may be there: ``cut`` takes it back."""
        data, lead = record_batch.data, self.position % PAGE
        first = -lead % PAGE
        last = first + (len(data) - first) // PAGE * PAGE
        if self._direct is None or record_batch.lead != lead or last - first < DIRECT_FROM or self._is_slow():
            self._disk.write(self._fd, [data])
        else:
            self._disk.write(self._fd, [data[:first]])
            self._around(self._direct, data[first:last], self.position + first)
            self._disk.write(self._fd, [data[last:]])
        self.position += len(data)

    def cut(self, size: int) -> None:
        """Take back what is there after ``size`` bytes."""
        self._disk.cut(self._fd, size)
        self.position = size

    def sync(self) -> None:
        """Have the file's bytes survive a loss of power."""
        self._disk.sync(self._fd)

    def forget(self, start: int, stop: int) -> None:
        """Give the memory that caches these bytes to others."""
        self._disk.forget(self._fd, start, stop)

    def close(self) -> None:
        """Close it."""
        self._disk.close(self._fd)
        self._stop_going_around()

    def _around(self, direct: int, pages: memoryview, position: int) -> None:
        began = time.perf_counter()
        try:
            self._disk.write_direct(direct, pages, position)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            self._stop_going_around()  # this file system, or its disk, wants something else
            self._disk.cut(self._fd, position)  # it may have taken some of them before
            self._disk.write(self._fd, [pages])
            return
        self._bytes += len(pages)
        self._seconds += time.perf_counter() - began

    def _is_slow(self) -> bool:
        """Whether the disk is one to be waited for by the system."""
        if self._bytes >= _JUDGED:
            if self._bytes < _SLOW * self._seconds:
                self._direct_again = self.position + _CACHED_WHEN_SLOW
            self._bytes, self._seconds = 0, 0.0
        return self.position < self._direct_again

    def _stop_going_around(self) -> None:
        if self._direct is not None:
            self._disk.close(self._direct)
            self._direct = None
