"""Replay: an engine that sends the messages of a journal into its routes, at their original pace or faster.

Three activities share one object, all in the engine's thread:

* ``_read`` reads ahead: each call of ``ReplayReader.read`` blocks in a thread, and its batches go to the
  schedule;
* ``_pump`` sends the batches that are due.  It is called by a timer, when the routes have room again, and
  after reading;
* ``_write_positions`` stores the consumer's position once a second, in a thread.

The position is an offset: everything before it was confirmed, or sent if the routes do not confirm.  It lags
behind what was sent, never ahead of what was confirmed: after a crash messages may be replayed twice, but
none is left out.

Counting: the port confirms a number of messages, and the position is an offset.  The schedule has marks that
say which offset is reached after how many messages.  They differ, because the selection leaves rows out and
retention or damage may leave gaps.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import trio

from kernel.contracts.engine import EngineEvent, Host, Port
from kernel.hosting.in_thread import in_thread
from plugins.engines.journal.moments import moment_of
from plugins.engines.journal.options import ReplayOptions
from plugins.engines.journal.positions import write_position
from plugins.engines.journal.replay_reader import CHUNK_BYTES, CHUNK_ROWS, Chunk, ReplayReader
from plugins.engines.journal.replay_schedule import ReplaySchedule
from plugins.engines.journal.selection import Selection
from plugins.engines.journal.watch import DirectoryWatch, watch_directory
from plugins.protocols.journal_format.errors import Damaged, NoJournal
from plugins.protocols.journal_format.names import why_no_journal

_MESSAGES_PER_TURN = 10_000
"""About this number of messages is sent before the other engines of the thread have their turn."""

_WRITE_POSITION = 1.0
"""Seconds between two writes of the consumer's position."""


