"""The receiving engine: a TCP connection to the sender, the group if the sender asks for it, and one port.

``ReceivingSide`` puts the units of both paths into order. This file connects it with its surroundings: the
TCP connection, which is made again whenever it fails; the group, which is joined and left as ``side.group``
says; and the port.

What follows from any input is done by ``_after``, in an order that matters: report, deliver, join or leave
the group, tell the sender that its source is heard, acknowledge.

Back-pressure stops both paths together: while the port's pipes are full neither the connection nor the group
is read. The sender notices that acknowledgements stop.

The responsibility for a unit: an ACK has two numbers. The first says what has arrived here, the second what
this receiver's own destinations have confirmed. Without a route that confirms, a unit is confirmed when it is
delivered. Numbers belong to one feed; ``epoch`` tells feeds apart after the sender has started again.

Everything runs in the thread that hosts the engine.
"""

from __future__ import annotations

from collections import Counter, deque
from typing import Any

import trio

from kernel.contracts.engine import EngineEvent, Host, Port
from kernel.contracts.errors import ConnectionLost, RemoteProtocolError
from kernel.contracts.kinds import EngineSetup
from kernel.hosting.backoff import Backoff
from kernel.hosting.connecting import connect
from kernel.hosting.lazy_timer import LazyTimer
from kernel.hosting.wire import PlainWire
from plugins.engines.pgm.group_receiver import GroupReceiver, Units
from plugins.engines.pgm.one_to_many.options import parse_group, parse_tcp
from plugins.engines.pgm.one_to_many.tcp_link import TcpLink, set_silence_timeout
from plugins.protocols.backend.units import UnitDecoder
from plugins.protocols.switchover.receiving import ReceivingSide

OVERHEAD = 64 * 1024
"""Bytes that a unit may have beyond its largest message."""


