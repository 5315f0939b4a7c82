"""Who may change a journal: one writer, and one who compacts."""

from __future__ import annotations

from pathlib import Path

from kernel.hosting.disk import FileLock, Locked
from plugins.protocols.journal_format.errors import JournalError
from plugins.protocols.journal_format.names import LOCK

COMPACTION = "compaction.lock"


class JournalBusy(JournalError):
    """Somebody else has the lock."""


def writer_lock(journal: Path) -> FileLock:
    """Become the writer of a journal, or raise ``JournalBusy``."""
    return _lock(
        journal / LOCK,
        "is writing this journal; a journal has one writer: give this one a path of its own, or stop the other",
    )


def compaction_lock(journal: Path) -> FileLock:
    """Become the one who compacts a journal, or raise ``JournalBusy``."""
    return _lock(journal / COMPACTION, "is compacting this journal; try again when it is done")


def _lock(path: Path, busy: str) -> FileLock:
    try:
        return FileLock(path)
    except Locked as holder:
        raise JournalBusy(f"{path.parent}: {holder} {busy}") from None
