"""Appending: files that only grow at their end, and small files that are replaced as a whole.

The broker's store and the journal both write this way (docs/decisions/0026-appending.md).  These rules of
crash safety are the same for both, so they are kept here:

* A file has a ``position``, the end of its last whole write.  All writes name their position; the offset of
  the descriptor and ``O_APPEND`` are not used, because reserved zeros or the rest of a failed write may lie
  behind it.
* A write that fails leaves ``position`` where it was.  What it has written lies behind it, to be overwritten
  or cut off.
* After a failed sync nothing that was written since the last successful one can be trusted.  The system
  reports the error once, marks the pages as clean and may drop them; the next ``fdatasync`` succeeds although
  the data are lost.  So a file whose sync has failed refuses all further writes and syncs.
* A new or renamed file survives a loss of power only when its directory was synced, too.

No function here decides what happens after an error: the store writes the group again into a new file, and
the journal's engine ends.
"""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from pathlib import Path

from kernel.contracts.message import Buffer
from kernel.hosting import disk as system

_APPENDING = os.O_WRONLY | os.O_CLOEXEC
_CHUNK = 1 << 20
"""Octets of one system call.  Linux writes at most 2 GiB in one call; macOS refuses more (``EINVAL``)."""


class Disk:
    """The system calls that storing data needs.  All of them may block, and raise ``OSError``.

    They are methods so that a test can replace one of them, for a disk that is full or fails.
    """

    def create(self, path: Path, mode: int) -> int:
        """Open a new file for writing.  An existing one is never overwritten: ``FileExistsError``."""
        # A segment's file holds the only copy of its messages.  If a name is used twice by mistake, an error
        # is better than an empty file.
        return os.open(path, _APPENDING | os.O_CREAT | os.O_EXCL, mode)

    def reopen(self, path: Path) -> int:
        """Open an existing file for writing."""
        return os.open(path, _APPENDING)

    def write(self, descriptor: int, data: Buffer, position: int) -> None:
        """Write all of ``data`` from ``position`` on.  If it raises, some of it may have been written."""
        left = memoryview(data)
        # A call may write less than it was given, for example when the disk is nearly full; the next call
        # then raises the error.
        while left:
            written = os.pwrite(descriptor, left[:_CHUNK], position)
            position += written
            left = left[written:]

    def reserve(self, descriptor: int, start: int, stop: int) -> int:
        """Allocate space in a file that ends at ``start``, with zeros up to ``stop``.

        Return where it ends now: at ``start`` if the system has no room or no such call.
        """
        return system.reserve(descriptor, start, stop)

    def cut(self, descriptor: int, size: int) -> None:
        """Truncate a file to ``size`` octets."""
        os.ftruncate(descriptor, size)

    def sync(self, descriptor: int) -> None:
        """Return when the file's data would survive a loss of power."""
        system.sync_data(descriptor)

    def sync_directory(self, path: Path) -> None:
        """Return when the names of new and renamed files in a directory would survive a loss of power."""
        system.sync_directory(path)

    def close(self, descriptor: int) -> None:
        """Close a descriptor."""
        os.close(descriptor)

    def open_direct(self, path: Path) -> int | None:
        """Open an existing file for direct I/O (``O_DIRECT``); None if the system does not support it."""
        return system.open_direct(path)

    def write_direct(self, descriptor: int, pages: memoryview, position: int) -> None:
        """Write whole pages with direct I/O.  If it raises, some of them may have been written.

        ``EINVAL``: the file system does not support direct I/O, or wants larger pages.
        """
        # Not in chunks: each direct write waits for the disk.
        while pages:
            written = os.pwrite(descriptor, pages, position)
            position += written
            pages = pages[written:]

    def forget(self, descriptor: int, start: int, stop: int) -> None:
        """Drop these octets, which must be on the disk, from the system's page cache."""
        system.will_not_read(descriptor, start, stop - start)

    def free(self, path: Path) -> int:
        """Return how many octets this process may still use on the file system of ``path``."""
        return system.free_bytes(path)


