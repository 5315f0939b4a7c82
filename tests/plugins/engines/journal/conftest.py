"""A disk that can be full, a clock in the hand, and journals to write."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path

import pytest

from kernel.contracts.message import PLAIN, Buffer, Envelope, batch_of
from kernel.hosting.appending import Disk
from kernel.testing.fixtures import kernel_factory
from kernel.testing.leaks import open_descriptors

pytest.importorskip("pyarrow")

from plugins.engines.journal.writer import JournalWriter, WriterSettings
from plugins.protocols.journal_format.buffer_pool import PAGE
from plugins.protocols.journal_format.envelopes import NOWHERE
from plugins.protocols.journal_format.reader import JournalReader

__all__ = ["kernel_factory"]


class Clock:
    """Seconds since 1970, which pass when a test says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class LimitedDisk(Disk):
    """Takes so many bytes more; then writes what still goes, as a real one does, and says that it is full."""

    def __init__(self, room: int = 1 << 40) -> None:
        self._room = room
        self._changing = threading.Lock()
        """Held by who writes: room that a test makes meanwhile is for the next who does."""
        self.syncs: list[int] = []

    @property
    def room(self) -> int:
        return self._room

    @room.setter
    def room(self, room: int) -> None:
        with self._changing:
            self._room = room

    def write(self, descriptor: int, data: Buffer, position: int) -> None:
        with self._changing:
            super().write(descriptor, data[: self._room], position)
            self._take(len(data))

    def write_direct(self, descriptor: int, pages: memoryview, position: int) -> None:
        with self._changing:
            super().write_direct(descriptor, pages[: self._room // PAGE * PAGE], position)
            self._take(len(pages))

    def _take(self, size: int) -> None:
        if size > self._room:
            self._room = 0
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._room -= size

    def sync(self, descriptor: int) -> None:
        self.syncs.append(descriptor)

    def sync_directory(self, path: Path) -> None:
        """Tests have time for no disk."""

    def free(self, path: Path) -> int:
        return self.room


def append(writer: JournalWriter, *bodies: bytes, envelope: Envelope = PLAIN) -> None:
    """Commit these as one batch."""
    writer.append([(batch_of(list(bodies), envelope), writer.stamp(), NOWHERE)])


def bodies_in(journal: Path, start: int | None = None) -> list[bytes]:
    """Return all bodies; damage raises."""
    reader = JournalReader(journal)
    first = reader.bounds().earliest if start is None else start
    return [
        body
        for record_batch in reader.record_batches(first, columns=["body"])
        for body in record_batch.column(0).to_pylist()
    ]


def descriptors_in(journal: Path) -> list[str]:
    """Files of a journal that this process has open."""
    return [what for what in open_descriptors().values() if what.startswith(str(journal))]


def numbered(first: int, stop: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, stop)]


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def small() -> WriterSettings:
    """Segments of about five commits of one short message."""
    return WriterSettings(roll_bytes=8000)
