"""Writer: appends to the journal in a directory.  One thread at a time, one process at a time.

Knows nothing of engines and pipes: whoever has batches can write a journal.
"""

from __future__ import annotations

import errno
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from plugins.engines.journal.disk import Disk
from plugins.engines.journal.lock import writer_lock
from plugins.engines.journal.recovery import recover
from plugins.engines.journal.segment_writer import SegmentWriter
from plugins.protocols.journal_format.envelopes import Source
from plugins.protocols.journal_format.errors import JournalError
from plugins.protocols.journal_format.index import Entry
from plugins.protocols.journal_format.names import SegmentName, segment_names
from plugins.protocols.journal_format.record_batch import EncodedRecordBatch, RecordBatchEncoder
from plugins.protocols.journal_format.segment import Segment

_FULL = (errno.ENOSPC, errno.EDQUOT)
_MICROSECONDS = 1_000_000


class DiskFull(JournalError):
    """There is no room, or less than is to stay free.  Nothing of the commit was written; try again later."""


@dataclass(frozen=True, kw_only=True)
class WriterSettings:
    """How to write."""

    compression: str | None = None
    """``"lz4"``, ``"zstd"`` or None."""
    roll_bytes: int = 128 << 20
    """Begin a new segment when one has so many bytes of data."""
    roll_seconds: float | None = None
    """Begin a new segment when one was begun so long ago."""
    min_free_bytes: int = 0
    """Leave so many bytes of the file system to others."""


class JournalWriter:
    """Appends commits to a journal; makes it if there is none.  ``recovered`` says what was found."""

    def __init__(
        self,
        path: str | Path,
        settings: WriterSettings = WriterSettings(),
        *,
        disk: Disk | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Raises ``JournalBusy`` when another writer is at work, ``DiskFull`` when there is no room to begin."""
        self.path = Path(path)
        self.settings = settings
        self.disk = disk or Disk()
        self.path.mkdir(parents=True, exist_ok=True)
        self._clock = clock
        self._encoder = RecordBatchEncoder(settings.compression)
        self._lock = writer_lock(self.path)
        try:
            self._segment, self.recovered = recover(self.disk, self.path, self._now())
            self._last_ts = self._committed_ts = _last_time(self.path)
        except BaseException as error:
            self._lock.release()
            if isinstance(error, OSError):
                raise _as_full(error, self.path) from error
            raise

    def __repr__(self) -> str:
        return f"<JournalWriter {self.path}, next offset {self.next_offset}>"

    @property
    def next_offset(self) -> int:
        """The offset that the next row will have."""
        return self._segment.end

    @property
    def segment(self) -> SegmentName:
        """The segment that is written to."""
        return self._segment.name

    def stamp(self, *, later: bool = False) -> int:
        """Return the time for rows that arrive now, in microseconds; it never goes back.

        ``later``: one that no row has had before, also where the clock stands still or goes back.
        """
        self._last_ts = max(self._last_ts + later, self._now())
        return self._last_ts

    def append(self, batches: Sequence[tuple[Any, int, Source]]) -> Entry:
        """Commit ``(batch, ts, source)`` as one record batch: see ``RecordBatchEncoder.encode``.

        Raises ``DiskFull``, and ``ValueError`` when ``ts`` is before that of a row that is there.  The rows are with the
        operating system when this returns; ``sync`` makes them survive a loss of power.
        """
        return self.append_encoded(self.encode(batches))

    def encode(
        self, batches: Sequence[tuple[Any, int, Source]], after: EncodedRecordBatch | None = None
    ) -> EncodedRecordBatch:
        """Make the batch that is to be committed next, or ``after`` another, which may be appended meanwhile."""
        if after is None:
            return self._encoder.encode(self.next_offset, batches, self._segment.position)
        return self._encoder.encode(after.entry.end, batches, after.lead + after.entry.length)

    def append_encoded(self, record_batch: EncodedRecordBatch) -> Entry:
        """Commit a batch that was encoded for what now is ``next_offset``; it is not to be used again then."""
        if record_batch.entry.min_ts < self._committed_ts:
            raise ValueError(
                f"{self.path}: rows of {record_batch.entry.min_ts} µs cannot follow one of {self._committed_ts} µs; take `stamp()`"
            )
        if self._is_due():
            self.roll()
        self._check_room(record_batch.entry.length)
        try:
            entry = self._segment.append(record_batch)
        except OSError as error:
            raise _as_full(error, self.path) from error
        self._committed_ts = entry.max_ts
        self._encoder.reuse(record_batch)
        return entry

    def append_stored(self, record_batch: Any, ts: int, envelopes: int) -> Entry:
        """Commit rows that have the columns of ``STORED``: offsets from ``next_offset`` on, and all of them this time."""
        self.roll_if_due()
        first = self.next_offset
        return self.append_encoded(
            self._encoder.encode_stored(record_batch, first, ts, ts, envelopes, self._segment.position)
        )

    def sync(self) -> bool:
        """Have all rows survive a loss of power; return whether there was anything to do."""
        return self._segment.sync()

    def unsynced(self) -> int:
        """How many bytes ``sync`` would make safe."""
        return self._segment.unsynced()

    def roll(self) -> bool:
        """Begin a new segment, unless this one is empty."""
        if not self._segment.entries:
            return False
        self._check_room(0)
        self._segment.sync()  # first: a segment that follows says that this one is safe
        try:
            following = SegmentWriter.begin(
                self.disk, self.path, SegmentName(self.next_offset, 0), self._now()
            )
        except OSError as error:
            raise _as_full(error, self.path) from error
        self._segment.close()
        self._segment = following
        return True

    def roll_if_due(self) -> bool:
        """Begin a new segment if this one is large or old enough; for a journal in which nothing arrives."""
        return self._is_due() and self.roll()

    def close(self) -> None:
        """Synchronise, close, and let another writer in."""
        try:
            self._segment.sync()
        finally:
            self._segment.close()
            self._lock.release()

    def __enter__(self) -> JournalWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _now(self) -> int:
        return int(self._clock() * _MICROSECONDS)

    def _is_due(self) -> bool:
        seconds = self.settings.roll_seconds
        return self._segment.position >= self.settings.roll_bytes or (
            seconds is not None
            and self._segment.entries > 0
            and self._now() - self._segment.created >= seconds * _MICROSECONDS
        )

    def _check_room(self, size: int) -> None:
        wanted = self.settings.min_free_bytes
        if wanted and self.disk.free(self.path) - size < wanted:
            raise DiskFull(
                f"{self.path}: fewer than {wanted} bytes are free; the journal leaves them to others"
            )


def _last_time(journal: Path) -> int:
    """Return the time of the last row; 0 if there is none.  The last segments may be empty."""
    for name in reversed(segment_names(journal)):
        last = Segment(journal, name).last()
        if last is not None:
            return last.max_ts
    return 0


def _as_full(error: OSError, path: Path) -> Exception:
    if error.errno in _FULL:
        return DiskFull(f"{path}: {error.strerror}")
    return error