class AppendedFile:
    """A file that is appended to.

    One thread at a time writes.  ``sync`` may run in another thread meanwhile; the caller makes sure that
    nobody closes the file during a sync.
    """

    def __init__(self, disk: Disk, descriptor: int, position: int, *, reserved: int = 0) -> None:
        """``descriptor`` is of a file with ``position`` octets; this object closes it.

        ``reserved``: make the file larger by so many octets at a time, filled with zeros; 0: never.  A sync
        is faster when the size of the file does not change.  The zeros are behind ``position`` until the file
        is closed, and stay there if the process is killed.
        """
        self.position: int = position
        """The end of the last whole write, and where the next one begins."""
        self._disk = disk
        self._descriptor = descriptor
        self._ahead = reserved
        self._end = position
        """The end of the file, with its reserved zeros.  Not used without them."""
        self._failed: OSError | None = None
        """The error of the first sync that failed."""

    @classmethod
    def create(cls, disk: Disk, path: Path, *, mode: int = 0o640, reserved: int = 0) -> AppendedFile:
        """Create an empty file.  Its name survives a loss of power after ``Disk.sync_directory``."""
        return cls(disk, disk.create(path, mode), 0, reserved=reserved)

    @classmethod
    def reopen(cls, disk: Disk, path: Path, size: int) -> AppendedFile:
        """Open an existing file, truncated to ``size`` octets."""
        descriptor = disk.reopen(path)
        try:
            disk.cut(descriptor, size)
        except OSError:
            disk.close(descriptor)
            raise
        return cls(disk, descriptor, size)

    def write(self, data: Buffer) -> None:
        """Append all of ``data``, or raise ``OSError``; then ``position`` has not changed."""
        if self._failed is not None:
            # Not the error itself: if it was "no space left", the caller would try again when there is space,
            # and that does not help here.
            raise OSError(errno.EIO, f"an earlier sync failed, so the file cannot be trusted: {self._failed}")
        end = self.position + len(data)
        if self._ahead and end > self._end:
            # Zeros are reserved behind the old end only: reserving over data that is being written would cost
            # time, and a system that emulates the call may read and write every block of the range.
            self._end = self._disk.reserve(self._descriptor, max(self.position, self._end), end + self._ahead)
        self._disk.write(self._descriptor, data, self.position)
        # Last: an error above leaves the position before what was written in part.
        self.position = end

    def passed(self, size: int) -> None:
        """Count octets that were written at ``position`` with another descriptor (direct I/O)."""
        self.position += size

    def cut(self, size: int) -> None:
        """Truncate the file to ``size`` octets, and continue there."""
        # Allowed after a failed sync: it takes octets away and promises nothing.
        self._disk.cut(self._descriptor, size)
        self.position = self._end = size

    def end(self) -> None:
        """Cut off the reserved zeros: nothing more will be written."""
        self._ahead = 0
        self.cut(self.position)

    def sync(self) -> None:
        """Return when all that was written would survive a loss of power.

        If that fails, this and all later calls raise the error, and so does ``write``.
        """
        # The same object, so that whoever closes the file after the error reports the error and not a new
        # one.
        if self._failed is not None:
            raise self._failed
        try:
            self._disk.sync(self._descriptor)
        except OSError as error:
            self._failed = error
            raise

    def forget(self, start: int, stop: int) -> None:
        """Drop these octets, which must be on the disk, from the system's page cache."""
        self._disk.forget(self._descriptor, start, stop)

    def close(self) -> None:
        """Cut off reserved zeros, and close the descriptor.  It is closed even if the cut fails."""
        try:
            if self._ahead:
                self.end()
        finally:
            self._disk.close(self._descriptor)


def replace_file(path: Path, data: Buffer, *, mode: int = 0o640, disk: Disk | None = None) -> None:
    """Replace a small file as a whole, or create it.  On return it survives a loss of power.

    Readers, and whoever looks after a crash, find the old file or the new one, never a mixture.  If it raises
    ``OSError``, the old file is still there, or, when only the directory could not be synced, the new one.
    """
    disk = disk or Disk()
    new = path.with_name(f".{path.name}.new")
    # A process that was killed may have left it, and ``create`` refuses a file that exists.
    new.unlink(missing_ok=True)
    try:
        descriptor = disk.create(new, mode)
        try:
            disk.write(descriptor, data, 0)
            # Before the rename: otherwise a loss of power could leave the new name with an empty file.
            disk.sync(descriptor)
        finally:
            disk.close(descriptor)
        new.replace(path)
    except OSError:
        # An error of ``unlink`` must not take the place of the one that says what has failed.
        with suppress(OSError):
            new.unlink(missing_ok=True)
        raise
    disk.sync_directory(path.parent)
