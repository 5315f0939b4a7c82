"""Committer: the thread that encodes, writes and synchronises, so that no engine's loop ever waits for a disk.

What waits when it comes back from the disk is committed and synchronised together (group commit): the slower the
disk, the larger the groups.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple

from plugins.engines.journal.options import JournalOptions
from plugins.engines.journal.retention import delete, expired
from plugins.engines.journal.writer import DiskFull, JournalWriter
from plugins.protocols.journal_format.envelopes import Source
from plugins.protocols.journal_format.errors import JournalError
from plugins.protocols.journal_format.record_batch import EncodedRecordBatch

HOUSEKEEPING = 5.0
"""Seconds between two looks for segments that may be rolled or deleted."""

_NOT_YET = 0.05
"""Seconds to the next look, when the disk takes longer than the interval."""

_SYNC_BYTES = 32 << 20
"""With an interval: so many bytes do not wait for it, lest the disk has nothing to do now and too much then."""

_MOST_ROWS = 65_536
"""Of one commit."""

Stamped = tuple[Any, int, Source]
"""A batch, when it came (microseconds), and where from."""


class Progress(NamedTuple):
    """How far the committer has come, in messages since it began."""

    committed: int
    durable: int
    """Those that may be confirmed."""
    full: str
    """Why nothing can be written at the moment; empty: it can."""


class Committer:
    """Writes what is submitted, in order.  ``report``, ``fail`` and ``warn`` are called in threads of the committer's."""

    def __init__(
        self,
        name: str,
        writer: JournalWriter,
        options: JournalOptions,
        report: Callable[[Progress], Any],
        fail: Callable[[BaseException], Any],
        warn: Callable[[str], Any] = lambda _: None,
    ) -> None:
        self.commits = self.syncs = self.deleted = 0
        self.progress = Progress(0, 0, "")
        self._writer = writer
        self._options = options
        self._report = report
        self._fail = fail
        self._warn = warn
        self._warned = ""
        self._queue: SimpleQueue[list[Stamped] | None] = SimpleQueue()
        self._stopping = threading.Event()
        self._committed = self._durable = 0
        self._full = ""
        self._sync_due = self._keep_due = time.monotonic()
        self._beside = ThreadPoolExecutor(1, thread_name_prefix=f"{name}-writer")
        self._syncer = ThreadPoolExecutor(1, thread_name_prefix=f"{name}-syncer")
        self._syncing: Future[None] | None = None
        self._telling = threading.Lock()
        """What is told is never older than what was told before."""
        self._thread = threading.Thread(target=self._run, name=f"{name}-committer", daemon=True)

    def start(self) -> None:
        """Begin to work."""
        self._thread.start()

    def submit(self, batches: list[Stamped]) -> None:
        """Have these committed after all that was submitted before.  Any thread."""
        self._queue.put(batches)

    def stop(self) -> None:
        """Write what was submitted, if there is room for it, synchronise, close the journal; blocks."""
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
                    self._syncing.result()  # raises what it raised
            finally:
                self._beside.shutdown()
                self._syncer.shutdown()
                self._writer.close()
            # not after a failure: what a disk has failed to write once it may forget, and say yes the next time
            self.progress = Progress(self._committed, self._committed, self._full)
        except BaseException as error:
            self._fail(error)

    def _turn(self) -> bool:
        """Commit all that waits, synchronise if it is time; False: there will be no more."""
        batches, going = self._next()
        if not self._commit(batches):
            return False
        now = time.monotonic()
        if self._options.fsync == "batch":
            self._sync()
        elif self._unsynced() and (now >= self._sync_due or self._writer.unsynced() >= _SYNC_BYTES):
            self._sync_beside(now)
        if now >= self._keep_due:
            self._keep(now)
        return going

    def _next(self) -> tuple[list[Stamped], bool]:
        """Wait for something to do, and take all that is there."""
        batches: list[Stamped] = []
        try:
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
            due = min(due, self._sync_due)
        return max(due - time.monotonic(), 0.001)

    def _unsynced(self) -> bool:
        """Whether anything waits for the interval's end: a sync of nothing would have the next message wait for it."""
        return self._options.fsync == "interval" and self._durable < self._committed

    def _commit(self, batches: list[Stamped]) -> bool:
        """Commit in batches, each of which is encoded while the one before is written; False: we are to end."""
        options = self._options
        record_batch: EncodedRecordBatch | None = None
        behind: Future[bool] | None = None
        parts = list(chunks(batches, min(options.batch_rows, _MOST_ROWS), options.batch_bytes))
        for number, part in enumerate(parts):
            record_batch = self._writer.encode(part, after=record_batch)
            if behind is not None and not behind.result():
                return False
            if number == len(parts) - 1:  # nothing to encode meanwhile
                return self._write(record_batch)
            behind = self._beside.submit(self._write, record_batch)
        return True

    def _write(self, record_batch: EncodedRecordBatch) -> bool:
        """Write a batch, as soon as there is room for it; False: there is none, and we are to end."""
        while True:
            try:
                entry = self._writer.append_encoded(record_batch)
            except DiskFull as error:
                if not self._full:
                    self._full = str(error)
                    self._tell()
                if self._stopping.wait(self._options.retry):
                    return False
                continue
            self._full = ""
            self.commits += 1
            self._committed += entry.rows
            self._tell()  # there is room for more, while the rest of this turn is written
            return True

    def _sync(self) -> None:
        committed = self._committed
        if self._writer.sync():
            self.syncs += 1
        if self._durable < committed:
            self._durable = committed
            self._tell()

    def _sync_beside(self, now: float) -> None:
        """Synchronise what is committed now, while more is; the one before has to be done."""
        if self._syncing is not None:
            if not self._syncing.done():
                self._sync_due = now + _NOT_YET
                return
            self._syncing.result()  # raises what it raised
        self._sync_due = now + self._options.fsync_interval
        self._syncing = self._syncer.submit(self._sync)

    def _tell(self) -> None:
        with self._telling:
            durable = self._committed if self._options.fsync == "never" else self._durable
            self.progress = Progress(self._committed, durable, self._full)
            self._report(self.progress)

    def _keep(self, now: float) -> None:
        """Roll and delete what is due."""
        self._keep_due = now + HOUSEKEEPING
        try:
            self._writer.roll_if_due()
        except DiskFull:
            pass  # the next commit will tell
        try:
            found = expired(self._writer.path, self._options.keep, int(time.time() * 1e6))
        except JournalError as error:  # until somebody has seen to it too much is kept
            if str(error) != self._warned:
                self._warned = str(error)
                self._warn(f"nothing is deleted: {error}")
            return
        self._warned = ""
        delete(self._writer.path, found)
        self.deleted += len(found)


def chunks(batches: list[Stamped], most_rows: int, most_bytes: int) -> Iterator[list[Stamped]]:
    """Divide batches into commits: so many rows and bytes, or a single message that is larger."""
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
        yield from _parts(batch.slice(0, count // 2), most_rows, most_bytes)
        yield from _parts(batch.slice(count // 2, count), most_rows, most_bytes)
    else:
        yield batch
