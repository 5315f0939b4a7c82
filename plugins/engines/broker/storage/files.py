"""Files: the file operations that a store needs, as an interface.

Tests replace it by a disk in memory that knows what was synced, to simulate a loss of power
(``tests/plugins/engines/broker/storage/disks.py``).  Errors of single system calls are simulated one level
below, in ``kernel.hosting.appending``.
"""

from __future__ import annotations

import errno
import os
from collections import OrderedDict
from contextlib import suppress
from pathlib import Path
from typing import Protocol as Interface

from kernel.contracts.message import Buffer
from kernel.hosting.appending import AppendedFile, Disk, replace_file
from kernel.hosting.disk import will_read

_MOST_OPEN = 32
_RESERVED = 1 << 20
"""Octets that a file is made larger by at a time.  If the size of the file does not change, a sync takes 95
µs instead of 155 (ext4, 2026-11-21), because the file system writes nothing to its own journal."""


class Writable(Interface):
    """A file that is being appended to.  Used by the writer's thread; may raise ``OSError``.

    Until it is closed there may be zeros behind what was written.
    """

    def write(self, data: Buffer) -> None:
        """Append all of it."""
        ...

    def sync(self) -> None:
        """Return once all that was written would survive a loss of power."""
        ...

    def end(self) -> None:
        """Nothing more will be written: cut off the reserved zeros at the end."""
        ...

    def close(self) -> None:
        """Close the descriptor."""
        ...


class Files(Interface):
    """The files of one directory, by name.  Everything but ``names`` may raise ``OSError``."""

    def names(self) -> list[str]:
        """Return the names of the files, sorted."""
        ...

    def size(self, name: str) -> int:
        """Return a file's length."""
        ...

    def create(self, name: str) -> Writable:
        """Create an empty file; there must be none of this name.

        The name is durable after ``sync_directory``.
        """
        ...

    def read(self, name: str, offset: int, length: int) -> bytes:
        """Return octets, fewer at the end of the file."""
        ...

    def will_read(self, name: str, offset: int, length: int) -> None:
        """Tell the operating system that these octets will be read soon."""
        ...

    def end_reading(self, name: str) -> None:
        """The file will not be read any more: close its descriptor, or its octets stay on the disk."""
        ...

    def truncate(self, name: str, size: int) -> None:
        """Truncate a file, durably."""
        ...

    def remove(self, name: str) -> None:
        """Delete a file, durably.  It is no error if it does not exist."""
        ...

    def set_aside(self, name: str) -> None:
        """Rename a file so that it is not taken for a segment."""
        ...

    def replace(self, name: str, data: bytes) -> None:
        """Replace a small file atomically and durably."""
        ...

    def sync_directory(self) -> None:
        """Return once the names of files would survive a loss of power."""
        ...

    def close(self) -> None:
        """Close all descriptors."""
        ...


class DirectoryFiles:
    """A directory on a disk.  The writer's thread writes; one other thread reads."""

    def __init__(self, directory: Path, disk: Disk | None = None) -> None:
        self.directory = directory
        self._disk = disk or Disk()
        directory.mkdir(parents=True, exist_ok=True)
        # By name of the file; the least recently used one is closed first.
        self._reading: OrderedDict[str, int] = OrderedDict()
        self._spare: int | None = None
        self._keep_spare()

    def names(self) -> list[str]:
        return sorted(entry.name for entry in os.scandir(self.directory) if entry.is_file())

    def size(self, name: str) -> int:
        return (self.directory / name).stat().st_size

    def create(self, name: str) -> Writable:
        return AppendedFile.create(self._disk, self.directory / name, reserved=_RESERVED)

    def read(self, name: str, offset: int, length: int) -> bytes:
        descriptor = self._open(name)
        # A call may return fewer octets than it was asked for before the end of the file, for example after a
        # signal.
        octets = os.pread(descriptor, length, offset)
        while len(octets) < length and (
            more := os.pread(descriptor, length - len(octets), offset + len(octets))
        ):
            octets += more
        return octets

    def will_read(self, name: str, offset: int, length: int) -> None:
        will_read(self._open(name), offset, length)

    def end_reading(self, name: str) -> None:
        descriptor = self._reading.pop(name, None)
        if descriptor is not None:
            os.close(descriptor)
            self._keep_spare()

    def truncate(self, name: str, size: int) -> None:
        file = AppendedFile.reopen(self._disk, self.directory / name, size)
        try:
            file.sync()
        finally:
            file.close()

    def remove(self, name: str) -> None:
        try:
            # Without the descriptor cache: the log has called ``end_reading`` before.
            (self.directory / name).unlink()
        except FileNotFoundError:
            return
        self.sync_directory()

    def set_aside(self, name: str) -> None:
        (self.directory / name).replace(self.directory / f"{name}.unreadable")
        self.sync_directory()

    def replace(self, name: str, data: bytes) -> None:
        replace_file(self.directory / name, data, disk=self._disk)

    def sync_directory(self) -> None:
        self._disk.sync_directory(self.directory)

    def close(self) -> None:
        while self._reading:
            os.close(self._reading.popitem()[1])
        if self._spare is not None:
            os.close(self._spare)
            self._spare = None

    def _open(self, name: str) -> int:
        descriptor = self._reading.get(name)
        if descriptor is None:
            # Long queues are read in order, so few segments are read at a time, and a closed one is rarely
            # needed again soon.
            while len(self._reading) >= _MOST_OPEN:
                os.close(self._reading.popitem(last=False)[1])
            descriptor = self._reading[name] = self._open_to_read(self.directory / name)
        else:
            self._reading.move_to_end(name)
        return descriptor

    def _open_to_read(self, path: Path) -> int:
        """Open a file to read.

        If the process may have no more descriptors, close another one of this store: otherwise messages would
        be counted as lost.
        """
        try:
            return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            # The process, or the whole system, has no descriptor left.  Connections of clients use them up,
            # and a broker that reads its backlog then would lose messages that are on the disk.
            if error.errno not in (errno.EMFILE, errno.ENFILE) or not self._close_one():
                raise
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def _close_one(self) -> bool:
        if self._reading:
            os.close(self._reading.popitem(last=False)[1])
        elif self._spare is not None:
            os.close(self._spare)
            self._spare = None
        else:
            return False
        return True

    def _keep_spare(self) -> None:
        """Keep a spare descriptor, which can be closed if there is none for the first file that is read."""
        if self._spare is None and not self._reading:
            with suppress(OSError):
                self._spare = os.open(self.directory, os.O_RDONLY | os.O_CLOEXEC)
