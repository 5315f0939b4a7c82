"""The two locks of a journal: of all processes, one at a time may write it, and one may compact it."""

from __future__ import annotations

from pathlib import Path

from kernel.hosting.disk import FileLock, Locked
from plugins.protocols.journal_format.errors import JournalError
from plugins.protocols.journal_format.names import LOCK

COMPACTION = "compaction.lock"


class JournalBusy(JournalError):
    """Another process, or another engine of this one, has the lock."""


def writer_lock(journal: Path) -> FileLock:
    """Take the lock of the journal's writer.  Raises ``JournalBusy`` if another writer has it."""
    return _lock(
        journal / LOCK,
        "is writing this journal; a journal has one writer: use another path, or stop the other writer",
    )


def compaction_lock(journal: Path) -> FileLock:
    """Take the lock for compaction.  Raises ``JournalBusy`` if another compaction has it."""
    # A lock of its own: compaction may run beside a writer, since it leaves the last segment alone.
    return _lock(journal / COMPACTION, "is compacting this journal; try again when it has finished")


def _lock(path: Path, busy: str) -> FileLock:
    try:
        return FileLock(path)
    except Locked as holder:
        raise JournalBusy(f"{path.parent}: {holder} {busy}") from None
