"""Engine: takes what routes bring, gathers it for a few milliseconds, hands it to the committer, confirms what is safe.

While more than a few batches are on their way to the disk nothing is taken from the pipes: they fill, and the routes do what
they say (``when_full``).  A full disk is no more than a committer that takes its time.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import Any

import trio

from kernel.contracts.engine import EngineEvent, Host, Port, Taken
from kernel.contracts.message import Batch, batch_of
from plugins.engines.journal.committer import Committer, Progress, Stamped
from plugins.engines.journal.options import JournalOptions
from plugins.engines.journal.threads import in_thread
from plugins.engines.journal.writer import JournalWriter, WriterSettings
from plugins.protocols.journal_format.envelopes import Source
from plugins.protocols.journal_format.packing import Packer
from plugins.protocols.journal_format.record_batch import LARGEST_BODY

_BATCHES_AHEAD = 4
"""How many batches may be on their way to the disk."""

_SOURCES = 10_000
"""How many ports are remembered by name."""

_TAKES_A_TURN = 8
"""How often the pipes are asked before the neighbours have their turn."""


class JournalEngine:
    """A journal that is written.  ``run`` is its life; all else is called by the thread that hosts it."""

    def __init__(self, name: str, options: JournalOptions) -> None:
        self._name = name
        self._options = options
        self._host: Host | None = None
        self._port: Port | None = None
        self._committer: Committer | None = None
        self._writer: JournalWriter | None = None
        self._gathered: list[Stamped] = []
        self._packer = Packer()
        self._rows = self._bytes = 0  # gathered
        self._given = 0  # messages gathered so far
        self._ahead: deque[tuple[int, int]] = deque()
        """What was submitted: the count of messages at its end, and its bytes."""
        self._bytes_ahead = 0
        self._unsafe: deque[tuple[int, int | None]] = deque()
        """What was taken: the count of messages gathered at its end, and the port's position there."""
        self._progress = Progress(0, 0, "")
        self._lingering = False
        self._messages_in = self._bytes_in = self._refused = 0
        self._sources: dict[tuple[str, str], Source] = {}
        self._failure: BaseException | None = None
        self._failed = trio.Event()

    def __repr__(self) -> str:
        return f"<JournalEngine {self._name} {self._options.path}>"

    async def run(self, host: Host, *, task_status: trio.TaskStatus[str]) -> None:
        """Keep the journal until cancelled."""
        options = self._options
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
            self._tell_recovered(writer)
        except BaseException:
            writer.close()
            raise
        self._committer.start()
        try:
            self._port = host.port(self._name, self)
            task_status.started(f"{writer.path} at offset {writer.next_offset}")
            await self._failed.wait()
            assert self._failure is not None
            raise self._failure
        finally:
            self._submit()
            await in_thread(self._committer.stop)
            self._progress = self._committer.progress
            self._confirm()
            self._port = None

    def pending(self) -> bool:
        """Whether something is on its way to the disk."""
        if self._progress.full:
            return False  # nobody can say for how long
        return bool(self._gathered or self._unsafe) or (self._port is not None and self._port.has_input())

    def statistics(self) -> dict[str, Any]:
        """Counters of this moment."""
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
            "next_offset": writer.next_offset,
            "segment": str(writer.segment),
            "full": self._progress.full,
            "recovered_rows": writer.recovered.adopted,
            "recovered_entries": writer.recovered.replaced,
            "cut_bytes": writer.recovered.cut,
        }

    # ------------------------------------------------------------------ the port's owner

    def on_output(self) -> None:
        """The pipes have something."""
        port, host = self._port, self._host
        if port is None or host is None:
            return
        for _ in range(_TAKES_A_TURN):
            room = self._room()
            if room <= 0:
                return  # progress calls again
            taken = port.take(room)
            if not taken.batches:
                return
            self._gather(taken, port)
        if port.has_input():
            host.soon(self.on_output)

    def on_writable(self) -> None:
        """Nothing is ever sent."""

    def on_confirmed(self, position: int) -> None:
        """Nothing is ever sent."""

    # ------------------------------------------------------------------ to the disk

    def _room(self) -> int:
        """How many messages may be taken now."""
        options = self._options
        if self._bytes_ahead + self._bytes >= _BATCHES_AHEAD * options.batch_bytes:
            return 0
        ahead = self._given - self._progress.committed
        return min(_BATCHES_AHEAD * options.batch_rows - ahead, options.batch_rows)

    def _gather(self, taken: Taken, port: Port) -> None:
        assert self._writer is not None
        ts = self._writer.stamp()
        source = self._source(port.origin)
        rows = size = 0
        for batch in taken.batches:
            if batch.size >= LARGEST_BODY:
                batch = self._without_giants(batch)
            if batch.bodies:
                self._gathered.append((self._packer.pack(batch), ts, source))
                rows += len(batch.bodies)
                size += batch.size
        self._messages_in += rows
        self._bytes_in += size
        self._rows += rows
        self._bytes += size
        self._given += rows
        self._unsafe.append((self._given, taken.position))
        if self._rows >= self._options.batch_rows or self._bytes >= self._options.batch_bytes:
            self._submit()
        elif not self._lingering:
            self._linger()

    def _linger(self) -> None:
        assert self._host is not None
        self._lingering = True
        if self._options.linger:
            self._host.set_timer(self._host.now() + self._options.linger, self._on_timer, self)
        else:
            self._host.soon(self._on_timer)

    def _on_timer(self) -> None:
        self._lingering = False
        self._submit()
        self._confirm()  # nothing may have been left of what was taken

    def _submit(self) -> None:
        if self._gathered and self._committer is not None:
            self._ahead.append((self._given, self._bytes))
            self._bytes_ahead += self._bytes
            self._committer.submit(self._gathered)
            self._gathered = []
            self._rows = self._bytes = 0

    def _without_giants(self, batch: Batch) -> Batch:
        """Leave out what no batch can hold, count it, and tell."""
        sizes = [sum(map(len, body)) if batch.multipart else len(body) for body in batch.bodies]
        kept = [body for body, size in zip(batch.bodies, sizes, strict=True) if size < LARGEST_BODY]
        if len(kept) < len(sizes):
            self._refused += len(sizes) - len(kept)
            self._report("refused", f"a message of {max(sizes)} bytes is too large for a journal")
        return batch_of(kept, batch.envelope, multipart=batch.multipart)

    def _source(self, origin: tuple[str, str]) -> Source:
        source = self._sources.get(origin)
        if source is None:
            if len(self._sources) >= _SOURCES:
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
        while self._ahead and self._ahead[0][0] <= progress.committed:
            self._bytes_ahead -= self._ahead.popleft()[1]
        self._confirm()
        self.on_output()

    def _confirm(self) -> None:
        """Take the responsibility for what is safe."""
        position = None
        while self._unsafe and self._unsafe[0][0] <= self._progress.durable:
            position = self._unsafe.popleft()[1] or position
        if self._port is not None:
            self._port.confirm_through(position)

    def _on_failure(self, error: BaseException) -> None:
        self._failure = error
        self._failed.set()

    def _tell_recovered(self, writer: JournalWriter) -> None:
        recovered = writer.recovered
        if any(recovered):
            self._report(
                "recovered",
                f"{writer.path}: {recovered.adopted} rows and {recovered.replaced} index entries were made good, "
                f"{recovered.cut} bytes that were never committed were cut off"
                + (f", {recovered.lost} rows that a consumer has had are lost" if recovered.lost else ""),
            )

    def _report(self, what: str, detail: str) -> None:
        if self._host is not None:
            self._host.report(EngineEvent(engine=self._name, what=what, detail=detail))


def _open(options: JournalOptions) -> JournalWriter:
    """Blocks: recovery reads the last segment."""
    settings = WriterSettings(
        compression=None if options.compression == "none" else options.compression,
        roll_bytes=options.roll_bytes,
        roll_seconds=options.roll_seconds,
        min_free_bytes=options.min_free_bytes,
    )
    return JournalWriter(options.path, settings)