class ReplayEngine:
    """Replays a journal.  All methods are called in the engine's thread, except where it says otherwise."""

    def __init__(
        self, name: str, options: ReplayOptions, *, apart: bool = False, may_be_missing: bool = False
    ) -> None:
        """``apart``: it is a part of another engine, and has routes of its own.

        ``may_be_missing``: somebody is about to write the journal, so one that is not there is an empty one.
        """
        self._name = name
        self._apart = apart
        self._may_be_missing = may_be_missing or options.follow
        self._options = options
        self._path = Path(options.path)
        self._schedule = ReplaySchedule(options.speed)
        self._host: Host | None = None
        self._port: Port | None = None
        self._changed = trio.Event()
        self._bytes = self._damaged = 0
        # Whether the routes take more.  ``port.send`` says no when a pipe is full, and ``on_writable`` is
        # called when it has room again.
        self._has_room = True
        self._at_end = self._soon = False
        self._read_to = 0
        self._unconfirmed_start = 0
        """Messages that were sent before the routes began to confirm: they do not count in
        ``port.confirmed()``."""
        # The position that is reached, and the one that the consumer's file has.
        self._position: int | None = None
        self._written: int | None = None
        self._writing = trio.Lock()

    def __repr__(self) -> str:
        return f"<ReplayEngine {self._name} {self._options.path}>"

    async def run(self, host: Host, *, task_status: trio.TaskStatus[str]) -> None:
        """Replay to the end; with ``follow``, until cancelled."""
        self._host = host
        reader = await in_thread(self._open)
        self._read_to = reader.offset
        self._port = host.port(self._name, self, {"apart": self._apart})
        task_status.started(f"{self._path} from offset {reader.offset}")
        # Before the first read: see ``_read``.
        watch = watch_directory(self._path) if self._options.follow else None
        try:
            if self._options.consumer is not None:
                host.nursery.start_soon(self._write_positions)
            await self._read(reader, watch)
            # The end is when everything was confirmed: the command ``replay`` reports that.
            while not self._is_done():
                await self._wait_for_change()
        finally:
            try:
                # The last position, also when the engine is cancelled: what was confirmed must not be
                # replayed again.  It cannot be written where the journal was deleted.
                await self._write_position()
            finally:
                if watch is not None:
                    watch.close()
                # The timer would call into an engine that has ended.
                host.set_timer(None, self._pump, self)
                # A rewind has ended, and the engine that hosts it goes on.
                self._port.close()

    def pending(self) -> bool:
        """Return False: everything that waits here is also in the journal."""
        return False

    def statistics(self) -> dict[str, Any]:
        """Return the engine's counters."""
        return {
            "messages_out": self._schedule.sent,
            "bytes_out": self._bytes,
            "damaged_rows": self._damaged,
            "read_to": self._read_to,
            "position": self._position,
        }

    # ------------------------------------------------------------------ the port's owner

    def on_output(self) -> None:
        """Discard messages that routes bring: a replay has no input, and their senders must not wait."""
        if self._port is not None:
            while taken := self._port.take():
                self._port.confirm_through(taken.position)

    def on_writable(self) -> None:
        """Go on sending: the routes have room again."""
        self._has_room = True
        self._pump()

    def on_confirmed(self, position: int) -> None:
        """Move the consumer's position on: the port's first ``position`` messages are confirmed."""
        self._advance(self._unconfirmed_start + position)
        self._changed.set()

    # ------------------------------------------------------------------ reading

    def _open(self) -> ReplayReader:
        """Open the journal; return its reader at the first offset.  Blocks.  ``NoJournal`` if there is none.

        Writes the consumer's first position, so that retention keeps the rows from there on.
        """
        options = self._options
        why = "" if self._may_be_missing else why_no_journal(self._path)
        if why:
            raise NoJournal(why)
        reader = ReplayReader(
            self._path,
            start=moment_of(options.start),
            end=moment_of(options.end),
            selection=Selection(match=options.match, exchange=options.exchange, engine=options.engine),
            consumer=options.consumer,
            follow=options.follow,
            into=options.into,
            on_damage=self._on_damage if options.skip_damage else None,
        )
        # A position after the journal's end is not written: a writer would begin behind it and skip these
        # offsets.
        if options.consumer is not None and self._path.is_dir() and reader.offset <= reader.journal_end():
            write_position(self._path, options.consumer, reader.offset)
        return reader

    async def _read(self, reader: ReplayReader, watch: DirectoryWatch | None) -> None:
        """Read up to the end, about one chunk ahead of what is sent."""
        while True:
            before = reader.offset
            # One call at a time: a ``ReplayReader`` is for one thread at a time.
            chunk: Chunk = await in_thread(reader.read)
            self._read_to = chunk.offset
            for batches, end in chunk.record_batches:
                self._schedule.add(batches, end)
            self._pump()
            if chunk.at_end:
                self._at_end = True
                return
            # Nothing new: wait until the writer changes the directory.  The watch was opened before the first
            # read, so a change in between is not missed.
            if watch is not None and chunk.offset == before:
                await trio.lowlevel.wait_readable(watch.fileno())
                watch.drain()
            # Read on when less than a chunk waits, so that sending does not wait for the disk.
            while self._schedule.waiting > CHUNK_ROWS or self._schedule.waiting_bytes > CHUNK_BYTES:
                await self._wait_for_change()

    def _on_damage(self, damage: Damaged) -> None:
        """Count and report damaged rows.  Called in the thread that reads."""
        assert self._host is not None
        self._damaged += damage.stop - damage.start
        event = EngineEvent(engine=self._name, what="damaged", detail=str(damage))
        # Events are reported in the engine's thread.
        self._host.post(partial(self._host.report, event))

    # ------------------------------------------------------------------ sending

    def _pump(self) -> None:
        """Send what is due now.

        It is called again at the next due time, when the routes have room, or after the turn of the other
        engines.
        """
        host, port, schedule = self._host, self._port, self._schedule
        if host is None or port is None or not self._has_room:
            return
        # The port counts confirmations from where its routes began to confirm.  Routes can be changed while
        # the replay runs.
        if not port.confirms:
            self._unconfirmed_start = schedule.sent
        batches = schedule.due(host.now(), _MESSAGES_PER_TURN)
        if batches:
            self._bytes += sum(batch.size for batch in batches)
            self._has_room = port.send(batches)
        # Also if nothing was sent: rows that the selection leaves out are done when all rows before them are.
        # Without confirming routes, sent is done.
        self._advance(self._unconfirmed_start + port.confirmed() if port.confirms else schedule.sent)
        if self._has_room:
            due = schedule.next_due(host.now())
            # More is due than one turn may send.  ``soon`` lets the other engines have theirs first.
            if due is not None and due <= host.now():
                self._pump_soon(host)
            else:
                host.set_timer(due, self._pump, self)
        self._changed.set()

    def _pump_soon(self, host: Host) -> None:
        # Asked for once, however often ``_pump`` is called meanwhile.
        if not self._soon:
            self._soon = True
            host.soon(self._on_soon)

    def _on_soon(self) -> None:
        self._soon = False
        self._pump()

    def _advance(self, count: int) -> None:
        """Move the position to where the first ``count`` messages are done."""
        position = self._schedule.position(count)
        if position is not None:
            self._position = position

    def _is_done(self) -> bool:
        port = self._port
        assert port is not None
        # Everything was read, everything was sent, and everything was confirmed.
        return self._at_end and not self._schedule.waiting and port.confirmed() >= port.sent()

    async def _wait_for_change(self) -> None:
        """Wait until something was sent or confirmed."""
        # A new event each time; whatever happened before was looked at by the caller.
        self._changed = trio.Event()
        await self._changed.wait()

    # ------------------------------------------------------------------ the consumer's position

    async def _write_positions(self) -> None:
        while True:
            await trio.sleep(_WRITE_POSITION)
            await self._write_position()

    async def _write_position(self) -> None:
        consumer = self._options.consumer
        # At the end of a cancelled engine, too: ``run`` calls this in its ``finally``.
        with trio.CancelScope(shield=True):
            # The previous write may still be running in its thread.  Two of them could leave the older
            # position.
            async with self._writing:
                position = self._position
                if consumer is not None and position is not None and position != self._written:
                    await in_thread(write_position, self._path, consumer, position)
                    self._written = position
