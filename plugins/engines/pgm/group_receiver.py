"""A PGM receiver on its sockets, in an engine's thread.

While it is paused the socket is not read, and nothing is requested. Afterwards it requests what the socket's
buffer could not hold. What has left the source's window by then is lost, and reported.
"""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Callable
from typing import Any

from kernel.contracts.counts import counted
from kernel.contracts.engine import EngineEvent, Host
from kernel.hosting.datagram_wire import DatagramWire
from kernel.hosting.interfaces import find_interface
from kernel.hosting.lazy_timer import LazyTimer
from kernel.hosting.lent_wire import LentWire
from plugins.engines.pgm.location import Location
from plugins.engines.pgm.options import GroupOptions
from plugins.engines.pgm.sockets import Sockets
from plugins.protocols.pgm.events import Event, What
from plugins.protocols.pgm.packets import tsi_text
from plugins.protocols.pgm.receiver import Receiver
from plugins.protocols.pgm.sequence import distance

REPORT_INTERVAL = 1.0
"""Seconds between two loss reports of one source."""

Report = Callable[[bytes, str], None]


class Losses:
    """Losses of all sources, combined.

    The first is reported at once, later ones once per ``REPORT_INTERVAL``.
    """

    def __init__(self, report: Report) -> None:
        self._report = report
        self._pending: dict[bytes, list[Event]] = {}
        self._reported: dict[bytes, float] = {}

    def add(self, event: Event) -> None:
        """Add a loss."""
        self._pending.setdefault(event.tsi, []).append(event)

    def next_deadline(self) -> float | None:
        """Return when ``handle_timeout`` is due, or None."""
        return min((self._reported.get(tsi, 0.0) + REPORT_INTERVAL for tsi in self._pending), default=None)

    def handle_timeout(self, now: float) -> None:
        """Report what is due."""
        for tsi in list(self._pending):
            if tsi not in self._reported or self._reported[tsi] + REPORT_INTERVAL <= now:
                self._reported[tsi] = now
                self._report(tsi, _text(self._pending.pop(tsi)))

    def forget(self, tsi: bytes) -> None:
        """Report what is left of a source that has gone."""
        self._reported.pop(tsi, None)
        pending = self._pending.pop(tsi, None)
        if pending is not None:
            self._report(tsi, _text(pending))


def _text(events: list[Event]) -> str:
    ranges = [
        (event.first, event.last) for event in events if event.first is not None and event.last is not None
    ]
    count = sum(distance(first, last) + 1 for first, last in ranges)
    reasons = ", ".join(dict.fromkeys(event.detail for event in events))
    return f"{counted(count, 'packet')} from {ranges[0][0]} to {ranges[-1][1]}: {reasons}"


READS_PER_TURN = 16
"""System calls before other engines of the thread have their turn. Each may return 64 KiB."""

_REPAIRS = {What.GAP, What.RECOVERED}

Units = list[tuple[bytes, list[bytes | None]]]
"""Sources (TSI) and their units, in order, None where some were lost."""


