"""The receiving side: PGM's receiver between a socket and a port.

When the pipes are full the socket is not read, and nothing is asked for, until they have room: then what the system's buffer could
not hold is asked for again.  What the source has no more by then is lost, and told.
"""

from __future__ import annotations

import ipaddress
import os
from typing import Any

import trio

from kernel.contracts.engine import EngineEvent, Host, Port
from kernel.contracts.kinds import EngineSetup
from kernel.contracts.message import Run
from kernel.hosting.datagram_wire import DatagramWire
from kernel.hosting.interfaces import find_interface
from kernel.hosting.lazy_timer import LazyTimer
from plugins.engines.pgm.carriage import Decoder, make_decoder
from plugins.engines.pgm.losses import Losses
from plugins.engines.pgm.place import parse_pgm_address
from plugins.engines.pgm.sockets import Sockets
from plugins.protocols.pgm.events import What
from plugins.protocols.pgm.packets import tsi_text
from plugins.protocols.pgm.receiver import Receiver

READS_A_TURN = 16
"""System calls, each of which may bring 64 KiB, before the neighbours have their turn."""

_REPAIRS = {What.GAP, What.RECOVERED}


class PgmReceiver:
    """Hears all sources of the group, and passes on what they say."""

    def __init__(self, setup: EngineSetup) -> None:
        self._name = setup.name
        self._options = setup.options
        self._address, self._place = parse_pgm_address(setup.options.address)
        self._receiver = Receiver(
            setup.options.receiver,
            self._place.port,
            self._place.group.packed,
            int.from_bytes(os.urandom(8), "big"),
        )
        self._decoders: dict[bytes, Decoder] = {}
        self._port: Port | None = None
        self._wires: list[DatagramWire] = []
        self._reading = True
        self._messages = 0
        self._messages_refused = 0
        self._malformed = 0
        self._told_refusal = False
        self._losses = Losses(lambda tsi, text: self._tell(What.LOST.value, tsi_text(tsi), text))

    async def run(self, host: Host, *, task_status: trio.TaskStatus[str]) -> None:
        """Listen until cancelled."""
        self._host = host
        self._timer = LazyTimer(host, self._on_timer)
        try:
            options, place = self._options, self._place
            interface = find_interface(place.interface, place.group)
            self._sockets = Sockets(options, place, interface, raw=self._address.transport == "pgm")
            self._wires.append(self._sockets.group())
            self._wires.append(self._sockets.unicast(0))
            for warning in self._sockets.warnings:
                self._tell("warning", detail=warning)
            self._port = host.port(self._name, self)
            self._watch()
            task_status.started(str(self._address))
            await trio.sleep_forever()
        finally:
            for wire in self._wires:
                host.poller.watch(wire.fileno(), readable=None, writable=None)
                wire.close()

    def statistics(self) -> dict[str, Any]:
        """What was heard, missed and asked for."""
        malformed = self._malformed + sum(decoder.malformed for decoder in list(self._decoders.values()))
        return {
            "messages_in": self._messages,
            "messages_refused": self._messages_refused,
            "messages_malformed": malformed,
            "sources": len(self._receiver.sessions),
            **vars(self._receiver.statistics),
        }

    # ------------------------------------------------------------------ from the group

    def _watch(self) -> None:
        readable = self._on_readable if self._reading else None
        self._host.poller.watch(self._wires[0].fileno(), readable=readable, writable=None)

    def _on_readable(self) -> None:
        receiver = self._receiver
        now = self._host.now()
        for datagrams, address in self._wires[0].receive(READS_A_TURN):
            receiver.receive(datagrams, now, address[0])
        self._after(now)

    def _on_timer(self) -> None:
        """Read first: what is asked for may be there."""
        if self._reading:
            self._on_readable()
        else:
            self._tell_events(self._host.now())

    def _after(self, now: float) -> None:
        receiver = self._receiver
        for host, packet in receiver.packets_to_send(now):
            to = self._sockets.address_of(ipaddress.ip_address(host) if host is not None else None)
            self._wires[1].send([packet], to)
        self._deliver()
        due = self._losses.next_deadline()
        if receiver.events or (due is not None and due <= now):
            self._tell_events(now)
            due = self._losses.next_deadline()
        self._timer.arm(due)
        if self._reading:
            self._timer.arm(receiver.next_deadline())

    def _deliver(self) -> None:
        runs: list[Run] = []
        for tsi, units in self._receiver.take():
            decoder = self._decoders.get(tsi)
            if decoder is None:
                decoder = self._decoders[tsi] = make_decoder(self._address.protocol, self._options)
            runs += decoder.decode(units)
        if not runs:
            return
        self._messages += sum(len(run.bodies) for run in runs)
        assert self._port is not None
        if not self._port.send(runs):
            self._reading = False
            self._watch()

    def _tell_events(self, now: float) -> None:
        events = list(self._receiver.events)
        self._receiver.events.clear()
        for event in events:
            if event.what is What.LOST:
                self._losses.add(event)
                continue
            if event.what is What.GONE:
                self._losses.forget(event.tsi)
                decoder = self._decoders.pop(event.tsi, None)
                self._malformed += decoder.malformed if decoder is not None else 0
            if event.what not in _REPAIRS or self._options.tell_repairs:
                numbers = "" if event.first is None else f"packets from {event.first}"
                if event.last is not None:
                    numbers = f"packets {event.first} to {event.last}"
                detail = ": ".join(filter(None, (numbers, event.detail)))
                self._tell(event.what.value, tsi_text(event.tsi), detail)
        self._losses.handle_timeout(now)

    def _tell(self, what: str, peer: str = "", detail: str = "") -> None:
        self._host.report(EngineEvent(engine=self._name, what=what, peer=peer, detail=detail))

    # ------------------------------------------------------------------ the port's owner

    def on_writable(self) -> None:
        """The pipes have room: read on, and see what was missed."""
        self._reading = True
        self._watch()
        self._on_readable()

    def on_output(self) -> None:
        """A route leads here, which can lead nowhere: drop what it brings, and say so."""
        assert self._port is not None
        while runs := self._port.take():
            self._messages_refused += sum(len(run.bodies) for run in runs)
        if not self._told_refusal:
            self._told_refusal = True
            group = f"{self._place.group}:{self._place.port}"
            detail = f'this engine only receives (mode = "receive"); one with mode = "send" sends to {group}'
            self._tell("refused", detail=detail)

    def on_confirmed(self, count: int) -> None:
        """There is nobody to confirm to."""
