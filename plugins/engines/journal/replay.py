"""Replay: an engine that plays a journal back into the routes, at the pace it had, faster, or as fast as they take it.

A thread reads ahead; the loop sends what is due.  With ``consumer`` the position is written down as the routes confirm.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import trio

from kernel.contracts.engine import EngineEvent, Host, Port
from plugins.engines.journal.journal_source import CHUNK_BYTES, CHUNK_ROWS, Chunk, JournalSource
from plugins.engines.journal.moments import moment_of
from plugins.engines.journal.options import ReplayOptions
from plugins.engines.journal.playback import Playback
from plugins.engines.journal.positions import write_position
from plugins.engines.journal.selection import Selection
from plugins.engines.journal.threads import in_thread
from plugins.engines.journal.watch import DirectoryWatch
from plugins.protocols.journal_format.errors import Damaged

_A_TURN = 10_000
"""Messages sent before the neighbours have their turn."""

_WRITE_POSITION = 1.0
"""Seconds between two notes of the consumer's position."""


class ReplayEngine:
    """A journal that is read.  ``run`` is its life; all else is called by the thread that hosts it."""

    def __init__(self, name: str, options: ReplayOptions) -> None:
        self._name = name
        self._options = options
        self._path = Path(options.path)
        self._playback = Playback(options.speed)
        self._host: Host | None = None
        self._port: Port | None = None
        self._wanted = trio.Event()
        self._bytes = self._damaged = 0
        self._going = True
        self._over = self._soon = False
        self._read_to = 0
        self._before = 0  # messages sent before anybody confirmed
        self._position: int | None = None
        self._written: int | None = None
        self._writing = trio.Lock()

    def __repr__(self) -> str:
        return f"<ReplayEngine {self._name} {self._options.path}>"

    async def run(self, host: Host, *, task_status: trio.TaskStatus[str]) -> None:
        """Play to the end; with ``follow``, until cancelled."""
        self._host = host
        source = await in_thread(self._open)
        self._read_to = source.offset
        self._port = host.port(self._name, self)
        task_status.started(f"{self._path} from offset {source.offset}")
        watch = DirectoryWatch(self._path) if self._options.follow else None
        try:
            if self._options.consumer is not None:
                host.nursery.start_soon(self._write_positions)
            await self._read(source, watch)
            while not self._is_done():
                await self._change()
        finally:
            await self._write_position()
            if watch is not None:
                watch.close()
            host.set_timer(None, self._pump, self)

    def pending(self) -> bool:
        """Nothing waits here that is not on disk."""
        return False

    def statistics(self) -> dict[str, Any]:
        """Counters of this moment."""
        return {
            "messages_out": self._playback.sent,
            "bytes_out": self._bytes,
            "damaged_rows": self._damaged,
            "read_to": self._read_to,
            "position": self._position,
        }

    # ------------------------------------------------------------------ the port's owner

    def on_output(self) -> None:
        """A replay listens to nobody: take what comes, so that nobody waits."""
        if self._port is not None:
            while taken := self._port.take():
                self._port.confirm_through(taken.position)

    def on_writable(self) -> None:
        """The routes have room again."""
        self._going = True
        self._pump()

    def on_confirmed(self, position: int) -> None:
        """Everything before an offset has arrived."""
        self._note(self._before + position)
        self._wanted.set()

    # ------------------------------------------------------------------ reading

    def _open(self) -> JournalSource:
        """Blocks: looks for the offset of a moment, and has retention wait from there on."""
        options = self._options
        source = JournalSource(
            self._path,
            start=moment_of(options.start),
            end=moment_of(options.end),
            selection=Selection(match=options.match, exchange=options.exchange, engine=options.engine),
            consumer=options.consumer,
            follow=options.follow,
            on_damage=self._on_damage if options.skip_damage else None,
        )
        # nothing that is not there yet is noted as read: a writer that begins goes on behind that
        if options.consumer is not None and self._path.is_dir() and source.offset <= source.journal_end():
            write_position(self._path, options.consumer, source.offset)
        return source

    async def _read(self, source: JournalSource, watch: DirectoryWatch | None) -> None:
        """Read ahead until the end, as fast as it is sent."""
        while True:
            before = source.offset
            chunk: Chunk = await in_thread(source.read)
            self._read_to = chunk.offset
            for batches, end in chunk.record_batches:
                self._playback.add(batches, end)
            self._pump()
            if chunk.over:
                self._over = True
                return
            if watch is not None and chunk.offset == before:
                await trio.lowlevel.wait_readable(watch.fileno())
                watch.drain()
            while self._playback.waiting > CHUNK_ROWS or self._playback.waiting_bytes > CHUNK_BYTES:
                await self._change()

    def _on_damage(self, damage: Damaged) -> None:
        """Called in the reading thread."""
        assert self._host is not None
        self._damaged += damage.stop - damage.start
        event = EngineEvent(engine=self._name, what="damaged", detail=str(damage))
        self._host.post(partial(self._host.report, event))

    # ------------------------------------------------------------------ sending

    def _pump(self) -> None:
        """Send what is due; come back when more is, when there is room, or after the neighbours."""
        host, port, playback = self._host, self._port, self._playback
        if host is None or port is None or not self._going:
            return
        if not port.confirms:
            self._before = playback.sent
        batches = playback.due(host.now(), _A_TURN)
        if batches:
            self._bytes += sum(batch.size for batch in batches)
            self._going = port.send(batches)
        # also without any: rows that nobody wants are done as soon as all before them are
        self._note(self._before + port.confirmed() if port.confirms else playback.sent)
        if self._going:
            due = playback.next_due(host.now())
            if due is not None and due <= host.now():
                self._pump_soon(host)
            else:
                host.set_timer(due, self._pump, self)
        self._wanted.set()

    def _pump_soon(self, host: Host) -> None:
        if not self._soon:
            self._soon = True
            host.soon(self._on_soon)

    def _on_soon(self) -> None:
        self._soon = False
        self._pump()

    def _note(self, count: int) -> None:
        position = self._playback.position(count)
        if position is not None:
            self._position = position

    def _is_done(self) -> bool:
        port = self._port
        assert port is not None
        return self._over and not self._playback.waiting and port.confirmed() >= port.sent()

    async def _change(self) -> None:
        """Wait until something was sent or confirmed."""
        self._wanted = trio.Event()
        await self._wanted.wait()

    # ------------------------------------------------------------------ the consumer's position

    async def _write_positions(self) -> None:
        while True:
            await trio.sleep(_WRITE_POSITION)
            await self._write_position()

    async def _write_position(self) -> None:
        consumer = self._options.consumer
        with trio.CancelScope(shield=True):
            async with self._writing:  # the one before may take its time
                position = self._position
                if consumer is not None and position is not None and position != self._written:
                    await in_thread(write_position, self._path, consumer, position)
                    self._written = position