class GroupReceiver:
    """Receives all sources of a group.

    ``deliver`` gets their units, ``gone`` is called for a source that has gone.
    """

    def __init__(
        self,
        host: Host,
        engine: str,
        options: GroupOptions,
        location: Location,
        *,
        raw: bool,
        deliver: Callable[[Units], Any],
        gone: Callable[[bytes], Any] = lambda tsi: None,
    ) -> None:
        self._host = host
        self._engine = engine
        self._options = options
        self._deliver = deliver
        self._gone = gone
        self._timer = LazyTimer(host, self._on_timer)
        # Losses come in storms, one event per gap; operators get one report per source and second.
        self._losses = Losses(lambda tsi, text: self._report(What.LOST.value, tsi_text(tsi), text))
        interface = find_interface(location.interface, location.group)
        self._sockets = Sockets(options, location, interface, raw=raw)
        self._wires: list[DatagramWire] = []
        try:
            self._wires.append(self._sockets.group())
            # NAKs leave from a socket of their own, bound to an address of the interface; the group's is
            # bound to the group.
            self._wires.append(self._sockets.unicast(0))
        except OSError:
            self._close_wires()
            raise
        self.lent = LentWire(
            host,
            self._wires[0],
            readable=self._on_readable,
            writable=_never,
            used=_never,
        )
        """The group's socket, for a thread of an application that receives lone messages.

        Nobody sends to the other one, from which NAKs leave, so it is not watched.
        """
        for warning in self._sockets.warnings:
            self._report("warning", detail=warning)
        # The protocol has no randomness of its own: a test gives a seed, an engine gives one from the system.
        seed = int.from_bytes(os.urandom(8), "big")
        self.receiver = Receiver(
            options.receiver, location.port, location.group.packed, seed, interface.address.packed
        )

    def start(self) -> None:
        """Start to receive."""
        self.lent.start()

    def pause(self) -> None:
        """Stop reading."""
        self.lent.pause(paused=True)

    def resume(self) -> None:
        """Continue reading, and request what was missed."""
        self._end_lease()
        self.lent.pause(paused=False)
        self._on_readable()

    def close(self) -> None:
        """Leave the group, and close the sockets."""
        self._timer.cancel()
        # The poller must forget a descriptor before it is closed: its number may be used again at once.
        self.lent.close()
        self._close_wires()

    def statistics(self) -> dict[str, Any]:
        """Return the counters."""
        return {"sources": len(self.receiver.sessions), **vars(self.receiver.statistics)}

    def _close_wires(self) -> None:
        for wire in self._wires:
            wire.close()
        self._wires = []

    def _on_readable(self) -> None:
        receiver = self.receiver
        now = self._host.now()
        for datagrams, address in self._wires[0].receive(READS_PER_TURN):
            # The host without the port: OpenPGM sends data and repairs of one source from two UDP ports.
            receiver.receive(datagrams, now, address[0])
        self._after(now)

    def _on_timer(self) -> None:
        """Process timers; read first, since what would be requested may be waiting in the socket."""
        self._end_lease()
        if not self.lent.paused:
            self._on_readable()
        else:
            self._report_events(self._host.now())

    def _end_lease(self) -> None:
        """Read again, before what comes behind something that another thread may have read."""
        lease = self.lent.lease
        if lease is not None:
            lease.end()

    def _after(self, now: float) -> None:
        receiver = self.receiver
        # NAKs leave before the data is delivered: their round trip runs while destinations work.
        for host, packet in receiver.packets_to_send(now):
            to = self._sockets.address_of(ipaddress.ip_address(host) if host is not None else None)
            self._wires[1].send([packet], to)
        self._deliver(receiver.take())
        # Delivering may have closed this receiver: ``one-to-many`` leaves the group when its connection
        # fails, and when everything that was multicast has arrived.
        if not self._wires:
            return
        due = self._losses.next_deadline()
        # Events after the data: a reported loss is behind the messages in front of it.
        if receiver.events or (due is not None and due <= now):
            self._report_events(now)
            due = self._losses.next_deadline()
        self._timer.arm(due)
        if not self.lent.paused:
            # Not while paused: NAKs would be sent whose answers are not read. Loss reports go on.
            self._timer.arm(receiver.next_deadline())

    def _report_events(self, now: float) -> None:
        events = list(self.receiver.events)
        self.receiver.events.clear()
        for event in events:
            # Without an end it is the unknown tail of a source that has gone: one event, and no storm.
            if event.what is What.LOST and event.last is not None:
                self._losses.add(event)
                continue
            # What is still to be reported of the source's losses comes before its end.
            if event.what is What.GONE:
                self._losses.forget(event.tsi)
                self._gone(event.tsi)
            if event.what not in _REPAIRS or self._options.report_repairs:
                numbers = "" if event.first is None else f"packets from {event.first}"
                if event.last is not None:
                    numbers = f"packets {event.first} to {event.last}"
                detail = ": ".join(filter(None, (numbers, event.detail)))
                self._report(event.what.value, tsi_text(event.tsi), detail)
        self._losses.handle_timeout(now)

    def _report(self, what: str, peer: str = "", detail: str = "") -> None:
        self._host.report(EngineEvent(engine=self._engine, what=what, peer=peer, detail=detail))


def _never() -> None:
    """Nothing is written to the group's socket, and no timer depends on what came in order."""
