"""Disk: the system calls of a store, slow or failing while a test wants it."""

from __future__ import annotations

import errno
import os
import threading

from kernel.contracts.message import Buffer
from kernel.hosting.appending import Disk


class FaultyDisk(Disk):
    """A disk that can be slow or full.  The broker's thread changes it; the writer's uses it as well."""

    def __init__(self) -> None:
        self.full = False
        self._seconds = 0.0
        self._quick = threading.Event()
        self._broker = threading.get_ident()

    def belongs_to_this_thread(self) -> None:
        """The present thread is the broker's, which a slow disk never holds up."""
        self._broker = threading.get_ident()

    def be_slow(self, seconds: float) -> None:
        """Wait before each write from now on; 0: writes that wait go on at once."""
        if seconds:
            self._quick.clear()
        else:
            self._quick.set()
        self._seconds = seconds

    def write(self, descriptor: int, data: Buffer, position: int) -> None:
        """Write, after a while or not at all."""
        # Short groups that need not be synchronised are written by the broker's thread, which does not wait
        # for a real disk either.
        if self._seconds and threading.get_ident() != self._broker:
            self._quick.wait(self._seconds)
        if self.full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        super().write(descriptor, data, position)


class FullDiskAlarm:
    """An alarm that a test raises: publishers are blocked as with a disk that is full."""

    name = "disk"

    def __init__(self, disk: FaultyDisk) -> None:
        self.raised = False
        self._disk = disk

    def check(self) -> None:
        """Look whether the test wants it."""
        self.raised = self._disk.full

    def statistics(self) -> dict[str, int]:
        """Return nothing: there is no figure."""
        return {}
