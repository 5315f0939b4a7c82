"""Link: one end of a route that leads into another process.

A route whose source and targets are in several processes has two legs, and a link between them: the first leg
ends at a link engine in the process of the source, the second begins at one in the process of the targets.
The two engines have a conversation over a socketpair, in a protocol that carries all that a route carries:
batches with their envelopes, confirmations, subscriptions.  So back-pressure, confirmation and hand-over are
those of any connection.

A conversation lasts as long as both processes.  Its port is opened when it begins and closed when it ends, as
that of a listener's connection: what the other process has not confirmed is handed over.  Sockets are given
from outside (``LinkEnd.give``), since the processes that a kernel starts are started again by it.
"""

from __future__ import annotations

import math
import socket
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import trio

from kernel.contracts.engine import EngineEvent, Host, Port
from kernel.contracts.kinds import EngineSetup
from kernel.contracts.protocol import Side
from kernel.hosting.stream_host import StreamHost
from kernel.hosting.stream_statistics import StreamStatistics
from kernel.hosting.wire import PlainWire

RENEW = 1.0
"""Seconds that an end without a socket waits before it asks for one."""


class LinkEnd:
    """An end as other threads see it.  It outlives the engine, which may fail and be made again."""

    def __init__(
        self, name: str, port: str, peer: str, side: Side, on_lost: Callable[[int], Any] | None = None
    ) -> None:
        self.name: str = name
        """The name of the engine, and so of the end of the leg."""
        self.port: str = port
        """The name of the port: that of the engine which it stands for."""
        self.peer: str = peer
        """The other process, as operators see it."""
        self.side: Side = side
        """``client``: messages leave this process here."""
        self.on_lost: Callable[[int], Any] | None = on_lost
        """Called with ``pair`` when the conversation has ended and no other socket has come.  In the engine's
        thread.  None: the other end asks."""
        self.pair: int = 0
        """The number of the pair that the last socket is of."""
        self.counters: StreamStatistics = StreamStatistics()
        """Those of the present conversation.  Written by the engine's thread."""
        self.connected: bool = False
        self._lock = threading.Lock()
        self._given: socket.socket | None = None
        self._poke: Callable[[], Any] | None = None
        self._then: list[Callable[[], Any]] = []
        self._closed = False

    @property
    def moved(self) -> int:
        """How many messages have passed in this conversation."""
        return self.counters.messages_in + self.counters.messages_out

    def counts(self) -> tuple[int, int]:
        """Return how many messages were sent and received in this conversation.  Any thread."""
        return self.counters.messages_out, self.counters.messages_in

    def give(self, connected: socket.socket, pair: int) -> None:
        """Have the engine begin a conversation; an earlier one ends.  Any thread."""
        with self._lock:
            before, self._given = self._given, connected
            self.pair = pair
            if self._closed:
                before, self._given = connected, None
            poke = self._poke
        if before is not None:
            before.close()
        if poke is not None:
            poke()

    def take(self) -> socket.socket | None:
        """Return the socket that was given last; None if it was taken."""
        with self._lock:
            given, self._given = self._given, None
            return given

    def has_newer(self) -> bool:
        """Whether a socket was given and not taken: it is newer than that of the present conversation."""
        return self._given is not None

    def when_given(self, poke: Callable[[], Any] | None) -> None:
        """Have ``poke`` called, by any thread, when a socket was given."""
        with self._lock:
            self._poke = poke

    def when_over(self, then: Callable[[], Any]) -> None:
        """Call ``then`` in the engine's thread when the present conversation is over.

        At once if there is none.
        """
        with self._lock:
            if self.connected:
                self._then.append(then)
                return
        then()

    def over(self) -> None:
        """The conversation is over.  The engine's thread."""
        with self._lock:
            self.connected = False
            waiting, self._then = self._then, []
        for then in waiting:
            then()

    def close(self) -> None:
        """Close what was given and not taken, and what is given from now on."""
        with self._lock:
            given, self._given, self._closed = self._given, None, True
        if given is not None:
            given.close()


