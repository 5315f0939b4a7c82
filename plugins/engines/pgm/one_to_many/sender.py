"""The sending engine: a listener for receivers, a PGM source, and the switch-over between them.

Three objects meet here. ``SendingSide`` decides by which path each receiver is served, and keeps the units
that not all receivers have confirmed. ``GroupSource`` multicasts. A ``TcpLink`` is the connection to one
receiver. This file moves messages from the port to the side, and what the side has queued to the links and to
the source.

Whatever happens (a receiver connects, bytes arrive, the pipes have input, a timer expires, the source has
sent everything) ends in ``_after``, which does all that the side may have decided meanwhile. So no event has
to know what follows from it.

Two things limit what is taken from the pipes: the bytes that receivers have not confirmed (``window_bytes``),
and the rate of the source, which must have sent everything before more is taken. While there is no receiver,
nothing is taken at all.

A unit is confirmed when all receivers have confirmed it. The side counts messages; ``_base`` turns that count
into a position of the port. Everything runs in the thread that hosts the engine.
"""

from __future__ import annotations

import os
import socket
from typing import Any

import trio

from kernel.contracts.engine import EngineEvent, Host, Port
from kernel.contracts.kinds import EngineSetup
from kernel.hosting.lazy_timer import LazyTimer
from kernel.hosting.listener import Listener
from kernel.hosting.wire import PlainWire
from plugins.engines.pgm.group_source import GroupSource
from plugins.engines.pgm.one_to_many.options import parse_group, parse_tcp
from plugins.engines.pgm.one_to_many.tcp_link import TcpLink, set_silence_timeout
from plugins.protocols.backend.units import UnitEncoder
from plugins.protocols.switchover.frames import NUMBER
from plugins.protocols.switchover.link import Link
from plugins.protocols.switchover.sending import SendingSide

BATCH_BYTES = 256 * 1024
"""Bytes, roughly, that are taken from the pipes at once."""
BATCHES_PER_TURN = 8
TCP_UNIT = 64 * 1024
"""Bytes of a unit while everything goes over TCP. Multicast units fill one packet."""


