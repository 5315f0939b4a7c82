"""The committer: threads that encode, write and synchronise.  The engine's thread never waits for a disk.

Everything that was submitted while a turn was running is committed and synchronised together in the next turn
(group commit): the slower the disk, the larger the groups.  A turn may have several commits, because a commit
has a limited size, and one synchronisation for all of them.

Three threads write:

* the committer's thread (``_run``) encodes commits, and decides when to write, to synchronise and to delete
  segments;
* ``_beside`` has one thread that writes a commit while the next one is encoded;
* ``_syncer`` has one thread that synchronises, with ``fsync = "interval"``, while more is written.

A journal with an archive has one more (``archiver.py``), which moves and deletes segments.

Encoding and writing overlap because both leave the interpreter's lock to the other: Arrow and zlib while they
work on buffers, the system while it writes.  There is one commit ahead and no more; ``BufferPool`` keeps two
buffers for that.

Order of the counters: ``_committed`` is the number of messages that were written, ``_durable`` of those that
were synchronised; both only grow, and ``_durable <= _committed``.

Errors: a full disk is waited for, in ``_write``, and everything behind it waits, too.  Any other exception
ends the committer.  It closes the journal and calls ``fail``; nothing that was not synchronised before is
called durable.  What was submitted and not written is lost here, but was not confirmed.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple

from plugins.engines.journal.archiver import Archiver
from plugins.engines.journal.options import JournalOptions
from plugins.engines.journal.positions import positions
from plugins.engines.journal.retention import delete, expired
from plugins.engines.journal.writer import DiskFull, JournalWriter
from plugins.protocols.journal_format.envelopes import Source
from plugins.protocols.journal_format.errors import JournalError
from plugins.protocols.journal_format.folders import ArchiveUnavailable
from plugins.protocols.journal_format.record_batch import EncodedRecordBatch

HOUSEKEEPING = 5.0
"""Seconds between two checks for segments that may be rolled or deleted."""

_NOT_YET = 0.05
"""Seconds until the next attempt, if the previous synchronisation is still running when the next one is
due."""

_SYNC_BYTES = 32 << 20
"""With ``fsync = "interval"``: this number of bytes is synchronised before the interval is over.  Otherwise
the disk would be idle first and overloaded at the end of the interval."""

_MOST_ROWS = 65_536
"""Largest number of rows of one commit."""

Stamped = tuple[Any, int, Source]
"""A batch, the time at which it was received (microseconds since 1970 UTC), and its source."""


class Progress(NamedTuple):
    """The progress of the committer, in messages since its start."""

    committed: int
    durable: int
    """The messages that may be confirmed."""
    full: str
    """Why nothing can be written at present; empty if writing is possible."""


class Committer:
    """Writes the submitted batches in order.

    ``report`` (progress), ``fail`` (the committer has ended with this exception) and ``warn`` (a text for
    people) are called in threads of the committer.
    """

    def __init__(
        self,
        name: str,
        writer: JournalWriter,
        options: JournalOptions,
        report: Callable[[Progress], Any],
        fail: Callable[[BaseException], Any],
        warn: Callable[[str], Any] = lambda _: None,
    ) -> None:
        # For ``statistics``, which the engine's thread calls at any time.  Each is changed by one thread at a
        # time.
        self.commits = self.syncs = self.deleted = 0
        # Replaced as a whole, so that other threads never see numbers that do not belong together.
        self.progress = Progress(0, 0, "")
        self._writer = writer
        self._options = options
        self._report = report
        self._fail = fail
        self._warn = warn
        self._warned = ""
        self._queue: SimpleQueue[list[Stamped] | None] = SimpleQueue()
        # Besides None in the queue: it cuts the waiting for space on a full disk short, which does not look
        # into the queue.
        self._stopping = threading.Event()
        self.consumers: dict[str, int] = {}
        """The next offset of each consumer, as it was at the last housekeeping."""
        self._committed = self._durable = 0
        self._full = ""
        # Due at once: retention is applied at the start, and the first messages do not wait for a whole
        # interval.
        self._sync_due = self._keep_due = time.monotonic()
        # Executors and not threads: their futures carry an exception to the thread that waits.  Their threads
        # begin with the first job, so a journal with small commits and ``fsync = "batch"``
        # has one thread only.
        self._beside = ThreadPoolExecutor(1, thread_name_prefix=f"{name}-writer")
        self._syncer = ThreadPoolExecutor(1, thread_name_prefix=f"{name}-syncer")
        self._syncing: Future[None] | None = None
        self._telling = threading.Lock()
        """Keeps the reports of two threads in order: a report is never older than the one before it."""
        self.archiver = (
            None
            if options.archive is None
            else Archiver(name, writer.path, options.archive, self._delete_expired, warn)
        )
        self._thread = threading.Thread(target=self._run, name=f"{name}-committer", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def submit(self, batches: list[Stamped]) -> None:
        """Queue batches, to be committed after everything that was submitted before.

        May be called in any thread.
        """
        self._queue.put(batches)

    def stop(self) -> None:
        """Write what was submitted, synchronise, close the journal.  Blocks.

        If the disk is full, the rest is not written; ``progress`` says how far it came.
        """
        self._stopping.set()
        self._queue.put(None)
        self._thread.join()

    # ------------------------------------------------------------------ the thread

    def _run(self) -> None:
        try:
            try:
                while self._turn():
                    pass
                if self._syncing is not None:
                    # Raises the exception of the other thread: it must not be overlooked at the end.
                    self._syncing.result()
            finally:
                # The threads end first, since they use the writer.
                self._beside.shutdown()
                self._syncer.shutdown()
                if self.archiver is not None:
                    self.archiver.stop()
                self._writer.close()
            # ``close`` has synchronised everything.  Not after a failure: after a failed fsync the system may
            # drop the pages, and what was written since the last success may be lost.
            self.progress = Progress(self._committed, self._committed, self._full)
        except BaseException as error:
            self._fail(error)

    def _turn(self) -> bool:
        """Commit everything that waits, and synchronise if it is due; return False at the end."""
        batches, going = self._next()
        # Also without batches, when only a synchronisation or housekeeping is due.
        if not self._commit(batches):
            return False
        now = time.monotonic()
        if self._options.fsync == "batch":
            self._sync()
        # The other thread synchronises, so that writing goes on meanwhile.  With ``fsync = "batch"`` that
        # would gain nothing: nothing is confirmed before the sync, and the next commit gets larger while this
        # thread waits.
        elif self._unsynced() and (now >= self._sync_due or self._writer.unsynced() >= _SYNC_BYTES):
            self._sync_beside(now)
        if now >= self._keep_due:
            self._keep(now)
        return going

    def _next(self) -> tuple[list[Stamped], bool]:
        """Wait for batches or for the next due time; return all waiting batches, and False at the end."""
        batches: list[Stamped] = []
        try:
            # Waits for the first item only.  Whatever else is in the queue by then goes into the same turn.
            item = self._queue.get(timeout=self._timeout())
            while item is not None:
                batches += item
                item = self._queue.get_nowait()
        except Empty:
            return batches, True
        return batches, False

    def _timeout(self) -> float:
        due = self._keep_due
        if self._unsynced():
            # Without a message this thread wakes for the next due time.
            due = min(due, self._sync_due)
        return max(due - time.monotonic(), 0.001)

    def _unsynced(self) -> bool:
        """Return whether messages wait for the end of the interval.

        Without any the interval must not end: the next message would have to wait for a whole new one.
        """
        return self._options.fsync == "interval" and self._durable < self._committed

    def _commit(self, batches: list[Stamped]) -> bool:
        """Commit batches; each commit is encoded while the one before is written.

        Return False if the committer was stopped while the disk was full.
        """
        options = self._options
        # The commit that was encoded last.  The next one begins where it ends, which is known although it may
        # not be written yet.
        record_batch: EncodedRecordBatch | None = None
        behind: Future[bool] | None = None
        parts = list(chunks(batches, min(options.batch_rows, _MOST_ROWS), options.batch_bytes))
        for number, part in enumerate(parts):
            record_batch = self._writer.encode(part, after=record_batch)
            # Commits are written in order, one at a time: ``append_encoded`` is for one thread.
            if behind is not None and not behind.result():
                return False
            # Nothing remains to be encoded meanwhile, and waking the other thread would cost time.
            if number == len(parts) - 1:
                return self._write(record_batch)
            behind = self._beside.submit(self._write, record_batch)
        return True

    def _write(self, record_batch: EncodedRecordBatch) -> bool:
        """Write a commit, and wait until the disk has space for it.

        Return False if the committer was stopped while the disk was full.
        """
        while True:
            try:
                entry = self._writer.append_encoded(record_batch)
            except DiskFull as error:
                # Told once, not with each attempt.
                if not self._full:
                    self._full = str(error)
                    self._tell()
                # The same commit is tried again: a ``DiskFull`` has left the journal unchanged.
                if self._stopping.wait(self._options.retry):
                    return False
                continue
            self._full = ""
            self.commits += 1
            self._committed += entry.rows
            # Now, not at the end of the turn: the engine may take more messages meanwhile.
            self._tell()
            return True

    def _sync(self) -> None:
        # Read before the synchronisation: what another thread writes meanwhile may not be covered by it.
        committed = self._committed
        # False if another sync has covered everything, for example when a segment ended.
        if self._writer.sync():
            self.syncs += 1
        if self._durable < committed:
            self._durable = committed
            self._tell()

    def _sync_beside(self, now: float) -> None:
        """Synchronise in the other thread, unless it is still busy with the previous time."""
        if self._syncing is not None:
            if not self._syncing.done():
                self._sync_due = now + _NOT_YET
                return
            # Raises the exception of the other thread, which ends the committer.
            self._syncing.result()
        self._sync_due = now + self._options.fsync_interval
        self._syncing = self._syncer.submit(self._sync)

    def _tell(self) -> None:
        with self._telling:
            # With ``never`` messages count as safe when the operating system has them.
            durable = self._committed if self._options.fsync == "never" else self._durable
            self.progress = Progress(self._committed, durable, self._full)
            self._report(self.progress)

    def _keep(self, now: float) -> None:
        """Begin a new segment if it is time, and move or delete others: by age, by size, to the archive."""
        self._keep_due = now + HOUSEKEEPING
        try:
            # Also without messages, or a quiet journal would never let retention delete its last rows.
            self._writer.roll_if_due()
        except DiskFull:
            # The old segment is still appended to.  The next commit reports the full disk.
            pass
        try:
            self.consumers = positions(self._writer.path)
        except JournalError:
            # One of them cannot be read, which retention reports.  The others are shown as they were.
            pass
        if self.archiver is None:
            self._delete_expired()
        else:
            self.archiver.begin()

    def _delete_expired(self) -> None:
        try:
            # Read from the directory and not from the writer: compaction, another process, changes the
            # segments, too.
            found = expired(self._writer.path, self._options.keep, int(time.time() * 1e6))
        except ArchiveUnavailable:
            raise
        except JournalError as error:
            # A consumer's position cannot be read.  Until it can, nothing is deleted: the rows may be unread.
            if str(error) != self._warned:
                self._warned = str(error)
                self._warn(f"nothing is deleted: {error}")
            return
        self._warned = ""
        delete(self._writer.path, found)
        self.deleted += len(found)


def chunks(batches: list[Stamped], most_rows: int, most_bytes: int) -> Iterator[list[Stamped]]:
    """Divide batches into commits of at most ``most_rows`` and ``most_bytes``.

    A larger message has its own commit.
    """
    chunk: list[Stamped] = []
    rows = size = 0
    for batch, ts, source in batches:
        for part in _parts(batch, most_rows, most_bytes):
            if chunk and (rows + len(part.bodies) > most_rows or size + part.size > most_bytes):
                yield chunk
                chunk, rows, size = [], 0, 0
            chunk.append((part, ts, source))
            rows += len(part.bodies)
            size += part.size
    if chunk:
        yield chunk


def _parts(batch: Any, most_rows: int, most_bytes: int) -> Iterator[Any]:
    """Halve a batch until each part fits into one commit."""
    count = len(batch.bodies)
    if count > 1 and (count > most_rows or batch.size > most_bytes):
        # Halves, not parts of ``most_rows``: the bodies may have very different sizes, and the limit of bytes
        # counts, too.
        yield from _parts(batch.slice(0, count // 2), most_rows, most_bytes)
        yield from _parts(batch.slice(count // 2, count), most_rows, most_bytes)
    else:
        yield batch
