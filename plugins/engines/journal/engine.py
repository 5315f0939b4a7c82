"""The engine that writes a journal: collects messages for some milliseconds, has them written, confirms them.

A message goes through these states; the counters in brackets count messages since the start and only grow:

1. collected: taken from the port, in ``_collected`` (``_taken``);
2. submitted: given to the committer, whose threads encode and write it;
3. committed: with the operating system (``Progress.committed``);
4. durable: synchronised, as the option ``fsync`` demands (``Progress.durable``); now it is confirmed.

Flow control: while more than ``_BATCHES_AHEAD`` batches are taken and not committed, nothing is taken from
the port.  The pipes fill, and the routes do what their ``when_full`` says.  A full disk is nothing special:
the committer waits, and everything before it does.

Threads: everything in ``JournalEngine`` runs in the engine's thread.  The committer's threads call
``report``, ``fail`` and ``warn``, which only post to the engine's thread.  Confirmations are cumulative: the
port is told the position up to which everything is durable.

Linger: the first message that is collected starts a timer, and the commit is submitted when the timer ends or
when it is large enough.  So a message waits for others for ``linger`` seconds at most, and a thin feed does
not pay the fixed size of a commit (about 1.8 KB, decision 5) for each message.

Nobody else is coming: publishers that wait for each confirmation send nothing before it.  So if everything
that was taken before is confirmed, and as many messages have come as the last commit had, all publishers that
are known are waiting, and the commit is submitted at once.  Messages that come while others are not confirmed
yet show that somebody does not wait, or is new; they linger.  So does what nobody waits for.

The end: a kernel that closes asks each engine whether something is pending, and so does a call that removes
the engine.  They wait for the answer, so from the first question on nothing lingers.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import Any

import trio

from kernel.contracts.counts import counted
from kernel.contracts.engine import EngineEvent, Host, Port, Taken
from kernel.contracts.errors import KernelError
from kernel.contracts.message import Batch, batch_of
from kernel.contracts.system import System
from kernel.hosting.in_thread import in_thread
from plugins.engines.journal.committer import Committer, Progress, Stamped
from plugins.engines.journal.options import JournalOptions
from plugins.engines.journal.rewinds import Rewinds
from plugins.engines.journal.writer import JournalWriter, WriterSettings
from plugins.protocols.journal_format.envelopes import Source
from plugins.protocols.journal_format.packing import Packer
from plugins.protocols.journal_format.record_batch import LARGEST_BODY

_BATCHES_AHEAD = 4
"""Batches, as ``batch_rows`` and ``batch_bytes`` limit them, that may be taken and not committed."""

_SOURCES = 10_000
"""Sources of messages that are cached; when there are more, the cache is cleared."""

_TAKES_PER_TURN = 8
"""Calls of ``Port.take`` before the other engines of the thread have their turn."""


class JournalEngine:
    """Writes a journal.  All methods are called in the engine's thread."""

    def __init__(self, name: str, options: JournalOptions, system: System | None = None) -> None:
        self._name = name
        self._options = options
        self._rewinds = Rewinds(options.path, system)
        self._host: Host | None = None
        self._port: Port | None = None
        self._committer: Committer | None = None
        self._writer: JournalWriter | None = None
        self._collected: list[Stamped] = []
        self._packer = Packer()
        self._rows = self._bytes = 0  # of ``_collected``
        self._taken = 0
        self._submitted: deque[tuple[int, int]] = deque()
        """Submitted and not committed: the value of ``_taken`` at the end of a submission, and its bytes."""
        self._submitted_bytes = 0
        self._unconfirmed: deque[tuple[int, int | None]] = deque()
        """Taken and not durable: the value of ``_taken`` after a take, and the port's position there."""
        self._progress = Progress(0, 0, "")
        self._lingering = self._due_soon = self._ending = False
        self._all_wait = False
        """Whether what is collected came when everything before it was confirmed, and is waited for."""
        self._last_rows = 1
        """The number of messages in the last submission."""
        self._messages_in = self._bytes_in = self._refused = 0
        self._sources: dict[tuple[str, str], Source] = {}
        self._failure: BaseException | None = None
        # An exception of another thread is raised in ``run``, where the kernel sees it and restarts the
        # engine.
        self._failed = trio.Event()

    def __repr__(self) -> str:
        return f"<JournalEngine {self._name} {self._options.path}>"

    async def run(self, host: Host, *, task_status: trio.TaskStatus[str]) -> None:
        """Write the journal until cancelled.

        At the end everything that was taken is committed, if there is room.
        """
        options = self._options
        # Recovery reads the last segment and may take seconds.  The other engines of the thread go on
        # meanwhile.
        writer = self._writer = await in_thread(_open, options)
        try:
            self._host = host
            self._committer = Committer(
                self._name,
                writer,
                options,
                report=lambda progress: host.post(partial(self._on_progress, progress)),
                fail=lambda error: host.post(partial(self._on_failure, error)),
                warn=lambda text: host.post(partial(self._report, "warning", text)),
            )
            self._report_recovered(writer)
        except BaseException:
            writer.close()
            raise
        # Before the port: from the moment when the port exists messages may arrive.
        self._committer.start()
        try:
            self._port = host.port(self._name, self)
            task_status.started(f"{writer.path} at offset {writer.next_offset}")
            # Until the committer fails or the engine is cancelled.
            await self._failed.wait()
            assert self._failure is not None
            raise self._failure
        finally:
            # What was taken from the port is not lost if it can still be written: submit it, wait for the
            # threads, and confirm what ``stop`` has made durable.  ``_on_progress`` is not called any more.
            self._submit()
            await in_thread(self._committer.stop)
            self._progress = self._committer.progress
            self._confirm()
            self._port = None

    def pending(self) -> bool:
        """Return whether messages are not durable yet; from now on none lingers."""
        if not self._ending and self._host is not None:
            self._ending = True
            # Any thread calls this.
            self._host.post(self._on_due)
        if self._progress.full:
            # A kernel that stops must not wait for a full disk.
            return False
        return bool(self._collected or self._unconfirmed) or (
            self._port is not None and self._port.has_input()
        )

    def statistics(self) -> dict[str, Any]:
        """Return the engine's counters."""
        writer, committer = self._writer, self._committer
        if writer is None or committer is None:
            return {"messages_in": 0}
        return {
            "journal": str(writer.path.absolute()),
            "messages_in": self._messages_in,
            "bytes_in": self._bytes_in,
            "messages_refused": self._refused,
            "committed": self._progress.committed,
            "durable": self._progress.durable,
            "commits": committer.commits,
            "syncs": committer.syncs,
            "segments_deleted": committer.deleted,
            **_archived(committer),
            "next_offset": writer.next_offset,
            "consumers": dict(committer.consumers),
            "segment": str(writer.segment),
            "full": self._progress.full,
            "recovered_rows": writer.recovered.adopted,
            "recovered_entries": writer.recovered.replaced,
            "cut_bytes": writer.recovered.cut,
        }

    def operate(self, what: str, argument: Any) -> Any:
        """Begin a rewind, tell how far it is, or end it."""
        if self._host is None:
            raise KernelError(f"{self._options.path} is not open yet; try again later")
        return self._rewinds.operate(what, argument, self._host)

    # ------------------------------------------------------------------ the port's owner

    def on_output(self) -> None:
        """Take messages from the port as far as there is room for them."""
        port, host = self._port, self._host
        if port is None or host is None:
            return
        # A source that never pauses must not keep the other engines of the thread waiting.
        for _ in range(_TAKES_PER_TURN):
            room = self._room()
            if room <= 0:
                # ``_on_progress`` calls this again when something was committed.
                return
            taken = port.take(room)
            if not taken.batches:
                return
            self._collect(taken, port)
        if port.has_input():
            host.soon(self.on_output)

    def on_writable(self) -> None:
        """Do nothing: a journal sends nothing."""

    def on_confirmed(self, position: int) -> None:
        """Do nothing: a journal sends nothing."""

    # ------------------------------------------------------------------ to the disk

    def _room(self) -> int:
        """Return the number of messages that may be taken now; 0 or less: none."""
        options = self._options
        # Two limits, because bodies may be of any size: in bytes and in messages.
        if self._submitted_bytes + self._bytes >= _BATCHES_AHEAD * options.batch_bytes:
            return 0
        # Messages and not submissions, so that a half-full commit does not count as a whole one.
        ahead = self._taken - self._progress.committed
        return min(_BATCHES_AHEAD * options.batch_rows - ahead, options.batch_rows)

    def _collect(self, taken: Taken, port: Port) -> None:
        assert self._writer is not None
        # One time for all that one call of ``take`` has brought: it is when the journal received them.
        ts = self._writer.stamp()
        source = self._source(port.origin)
        rows = size = 0
        for batch in taken.batches:
            # A batch that is smaller as a whole has no body that is too large.
            if batch.size >= LARGEST_BODY:
                batch = self._without_oversized(batch)
            if batch.bodies:
                # Packed now, while the bodies are in this core's cache: see ``packing.py``.
                self._collected.append((self._packer.pack(batch), ts, source))
                rows += len(batch.bodies)
                size += batch.size
        if not self._rows:
            self._all_wait = not self._unconfirmed
        if taken.position is None:
            self._all_wait = False
        self._messages_in += rows
        self._bytes_in += size
        self._rows += rows
        self._bytes += size
        self._taken += rows
        # Also if all messages were refused: the position is confirmed with what was taken before it.
        self._unconfirmed.append((self._taken, taken.position))
        if self._rows >= self._options.batch_rows or self._bytes >= self._options.batch_bytes:
            self._submit()
        elif not self._options.linger or self._ending or (self._all_wait and self._rows >= self._last_rows):
            self._submit_soon()
        elif not self._lingering:
            self._linger()

    def _linger(self) -> None:
        assert self._host is not None
        self._lingering = True
        # One timer for all that is collected; it runs from the first message on.
        self._host.set_timer(self._host.now() + self._options.linger, self._on_due, self)

    def _submit_soon(self) -> None:
        assert self._host is not None
        # Not at once: what other pipes have for this turn shares the commit.
        if not self._due_soon:
            self._due_soon = True
            self._host.soon(self._on_due)

    def _on_due(self) -> None:
        self._due_soon = False
        self._submit()
        # If all messages were too large, nothing was submitted, and no progress will be reported.
        self._confirm()

    def _submit(self) -> None:
        if self._lingering:
            assert self._host is not None
            # The timer is for what is submitted now, and would end the waiting of what comes next too early.
            self._lingering = False
            self._host.set_timer(None, self._on_due, self)
        if self._collected and self._committer is not None:
            self._last_rows = self._rows
            self._submitted.append((self._taken, self._bytes))
            self._submitted_bytes += self._bytes
            self._committer.submit(self._collected)
            # A new list: the committer's thread has the other one.
            self._collected = []
            self._rows = self._bytes = 0

    def _without_oversized(self, batch: Batch) -> Batch:
        """Return a batch without the messages that are too large for a commit; count and report those."""
        sizes = [sum(map(len, body)) if batch.multipart else len(body) for body in batch.bodies]
        kept = [body for body, size in zip(batch.bodies, sizes, strict=True) if size < LARGEST_BODY]
        if len(kept) < len(sizes):
            # Refused and not blocked: the message would never fit, and everything behind it would wait.
            self._refused += len(sizes) - len(kept)
            self._report("refused", f"a message of {max(sizes)} bytes is too large for a journal")
        return batch_of(kept, batch.envelope, multipart=batch.multipart)

    def _source(self, origin: tuple[str, str]) -> Source:
        source = self._sources.get(origin)
        if source is None:
            if len(self._sources) >= _SOURCES:
                # A listener has a port for each connection, so there may be any number of origins.
                self._sources.clear()
            source = self._sources[origin] = Source(*origin)
        return source

    # ------------------------------------------------------------------ from the disk

    def _on_progress(self, progress: Progress) -> None:
        if self._port is None:
            return
        before, self._progress = self._progress, progress
        if progress.full and not before.full:
            self._report("full", progress.full)
        elif before.full and not progress.full:
            self._report("room", f"{self._options.path}: there is room again")
        # Submissions are committed in order, but a commit need not end where a submission ends.
        while self._submitted and self._submitted[0][0] <= progress.committed:
            self._submitted_bytes -= self._submitted.popleft()[1]
        self._confirm()
        self.on_output()

    def _confirm(self) -> None:
        """Confirm what is durable."""
        position = None
        while self._unconfirmed and self._unconfirmed[0][0] <= self._progress.durable:
            # A take without confirming routes has no position.  The last one that there is includes those
            # before it.
            position = self._unconfirmed.popleft()[1] or position
        if self._port is not None:
            self._port.confirm_through(position)

    def _on_failure(self, error: BaseException) -> None:
        self._failure = error
        self._failed.set()

    def _report_recovered(self, writer: JournalWriter) -> None:
        recovered = writer.recovered
        if any(recovered):
            cut = counted(
                recovered.cut, "byte that was never committed was", "bytes that were never committed were"
            )
            lost = counted(
                recovered.lost, "row that a consumer has read is", "rows that a consumer has read are"
            )
            self._report(
                "recovered",
                f"{writer.path}: {counted(recovered.adopted, 'row')} and "
                f"{counted(recovered.replaced, 'index entry', 'index entries')} were repaired, {cut} cut off"
                + (f", {lost} lost" if recovered.lost else ""),
            )

    def _report(self, what: str, detail: str) -> None:
        if self._host is not None:
            self._host.report(EngineEvent(engine=self._name, what=what, detail=detail))


def _archived(committer: Committer) -> dict[str, Any]:
    """Return the counters of a journal with an archive."""
    archiver = committer.archiver
    if archiver is None:
        return {}
    return {
        "segments_archived": archiver.moved,
        "archive_failures": archiver.failures,
        "archive_error": archiver.error,
    }


def _open(options: JournalOptions) -> JournalWriter:
    """Open the journal for writing.  Blocks: recovery reads the last segment."""
    settings = WriterSettings(
        compression=None if options.compression == "none" else options.compression,
        roll_bytes=options.roll_bytes,
        roll_seconds=options.roll_seconds,
        min_free_bytes=options.min_free_bytes,
    )
    return JournalWriter(options.path, settings)
