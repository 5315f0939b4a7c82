"""Disk: calls of the operating system for engines that store data, with the same functions on all systems."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path


class FileLock:
    """A file lock, which the operating system releases when its process dies."""

    def __init__(self, path: Path) -> None:
        """Take the lock.  Raises ``Locked``, which says who has it; does not wait."""
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            # The holder writes its number after it has the lock, so it may be missing for a moment.
            holder = os.read(self._descriptor, 20).decode("ascii", "replace").strip()
            os.close(self._descriptor)
            raise Locked(f"process {holder}" if holder else "another process") from None
        # The number of an earlier holder may be longer than ours.  The file itself stays for ever: to remove
        # it would let two processes lock two files of the same name.
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, b"%d\n" % os.getpid(), 0)

    def release(self) -> None:
        """Release the lock."""
        # The lock belongs to the open file, so closing it is enough.  A program that this process has started
        # does not keep it (O_CLOEXEC).
        os.close(self._descriptor)

    def __enter__(self) -> FileLock:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


class Locked(Exception):
    """Another process has the lock; the text says which."""


def sync_data(descriptor: int) -> None:
    """Write a file's bytes to the disk; return when they would survive a loss of power.

    ``fdatasync`` does not write the time of the last change, which would cost a second write.  macOS does not
    have it, and its ``fsync`` leaves data in the cache of the drive; ``F_FULLFSYNC`` does not.
    """
    if hasattr(os, "fdatasync"):
        os.fdatasync(descriptor)
    elif hasattr(fcntl, "F_FULLFSYNC"):
        fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)
    else:
        os.fsync(descriptor)


def reserve(descriptor: int, start: int, stop: int) -> int:
    """Allocate space in a file that ends at ``start``, with zeros up to ``stop``.

    Return where it ends now.
    """
    try:
        os.posix_fallocate(descriptor, start, stop - start)
    # No room for so much, or a system that cannot.  The file then grows as it is written.
    except (OSError, AttributeError):
        return start
    return stop


def sync_file(path: Path) -> None:
    """Return when the data of a file would survive a loss of power."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        sync_data(descriptor)
    finally:
        os.close(descriptor)


def sync_directory(path: Path) -> None:
    """Write a directory to the disk; return when its entries would survive a loss of power."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError as error:
        # Some file systems cannot do this with directories, as the shared folders of virtual machines.
        # Nothing else can be done then, and to store nothing would be worse (PostgreSQL ignores these two,
        # too).
        if error.errno not in (errno.EINVAL, errno.EBADF):
            raise
    finally:
        os.close(descriptor)


def open_direct(path: Path) -> int | None:
    """Open a file for writing without the operating system's cache (O_DIRECT).

    None where that is not possible.

    What is written has to begin and end at multiples of 4,096 bytes, in the file and in memory.
    """
    flag = getattr(os, "O_DIRECT", 0)
    if not flag:
        return None
    try:
        return os.open(path, os.O_WRONLY | os.O_CLOEXEC | flag)
    except OSError as error:
        if error.errno == errno.EINVAL:
            return None
        raise


def will_read(descriptor: int, offset: int, length: int) -> None:
    """Tell the operating system that bytes will be read soon, so that it can read them in advance."""
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(descriptor, offset, length, os.POSIX_FADV_WILLNEED)


def will_not_read(descriptor: int, offset: int, length: int) -> None:
    """Tell the operating system that its cache need not keep these bytes, which are on the disk."""
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(descriptor, offset, length, os.POSIX_FADV_DONTNEED)


def free_bytes(path: Path) -> int:
    """Return how many bytes this user may still write to the file system of ``path``."""
    figures = os.statvfs(path)
    # Not ``f_bfree``, which includes the blocks that are reserved for root.
    return figures.f_bavail * figures.f_frsize