class LinkEngine:
    """Hosts the conversations of one end, one after the other."""

    def __init__(self, setup: EngineSetup, end: LinkEnd, protocol: str, options: dict[str, Any]) -> None:
        self._name = setup.name
        self._end = end
        self._make_protocol = partial(setup.make_protocol, protocol, options, end.side)
        self._totals = StreamStatistics()
        self._conversations = 0
        self._conversation: StreamHost | None = None
        self._port: Port | None = None
        self._given = trio.Event()
        self._over = trio.Event()
        self._reason = ""

    async def run(self, host: Host, *, task_status: trio.TaskStatus[str]) -> None:
        """Have conversations until cancelled."""
        self._host = host
        self._task_status: trio.TaskStatus[str] | None = task_status
        self._end.when_given(lambda: host.post(self._on_given))
        try:
            while True:
                await self._one(await self._next_socket())
        finally:
            self._end.when_given(None)
            if self._conversation is not None:
                self._conversation.close("shut down")

    def pending(self) -> bool:
        """Whether something waits to be written to the other process."""
        return self._conversation is not None and self._conversation.pending()

    def statistics(self) -> dict[str, Any]:
        """Sums over all conversations so far."""
        now = self._end.counters if self._conversation is not None else StreamStatistics()
        sums = {name: count + getattr(now, name) for name, count in self._totals.as_dict().items()}
        return {
            **sums,
            "connections": int(self._conversation is not None),
            "reconnects": max(self._conversations - 1, 0),
        }

    async def _next_socket(self) -> socket.socket:
        while True:
            self._given = trio.Event()
            # After the event was made: ``_on_given`` sets it in a turn of this thread, so none is missed.
            connected = self._end.take()
            if connected is not None:
                return connected
            with trio.move_on_after(math.inf if self._end.on_lost is None else RENEW):
                await self._given.wait()
                continue
            if self._end.on_lost is not None:
                self._end.on_lost(self._end.pair)

    def _on_given(self) -> None:
        self._given.set()
        # The other process was started again, and its end of the old conversation has gone.  But this
        # call may come late: the socket that it is about may have been taken, and be that of the
        # present conversation.
        if self._conversation is not None and self._end.has_newer():
            self._conversation.close("the other process has begun again")

    async def _one(self, connected: socket.socket) -> None:
        self._over = trio.Event()
        self._end.counters = StreamStatistics()
        conversation = self._conversation = StreamHost(
            self._host,
            PlainWire(connected),
            self._make_protocol(),
            peer=self._end.peer,
            counters=self._end.counters,
            open_port=self._open_port,
            on_open=self._on_open,
            on_end=self._on_end,
            on_refused=self._on_refused,
        )
        conversation.start()
        await self._over.wait()
        self._host.report(
            EngineEvent(engine=self._name, what="disconnected", peer=self._end.peer, detail=self._reason)
        )

    def _open_port(self, conversation: StreamHost) -> Port:
        self._port = self._host.port(self._end.port, conversation)
        return self._port

    def _on_open(self) -> None:
        self._conversations += 1
        self._end.connected = True
        if self._task_status is not None:
            task_status, self._task_status = self._task_status, None
            task_status.started(self._end.peer)
        else:
            self._host.report(EngineEvent(engine=self._name, what="connected", peer=self._end.peer))

    def _on_refused(self, why: str) -> None:
        self._host.report(EngineEvent(engine=self._name, what="refused", peer=self._end.peer, detail=why))

    def _on_end(self, conversation: StreamHost, reason: str) -> None:
        self._conversation = None
        self._reason = reason
        ended = self._end.counters
        for name, count in ended.as_dict().items():
            setattr(self._totals, name, getattr(self._totals, name) + count)
        self._end.counters = StreamStatistics()
        if self._port is not None:
            port, self._port = self._port, None
            port.close()
        self._over.set()
        # Last, and after the port was closed: a leg that begins here may be removed by it.
        self._end.over()
