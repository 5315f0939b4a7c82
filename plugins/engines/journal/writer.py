"""The writer of a journal: appends commits to the journal in a directory.

One process at a time may write a journal (``lock.py``), and one thread at a time may use a writer; ``encode``
and ``sync`` may run in other threads than ``append_encoded``.  The writer knows nothing of engines and pipes.

When ``append_encoded`` returns, the operating system has the bytes of the commit, and then its entry in the
index.  If the process is killed now, nothing is lost.  After ``sync`` nothing is lost if the power fails,
either.  A commit without an entry does not exist for readers.
"""

from __future__ import annotations

import errno
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernel.hosting.appending import Disk, replace_file
from plugins.engines.journal.lock import writer_lock
from plugins.engines.journal.recovery import recover
from plugins.engines.journal.segment_writer import SegmentWriter
from plugins.protocols.journal_format.envelopes import Source
from plugins.protocols.journal_format.errors import JournalError
from plugins.protocols.journal_format.identity import encode_identity
from plugins.protocols.journal_format.index import Entry
from plugins.protocols.journal_format.names import FILE_MODE, IDENTITY, SegmentName, segment_names
from plugins.protocols.journal_format.record_batch import EncodedRecordBatch, RecordBatchEncoder
from plugins.protocols.journal_format.segment import Segment

# The disk, or the quota of this user.  Both may have space again later, without anybody's doing here.
_FULL = (errno.ENOSPC, errno.EDQUOT)
_MICROSECONDS = 1_000_000


class DiskFull(JournalError):
    """The disk is full, or has less free space than ``min_free_bytes``.

    Nothing of the commit was written: retry later.
    """


@dataclass(frozen=True, kw_only=True)
class WriterSettings:
    """Settings of a ``JournalWriter``."""

    compression: str | None = None
    """``"lz4"``, ``"zstd"`` or None."""
    roll_bytes: int = 128 << 20
    """Begin a new segment when the current one has this many bytes of data."""
    roll_seconds: float | None = None
    """Begin a new segment when the current one is this old; None: never."""
    min_free_bytes: int = 0
    """Raise ``DiskFull`` rather than leave fewer bytes of the file system free."""


