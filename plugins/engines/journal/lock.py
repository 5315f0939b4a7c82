"""One writer: a lock that the operating system takes back from a process that dies."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from plugins.protocols.journal_format.errors import JournalError
from plugins.protocols.journal_format.names import LOCK


class JournalBusy(JournalError):
    """Another writer has the journal."""


class WriterLock:
    """Held from its making until ``release``."""

    def __init__(self, journal: Path) -> None:
        """Raises ``JournalBusy``, which says who has it."""
        self._fd = os.open(journal / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(self._fd, 100).decode(errors="replace").strip() or "somebody"
            os.close(self._fd)
            raise JournalBusy(
                f"{journal}: {holder} is writing this journal; a journal has one writer: "
                "give this one a path of its own, or stop the other"
            ) from None
        os.ftruncate(self._fd, 0)
        os.write(self._fd, f"process {os.getpid()}\n".encode())

    def release(self) -> None:
        """Let another writer in."""
        os.close(self._fd)