class OneToManySender:
    """Sends the messages of its routes to each receiver over TCP, or to all by multicast."""

    def __init__(self, setup: EngineSetup) -> None:
        self._name = setup.name
        self._options = setup.options
        self._address = parse_tcp(setup.options.address)
        self._port: Port | None = None
        self._connections: dict[Link, TcpLink] = {}
        self._body_size = 128
        self._taken = 0
        self._base: int | None = None
        """The port's position minus the count of messages taken; None: no route wants confirmations."""
        self._refused = 0

    async def run(self, host: Host, *, task_status: trio.TaskStatus[str]) -> None:
        """Listen and send until cancelled."""
        self._host = host
        self._timer = LazyTimer(host, self._on_timer)
        transport, location = parse_group(self._options.group)
        group = self._group = GroupSource(
            host,
            self._name,
            self._options,
            location,
            raw=transport == "pgm",
            refill=lambda: None,
            sent=self._on_group_sent,
        )
        # The source exists from the start, because PREPARE names its TSI, but sends nothing before a receiver
        # was asked to join.
        group.silent = True
        # Two sizes: a multicast unit with its number fills one packet, so that a lost packet loses no more
        # than it contains. Over TCP large units cost less.
        self._small = UnitEncoder(group.source.tsdu_size - NUMBER.size)
        self._large = UnitEncoder(TCP_UNIT)
        host_text = f"[{location.group}]" if location.group.version == 6 else str(location.group)
        where = f"{transport}://{host_text}:{location.port}"
        self._side = SendingSide(self._options.switchover, os.urandom(8), group.source.tsi, where)
        try:
            listener = Listener(host, self._name, self._address, self._on_accept)
            try:
                group.start()
                self._port = host.port(self._name, self)
                task_status.started(listener.address)
                await trio.sleep_forever()
            finally:
                listener.close()
        finally:
            self._timer.cancel()
            for tcp in self._connections.values():
                tcp.close()
            group.close()

    def pending(self) -> bool:
        """Whether a connected receiver lacks something."""
        if self._port is None or not self._connections:
            return False
        buffer = self._side.buffer
        return self._port.has_input() or buffer.confirmed < buffer.next

    def statistics(self) -> dict[str, Any]:
        """Return the counters."""
        figures: dict[str, Any] = {"messages_out": self._taken, "refused": self._refused}
        if self._port is not None:
            side = self._side
            figures |= {
                "receivers": len(side.known),
                "multicasting": int(side.multicasting),
                "switches": side.switches,
                "fall_backs": side.fall_backs,
                "messages_refused": self._small.refused + self._large.refused,
                "units_out": side.buffer.next,
                "units_unconfirmed": side.buffer.next - side.buffer.confirmed,
                **self._group.statistics(),
            }
        return figures

    # ------------------------------------------------------------------ receivers

    def _on_accept(self, connected: socket.socket, peer: str) -> None:
        if len(self._connections) >= self._options.max_receivers:
            self._refused += 1
            connected.close()
            return
        set_silence_timeout(connected, self._options.silence)
        link = self._side.connected(peer, self._host.now())
        self._connections[link] = TcpLink(
            self._host,
            PlainWire(connected),
            lambda data: self._on_data(link, data),
            lambda reason: self._on_end(link, reason),
        )
        self._after()

    def _on_data(self, link: Link, data: bytes) -> None:
        self._side.receive(link, data, self._host.now())
        self._work()

    def _on_end(self, link: Link, reason: str) -> None:
        del self._connections[link]
        self._side.disconnected(link, self._host.now())
        self._report("disconnected", link.name, reason)
        self._work()

    # ------------------------------------------------------------------ messages

    def on_output(self) -> None:
        """Called when the port's pipes have input."""
        self._work()

    def _on_group_sent(self) -> None:
        """Called when the operating system has all multicast units."""
        self._group.silent = not self._side.uses_group
        if self._port is not None and self._port.has_input() and self._side.has_room:
            self._host.soon(self._work)

    def _on_timer(self) -> None:
        now = self._host.now()
        due = self._side.next_deadline()
        if due is not None and due <= now:
            self._side.handle_timeout(now)
        self._work()

    def _work(self) -> None:
        """Take from the pipes what may be sent, and send it."""
        port = self._port
        if port is None:
            return
        # A bound, so that one feed with much to send does not keep the thread's other engines from their
        # turn.
        for _ in range(BATCHES_PER_TURN):
            # Three limits: the bytes that receivers have not confirmed, the multicast rate, and what the
            # pipes have.
            if not self._side.has_room or self._group.busy or not self._take(port):
                break
            self._flush()
        else:
            self._host.soon(self._work)
        self._after()

    def _take(self, port: Port) -> bool:
        side = self._side
        taken = port.take(BATCH_BYTES // self._body_size or 1)
        if not taken.batches:
            return False
        batches, count = taken.batches, taken.count
        self._body_size = sum(batch.size for batch in batches) // count + 1
        self._taken += count
        # A position means that the port's routes confirm. ``_base`` converts the feed's count of messages to
        # positions; both count the same messages from different beginnings.
        side.confirming = taken.position is not None
        if taken.position is not None:
            self._base = taken.position - self._taken
        encoder = self._small if side.multicasting else self._large
        refused = encoder.refused
        units = encoder.encode(batches)
        # Reported once; the counter has the rest.
        if encoder.refused and not refused:
            self._report("refused", detail=encoder.problem)
        # Refused messages count as sent. If all were refused, an empty unit takes their place, so that their
        # count is confirmed with a unit like that of other messages.
        side.send(units or [b""], count, self._host.now())
        return True

    def _flush(self) -> None:
        """Write what is due to the links and the group."""
        units = self._side.take_group()
        if units:
            self._group.send(units)
            self._group.work()
        # A copy: sending may end a connection, which removes it here.
        for link, tcp in list(self._connections.items()):
            if link.out:
                out, link.out = link.out, []
                tcp.send(out)

    def _after(self) -> None:
        """Do what follows from any input: send, disconnect, report, confirm."""
        side, group = self._side, self._group
        self._flush()
        for link, why in side.disconnects:
            tcp = self._connections.pop(link, None)
            if tcp is not None:
                tcp.close()
                self._report("disconnected", link.name, why)
        side.disconnects.clear()
        for what, who, detail in side.events:
            self._report(what, who, detail)
        side.events.clear()
        # The source becomes silent only when nobody depends on it any more and everything is out. SPMs to a
        # group without receivers would be a load for nobody's sake.
        was_silent, group.silent = group.silent, not side.uses_group and not group.busy
        if side.announce:
            side.announce = False
            group.source.announce(self._host.now())
            group.work()
        # A source that was silent has no timer: it has to be started.
        elif was_silent and not group.silent:
            group.work()
        self._confirm()
        self._timer.arm(side.next_deadline())

    def _confirm(self) -> None:
        if self._base is not None and self._port is not None:
            self._port.confirm_through(self._base + self._side.buffer.messages_confirmed)

    def _report(self, what: str, peer: str = "", detail: str = "") -> None:
        self._host.report(EngineEvent(engine=self._name, what=what, peer=peer, detail=detail))

    # ------------------------------------------------------------------ the port's owner

    def on_writable(self) -> None:
        """Nothing is ever sent to the port."""

    def on_confirmed(self, position: int) -> None:
        """Nothing is ever sent to the port."""
