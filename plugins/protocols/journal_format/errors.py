"""Errors of a journal.  Each text names the file, and the offsets where they are known."""

from __future__ import annotations


class JournalError(Exception):
    """The base of all errors of a journal."""


class NoJournal(JournalError):
    """A path does not lead to a journal."""


class UnknownVersion(JournalError):
    """The journal was written by a later version than this one can read."""


class Damaged(JournalError):
    """The rows ``start <= offset < stop`` of a segment cannot be read: bytes have changed or are missing."""

    def __init__(self, segment: str, start: int, stop: int, what: str) -> None:
        rows = f"offset {start}" if stop == start + 1 else f"offsets {start} to {stop - 1}"
        super().__init__(f"{segment}: {rows}: {what}" if stop > start else f"{segment}: {what}")
        self.segment = segment
        self.start = start
        self.stop = stop
        self.what = what


class OutOfRange(JournalError):
    """Retention has deleted the requested rows ``start <= offset < stop``."""

    def __init__(self, journal: str, start: int, stop: int) -> None:
        super().__init__(
            f"{journal}: offsets {start} to {stop - 1} are no longer there; the journal begins at offset {stop}"
        )
        self.journal = journal
        self.start = start
        self.stop = stop