class OneToManyReceiver:
    """Connects to a sender, and delivers its units from TCP and multicast."""

    def __init__(self, setup: EngineSetup) -> None:
        options = setup.options
        self._name = setup.name
        self._options = options
        self._address = parse_tcp(options.address)
        self._backoff = Backoff(options.reconnect)
        self._side = ReceivingSide(options.max_message + OVERHEAD, options.reorder_bytes)
        self._decoder = UnitDecoder(options.max_message)
        self._port: Port | None = None
        self._tcp: TcpLink | None = None
        self._group: GroupReceiver | None = None
        self._past: Counter[str] = Counter()
        """Counters of groups that were left."""
        self._group_name: str | None = None
        self._answered = 0
        """The sender's request to join (``requests``) that was answered last."""
        self._refusal = ""
        """Why the last join on this connection has failed; empty after a success."""
        self._over = trio.Event()
        self._reason = ""
        self._local = ""
        self._messages = self._refused = 0
        self._unconfirmed: deque[tuple[int, int, int]] = deque()
        """Deliveries that the destinations have not confirmed: the port's position behind each, the feed's
        epoch, and the number of the next unit."""
        self._reading = True

    async def run(self, host: Host, *, task_status: trio.TaskStatus[str]) -> None:
        """Keep a connection until cancelled."""
        self._host = host
        self._timer = LazyTimer(host, self._after)
        self._port = host.port(self._name, self)
        task_status.started(str(self._address))
        try:
            while True:
                await self._one_connection()
        finally:
            self._disconnect()
            self._timer.cancel()

    def statistics(self) -> dict[str, Any]:
        """Return the counters."""
        group = self._group
        by_group = Counter(self._past)
        if group is not None:
            by_group.update(group.statistics())
        return {
            "messages_in": self._messages,
            "messages_refused": self._refused,
            "messages_malformed": self._decoder.malformed,
            "connections": int(self._tcp is not None),
            "by_group": int(self._side.by_group),
            **vars(self._side.statistics),
            **by_group,
        }

    # ------------------------------------------------------------------ the connection

    async def _one_connection(self) -> None:
        peer = str(self._address)
        try:
            connected = await connect(self._address, self._options.connect_timeout)
        except ConnectionLost as error:
            self._reason = str(error)
        else:
            set_silence_timeout(connected, self._options.silence)
            opened = self._host.now()
            # A new event for each connection: ``_on_end`` sets it, also from callbacks outside of this task.
            self._over = trio.Event()
            # The address of the interface through which the sender was reached: the group is joined there by
            # default.
            self._local = connected.getsockname()[0]
            self._side.connected()
            self._tcp = TcpLink(self._host, PlainWire(connected), self._on_data, self._on_end)
            # The pipes may still be full from the connection before.
            self._tcp.read(self._reading)
            self._report("connected")
            # Sends HELLO.
            self._after()
            await self._over.wait()
            # A connection that has lasted resets the back-off; one that failed at once does not.
            self._backoff.lasted(self._host.now() - opened)
            self._report("disconnected", self._reason)
        wait = self._backoff.next_wait()
        event = EngineEvent(engine=self._name, what="retrying", peer=peer, detail=self._reason, next_try=wait)
        self._host.report(event)
        await trio.sleep(wait)

    def _on_data(self, data: bytes) -> None:
        try:
            # In ``finally``, because units in front of a malformed frame are valid, and have to be delivered.
            self._side.receive(data, self._host.now())
        finally:
            self._after()

    def _on_end(self, reason: str) -> None:
        self._reason = reason
        self._disconnect()
        self._over.set()

    def _disconnect(self) -> None:
        if self._tcp is not None:
            self._tcp.close()
            self._tcp = None
        # The side leaves the group, and ``_follow_group`` closes its sockets: without a connection nothing
        # could be requested, and the next HELLO says from where to continue.
        self._side.disconnected()
        self._follow_group()
        self._refusal = ""

    # ------------------------------------------------------------------ the group

    def _follow_group(self) -> None:
        """Join the group that the sender has named, or leave it."""
        side = self._side
        # The sender may name another group, or the same again. Sockets of the same group stay open; but a
        # join that has failed is tried again with each request, since the interface may have come up.
        asked_again = self._group is None and side.requests != self._answered
        if side.group == self._group_name and not asked_again:
            return
        self._group_name, self._answered = side.group, side.requests
        if self._group is not None:
            # First None: another thread may ask for the counters meanwhile, and must not get them twice.
            left, self._group = self._group, None
            # The sources of a group that was left are no longer received.
            self._past.update({**left.statistics(), "sources": 0})
            left.close()
        if side.group is None:
            return
        try:
            transport, location = parse_group(side.group, self._options.interface or self._local)
            self._group = GroupReceiver(
                self._host,
                self._name,
                self._options,
                location,
                raw=transport == "pgm",
                deliver=self._on_group,
            )
        except (OSError, ValueError) as error:
            # No READY is sent, so the sender serves this receiver over TCP. ``_group_name`` stays set, so
            # that the join is not tried again with every packet. The sender asks again every few seconds, and
            # the same reason is reported once.
            refusal = f"{side.group}: {error}"
            if refusal != self._refusal:
                self._refusal = refusal
                self._report("stays on TCP", refusal)
            return
        self._refusal = ""
        self._group.start()
        if not self._reading:
            self._group.pause()

    def _on_group(self, units: Units) -> None:
        side, group = self._side, self._group
        assert group is not None
        try:
            for tsi, pieces in units:
                # Other sources may use the same group and port. Only the one that PREPARE named has this
                # feed's numbers.
                if tsi == side.source:
                    side.receive_group(pieces, self._host.now())
        except RemoteProtocolError as error:
            self._on_end(f"protocol error: {error}")
            return
        self._after()

    def _check_heard(self) -> None:
        """Tell the sender when its source is heard.

        An SPM is the proof: it has the address that NAKs go to, so that repairs work from now on.
        """
        if self._group is not None:
            session = self._group.receiver.sessions.get(self._side.source)
            if session is not None and session.path is not None:
                self._side.group_heard()

    # ------------------------------------------------------------------ messages

    def _after(self) -> None:
        """Do what follows from any input: report, deliver, join or leave the group, send acknowledgements."""
        side, now = self._side, self._host.now()
        for what, detail in side.events:
            self._report(what, detail)
        side.events.clear()
        # Deliver first: what is delivered without confirmation is confirmed at once, and goes into the ACK of
        # this same turn.
        self._deliver()
        self._follow_group()
        self._check_heard()
        tcp = self._tcp
        if tcp is not None:
            data = side.data_to_send(now)
            if data:
                tcp.send(data)
            self._timer.arm(side.next_deadline())

    def _deliver(self) -> None:
        side, port = self._side, self._port
        units = side.take()
        if not units or port is None:
            return
        batches = self._decoder.decode(units)
        if batches:
            self._messages += sum(len(batch.bodies) for batch in batches)
            # The batches are in the pipes all the same. Only further reading stops, both of TCP and of the
            # group.
            if not port.send(batches):
                self._read(False)
        # Units are confirmed when the destinations have confirmed the last message of this delivery. Without
        # such a route the receiver's own confirmation is enough.
        if port.confirms:
            self._unconfirmed.append((port.sent(), side.epoch, side.next))
        else:
            side.confirm(side.epoch, side.next, self._host.now())

    def _read(self, wanted: bool) -> None:
        self._reading = wanted
        if self._tcp is not None:
            self._tcp.read(wanted)
        if self._group is not None:
            if wanted:
                self._group.resume()
            else:
                self._group.pause()

    # ------------------------------------------------------------------ the port's owner

    def on_writable(self) -> None:
        """Called when the port's pipes have room."""
        self._read(True)

    def on_confirmed(self, position: int) -> None:
        """Called when all destinations have confirmed what the port sent up to ``position``."""
        waiting = self._unconfirmed
        while waiting and waiting[0][0] <= position:
            # The epoch is kept with the number: a confirmation for units of an earlier feed must not confirm
            # units of this one.
            _, epoch, number = waiting.popleft()
            self._side.confirm(epoch, number, self._host.now())
        self._after()

    def on_output(self) -> None:
        """Drop messages of a route that leads here, and report that once: a receiver cannot send."""
        assert self._port is not None
        first = not self._refused
        while taken := self._port.take():
            self._refused += taken.count
        if first:
            detail = (
                f'this engine only receives (mode = "receive"); the one that listens at {self._address} sends'
            )
            self._report("refused", detail)

    def _report(self, what: str, detail: str = "") -> None:
        event = EngineEvent(engine=self._name, what=what, peer=str(self._address), detail=detail)
        self._host.report(event)
