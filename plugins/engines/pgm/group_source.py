"""A PGM source on its sockets, in an engine's thread.

``work`` does everything: it takes new units from the owner (``refill``) when the source has none left, asks
the source for the packets that are due, writes them, and sets the timer for the next deadline. It is called
at the deadline, when packets of receivers were read, when the socket is writable again, and by the owner when
there is something to send. There is no thread and no queue between the owner and the socket but the source's
own.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

from kernel.contracts.engine import EngineEvent, Host
from kernel.hosting.datagram_wire import DatagramWire
from kernel.hosting.interfaces import find_interface
from kernel.hosting.lazy_timer import LazyTimer
from kernel.hosting.lent_wire import LentWire
from plugins.engines.pgm.location import Location
from plugins.engines.pgm.options import GroupOptions
from plugins.engines.pgm.sockets import Sockets
from plugins.protocols.pgm.source import Source

READS_PER_TURN = 64


class GroupSource:
    """Sends units to a group, and answers the receivers' NAKs.

    ``refill`` is called when there is room for more units, ``sent`` when the operating system has all of
    them.
    """

    def __init__(
        self,
        host: Host,
        engine: str,
        options: GroupOptions,
        location: Location,
        *,
        raw: bool,
        refill: Callable[[], Any],
        sent: Callable[[], Any],
    ) -> None:
        self._host = host
        self._engine = engine
        self._refill = refill
        self._sent = sent
        self._timer = LazyTimer(host, self.work)
        self._dropped = 0
        self._where = f"{location.group}:{location.port}"
        self.silent = False
        """There are no receivers: nothing is sent, not even SPMs."""
        interface = find_interface(location.interface, location.group)
        sockets = Sockets(options, location, interface, raw=raw)
        self._wires: list[DatagramWire] = []
        self._open(sockets, location.port)
        wire = self._wires[0]
        self.lent = LentWire(
            host, wire, readable=self._readable(wire), writable=self._on_writable, used=self._arm
        )
        """The socket that sends everything, for a thread of an application that sends lone messages."""
        self.group = sockets.address_of(None)
        """The address of the group."""
        identifier = bytes.fromhex(options.gsi) or os.urandom(6)
        self.source = Source(
            options.source,
            # The source port, which is part of the TSI (RFC 3208, 3.1), is random: after a restart with the
            # same GSI this is a new session to receivers, and they do not mix its numbers with those of the
            # old one.
            identifier + os.urandom(2),
            location.port,
            interface.address.packed,
            location.group.packed,
            packet_size=sockets.packet_size,
        )

    def _open(self, sockets: Sockets, port: int) -> None:
        try:
            # The unicast socket sends everything and receives NAKs at the address that the SPMs announce. The
            # group's socket is there for SPMRs, and for NAKs that receivers multicast.
            self._wires.append(sockets.unicast(port))
            self._wires.append(sockets.group(upstream_only=True))
        except OSError:
            self._close_wires()
            raise
        for warning in sockets.warnings:
            self._host.report(EngineEvent(engine=self._engine, what="warning", detail=warning))

    def start(self) -> None:
        """Start to receive NAKs, and send an SPM."""
        self.lent.start()
        wire = self._wires[1]
        self._host.poller.watch(wire.fileno(), readable=self._readable(wire), writable=None)
        self.work()

    @property
    def busy(self) -> bool:
        """Whether new data waits to be sent."""
        return bool(self.source.queued) or self.lent.writing

    def send(self, units: Sequence[bytes]) -> None:
        """Queue units; ``work`` sends them."""
        self.source.send(units)

    def close(self) -> None:
        """Announce the end of the session (OPT_FIN), and close the sockets."""
        self.lent.settle()
        if not self.silent:
            # A source that was silent has no session that anybody knows of.
            self._wires[0].send(self.source.close(), self.group)
        self._timer.cancel()
        self.lent.close()
        self._host.poller.watch(self._wires[1].fileno(), readable=None, writable=None)
        self._close_wires()

    def statistics(self) -> dict[str, Any]:
        """Return the counters."""
        source, congestion = self.source, self.source.congestion
        controlled = {} if congestion is None else {"congestion_window": congestion.window}
        return {
            **vars(source.statistics),
            **controlled,
            "window_packets": (source.lead - source.trail + 1) & 0xFFFFFFFF,
            "packets_refused": sum(wire.dropped for wire in self._wires),
        }

    def work(self) -> None:
        """Send what is due, and set the timer."""
        if self.silent:
            return
        self.lent.settle()
        source = self.source
        if not self.lent.writing:
            # New messages are taken only when those before are sent, so that the pipes feel the rate at once.
            if not source.queued:
                self._refill()
            packets = source.packets_to_send(self._host.now())
            if packets:
                self.lent.write(done=self._wires[0].send(packets, self.group))
                if self._wires[0].dropped != self._dropped:
                    self._report_dropped(self._wires[0])
            # Packets that wait in the wire are not yet with the system, and would be lost with this process.
            if not self.busy:
                self._sent()
        # While the socket is full nothing can be sent, however much is due: ``_on_writable`` goes on. A timer
        # for a deadline that has passed would call this method without end.
        if not self.lent.writing:
            self._arm()

    def _arm(self) -> None:
        self._timer.arm(self.source.next_deadline())

    def _close_wires(self) -> None:
        for wire in self._wires:
            wire.close()

    def _on_writable(self) -> None:
        self.lent.write(done=self._wires[0].flush())
        if not self.lent.writing:
            # Before ``work``, which takes new units: where these fill the socket each time, nothing would
            # ever be reported as sent.
            if not self.busy:
                self._sent()
            self.work()

    def _report_dropped(self, wire: DatagramWire) -> None:
        """Report once that the system refuses packets; a counter tells how many."""
        if self._dropped == 0:
            detail = (
                f"the system refuses packets for {self._where}: {wire.refusal}; packets_refused counts them"
            )
            self._host.report(EngineEvent(engine=self._engine, what="refused", detail=detail))
        self._dropped = wire.dropped

    # ------------------------------------------------------------------ from receivers

    def _readable(self, wire: DatagramWire) -> Callable[[], None]:
        return lambda: self._on_readable(wire)

    def _on_readable(self, wire: DatagramWire) -> None:
        source = self.source
        now = self._host.now()
        for datagrams, _ in wire.receive(READS_PER_TURN):
            # All NAKs that have arrived are read before anything is answered, so that requests for the same
            # packet are combined.
            for datagram in datagrams:
                source.receive(datagram, now)
        self.work()