class JournalWriter:
    """Appends commits to a journal, and creates it if it does not exist.

    ``recovered`` says what was repaired.
    """

    def __init__(
        self,
        path: str | Path,
        settings: WriterSettings = WriterSettings(),
        *,
        disk: Disk | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Open the journal, after recovery.  Blocks.

        Raises ``JournalBusy`` if another writer is active, ``DiskFull`` if there is no space for a first
        segment.
        """
        self.path = Path(path)
        self.settings = settings
        self.disk = disk or Disk()
        self.path.mkdir(parents=True, exist_ok=True)
        self._clock = clock
        self._encoder = RecordBatchEncoder(settings.compression)
        # Before recovery, which changes the last segment.
        self._lock = writer_lock(self.path)
        try:
            _identify(self.disk, self.path)
            # After this the journal is as if its last writer had been closed, and ``_segment`` is what to
            # append to.
            self._segment, self.recovered = recover(self.disk, self.path, self._now())
            # Times must not decrease from row to row: readers find a time by bisection.  A clock may have
            # been set back since the last writer.
            self._last_ts = self._committed_ts = _last_time(self.path)
        # Also if this thread is interrupted: the lock would stay with the process.
        except BaseException as error:
            self._lock.release()
            # A full disk at the start is reported like one later on.
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
        """The name of the segment that is appended to."""
        return self._segment.name

    def stamp(self, *, later: bool = False) -> int:
        """Return the time for rows that are received now, in microseconds since 1970 UTC.

        It never decreases.  With ``later`` it is greater than every time before, even if the clock stands
        still or goes back.
        """
        # ``stamp`` is called in the engine's thread and hence ahead of the commits, so ``_committed_ts`` is
        # kept separately.
        self._last_ts = max(self._last_ts + later, self._now())
        return self._last_ts

    def append(self, batches: Sequence[tuple[Any, int, Source]]) -> Entry:
        """Write ``(batch, ts, source)`` as one commit: see ``RecordBatchEncoder.encode``.

        Raises ``DiskFull``, and ``ValueError`` if a ``ts`` is before that of a row in the journal.  When this
        returns the operating system has the rows; after ``sync`` they survive a power failure.
        """
        return self.append_encoded(self.encode(batches))

    def encode(
        self, batches: Sequence[tuple[Any, int, Source]], after: EncodedRecordBatch | None = None
    ) -> EncodedRecordBatch:
        """Encode the next commit.  ``after``: the commit before it, if that has not been appended yet.

        Another thread may append ``after`` at the same time.
        """
        if after is None:
            return self._encoder.encode(self.next_offset, batches, self._segment.position)
        # The position is a guess that is right unless a new segment begins in between.  Only its distance
        # from a page boundary matters: with a wrong one the commit is written through the cache.
        return self._encoder.encode(after.entry.end, batches, after.lead + after.entry.length)

    def append_encoded(self, record_batch: EncodedRecordBatch) -> Entry:
        """Append an encoded commit whose first offset is ``next_offset``.

        The memory of ``record_batch`` is reused afterwards: the caller must not use it any more.  Raises
        ``DiskFull`` and ``ValueError`` as ``append`` does; then it may be tried again.
        """
        # Before anything is written, as the caller may go on after this error.
        if record_batch.entry.min_ts < self._committed_ts:
            raise ValueError(
                f"{self.path}: rows of {record_batch.entry.min_ts} µs cannot follow one of {self._committed_ts} µs;"
                " use the times of `stamp()`"
            )
        # Before the check for space, because a new segment takes some of it.
        if self._is_due():
            self.roll()
        self._check_room(record_batch.entry.length)
        try:
            entry = self._segment.append(record_batch)
        except OSError as error:
            raise _as_full(error, self.path) from error
        self._committed_ts = entry.max_ts
        # Only after a success.  A commit that failed is tried again from the same memory.
        self._encoder.reuse(record_batch)
        return entry

    def append_stored(self, record_batch: Any, ts: int, envelopes: int) -> Entry:
        """Commit rows that already have the columns of ``STORED``.

        Their offsets must begin at ``next_offset``, and all of them must have the time ``ts``.  ``envelopes``
        is the size of their dictionary.
        """
        self.roll_if_due()
        first = self.next_offset
        return self.append_encoded(
            self._encoder.encode_stored(record_batch, first, ts, ts, envelopes, self._segment.position)
        )

    def sync(self) -> bool:
        """Synchronise all commits: they survive a power failure then.  Return whether there were new ones."""
        # The caller may be another thread.  ``SegmentWriter`` has a lock against closing the files meanwhile.
        return self._segment.sync()

    def unsynced(self) -> int:
        """Return the number of bytes that are not synchronised yet."""
        return self._segment.unsynced()

    def roll(self) -> bool:
        """Begin a new segment; return whether that was done.  An empty segment is kept."""
        # Two segments with the same first offset would have the same name.
        if not self._segment.entries:
            return False
        self._check_room(0)
        # Before the next one begins: recovery repairs the last segment only.  An error of the sync is no
        # ``DiskFull``, whatever its number: trying again would not make the data safe.
        self._segment.sync()
        try:
            following = SegmentWriter.begin(
                self.disk, self.path, SegmentName(self.next_offset, 0), self._now()
            )
        except OSError as error:
            raise _as_full(error, self.path) from error
        # Only now: until the next segment is there, commits go to this one.
        self._segment.close()
        self._segment = following
        return True

    def roll_if_due(self) -> bool:
        """Begin a new segment if this one is large or old enough.

        ``append_encoded`` does so too; this method is for a journal that receives no messages at present.
        """
        return self._is_due() and self.roll()

    def close(self) -> None:
        """Synchronise the journal, close it, and release the lock."""
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
        # The age counts only for a segment with rows: an empty one is kept however old it is.
        return self._segment.position >= self.settings.roll_bytes or (
            seconds is not None
            and self._segment.entries > 0
            and self._now() - self._segment.created >= seconds * _MICROSECONDS
        )

    def _check_room(self, size: int) -> None:
        wanted = self.settings.min_free_bytes
        # Asked before each commit: others use the file system as well.
        if wanted and self.disk.free(self.path) - size < wanted:
            raise DiskFull(
                f"{self.path}: fewer than {wanted} bytes are free, which the journal must leave free"
            )


def _identify(disk: Disk, journal: Path) -> None:
    """Give a journal an identity if it has none.  The caller holds the writer's lock."""
    path = journal / IDENTITY
    # Without segments the journal is begun anew, although files of an earlier one may be left.  The identity
    # is on the disk before the first row, so that no reader can have stored an offset without it.
    if not path.exists() or not segment_names(journal):
        replace_file(path, encode_identity(uuid.uuid4().hex), mode=FILE_MODE, disk=disk)


def _last_time(journal: Path) -> int:
    """Return the time of the last row; 0 for an empty journal.  The last segments may be empty."""
    for name in reversed(segment_names(journal)):
        # Usually only the index is read.
        last = Segment(journal, name).last()
        if last is not None:
            return last.max_ts
    return 0


def _as_full(error: OSError, path: Path) -> Exception:
    # Everything else is a fault of the disk, and trying again would not help.
    if error.errno in _FULL:
        return DiskFull(f"{path}: {error.strerror}")
    return error
