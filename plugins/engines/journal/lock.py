"""Locks that the operating system takes back from a process that dies: one writer, one compaction."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from plugins.protocols.journal_format.errors import JournalError
from plugins.protocols.journal_format.names import LOCK

COMPACTION = "compaction.lock"


class JournalBusy(JournalError):
    """Somebody else has the lock."""


class JournalLock:
    """Held from its making until ``release``."""

    def __init__(self, path: Path, busy: str) -> None:
        """Raises ``JournalBusy``, which says who has it and then ``busy``."""
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(self._fd, 100).decode(errors="replace").strip() or "another process"
            os.close(self._fd)
            raise JournalBusy(f"{path.parent}: {holder} {busy}") from None
        os.ftruncate(self._fd, 0)
        os.write(self._fd, f"process {os.getpid()}\n".encode())

    def release(self) -> None:
        """Let another in."""
        os.close(self._fd)

    def __enter__(self) -> JournalLock:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def writer_lock(journal: Path) -> JournalLock:
    """Become the writer of a journal, or raise ``JournalBusy``."""
    return JournalLock(
        journal / LOCK,
        "is writing this journal; a journal has one writer: give this one a path of its own, or stop the other",
    )


def compaction_lock(journal: Path) -> JournalLock:
    """Become the one who compacts a journal, or raise ``JournalBusy``."""
    return JournalLock(journal / COMPACTION, "is compacting this journal; try again when it is done")
