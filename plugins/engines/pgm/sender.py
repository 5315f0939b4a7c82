"""The sending side: a PGM source between a port and two sockets."""

from __future__ import annotations

import os
from typing import Any

import trio

from kernel.contracts.engine import EngineEvent, Host, Port
from kernel.contracts.kinds import EngineSetup
from kernel.hosting.datagram_wire import DatagramWire
from kernel.hosting.interfaces import find_interface
from kernel.hosting.lazy_timer import LazyTimer
from plugins.engines.pgm.carriage import make_encoder
from plugins.engines.pgm.place import parse_pgm_address
from plugins.engines.pgm.sockets import Sockets
from plugins.protocols.pgm.packets import tsi_text
from plugins.protocols.pgm.source import Source

BATCH_BYTES = 256 * 1024
"""About how many bytes are taken from the pipes at once; the next are taken when these have gone."""
READS_A_TURN = 64


class PgmSender:
    """Takes what routes bring, and sends it to the group."""

    def __init__(self, setup: EngineSetup) -> None:
        self._name = setup.name
        self._options = setup.options
        self._address, self._place = parse_pgm_address(setup.options.address)
        self._port: Port | None = None
        self._wires: list[DatagramWire] = []
        self._source: Source | None = None
        self._writing = False
        self._body_size = 128
        self._sent = 0
        self._unconfirmed = 0
        self._dropped = 0
        self._quiet_at: float | None = None

    async def run(self, host: Host, *, task_status: trio.TaskStatus[str]) -> None:
        """Send until cancelled; then say good-bye."""
        self._host = host
        self._timer = LazyTimer(host, self._work)
        try:
            source = self._open()
            self._port = host.port(self._name, self)
            for wire in self._wires:
                host.poller.watch(wire.fileno(), readable=self._readable(wire), writable=None)
            task_status.started(f"{self._address} as {tsi_text(source.tsi)}")
            self._work()
            await trio.sleep_forever()
        finally:
            self._close()

    def pending(self) -> bool:
        """Whether something is unsent, or was sent so lately that somebody may still ask for it."""
        if self._source is None:
            return False
        if (self._port is not None and self._port.has_input()) or self._source.queued or self._writing:
            return True
        return self._quiet_at is not None and self._host.now() < self._quiet_at + self._options.linger

    def statistics(self) -> dict[str, Any]:
        """What was sent, and what was asked for."""
        figures: dict[str, Any] = {"messages_out": self._sent}
        source = self._source
        if source is not None:
            figures.update(vars(source.statistics))
            figures["window_packets"] = (source.lead - source.trail + 1) & 0xFFFFFFFF
            figures["packets_refused"] = sum(wire.dropped for wire in self._wires)
        return figures

    def _open(self) -> Source:
        options, place = self._options, self._place
        interface = find_interface(place.interface, place.group)
        sockets = Sockets(options, place, interface, raw=self._address.transport == "pgm")
        self._wires.append(sockets.unicast(place.port))
        self._wires.append(sockets.group(upstream_only=True))
        for warning in sockets.warnings:
            self._host.report(EngineEvent(engine=self._name, what="warning", detail=warning))
        self._group = sockets.address_of(None)
        identifier = bytes.fromhex(options.gsi) or os.urandom(6)
        self._source = source = Source(
            options.source,
            identifier + os.urandom(2),
            place.port,
            interface.address.packed,
            place.group.packed,
            packet_size=sockets.packet_size,
        )
        self._encoder = make_encoder(self._address.protocol, options, source.tsdu_size)
        return source

    def _close(self) -> None:
        if self._source is not None and self._port is not None:
            self._wires[0].send(self._source.close(), self._group)
        for wire in self._wires:
            self._host.poller.watch(wire.fileno(), readable=None, writable=None)
            wire.close()

    # ------------------------------------------------------------------ to the group

    def on_output(self) -> None:
        """The pipes have something."""
        if self._source is not None and not self._source.queued:
            self._work()

    def _work(self) -> None:
        """Send what may go now, and see when there will be more."""
        source, port = self._source, self._port
        assert source is not None
        assert port is not None
        if not self._writing:
            if not source.queued:
                self._take(source, port)
            packets = source.packets_to_send(self._host.now())
            if packets:
                self._write(self._wires[0].send(packets, self._group))
                if self._wires[0].dropped != self._dropped:
                    self._tell_dropped(self._wires[0])
            if not source.queued:
                self._all_sent(port)
        self._timer.arm(source.next_deadline())
        if port.has_input() and not source.queued and not self._writing:
            self._host.soon(self._work)

    def _take(self, source: Source, port: Port) -> None:
        runs = port.take(BATCH_BYTES // self._body_size or 1)
        if not runs:
            return
        count = sum(len(run.bodies) for run in runs)
        self._body_size = sum(run.size for run in runs) // count + 1
        self._sent += count
        self._unconfirmed += count
        source.send(self._encoder.encode(runs))

    def _all_sent(self, port: Port) -> None:
        """Everything taken is with the operating system: this is all the confirmation that there is in PGM."""
        if self._unconfirmed:
            count, self._unconfirmed = self._unconfirmed, 0
            self._quiet_at = self._host.now()
            if port.must_confirm:
                port.confirm(count)

    def _write(self, done: bool) -> None:
        if done == self._writing:
            self._writing = not done
            wire = self._wires[0]
            writable = None if done else self._on_writable_wire
            self._host.poller.watch(wire.fileno(), readable=self._readable(wire), writable=writable)

    def _tell_dropped(self, wire: DatagramWire) -> None:
        """The system does not take packets: an operator has to know, if not of each."""
        if self._dropped == 0:
            group = f"{self._place.group}:{self._place.port}"
            detail = (
                f"the system does not take packets for {group}: {wire.refusal}; packets_refused counts them"
            )
            self._host.report(EngineEvent(engine=self._name, what="refused", detail=detail))
        self._dropped = wire.dropped

    def _on_writable_wire(self) -> None:
        self._write(self._wires[0].flush())
        if not self._writing:
            self._work()

    # ------------------------------------------------------------------ from receivers

    def _readable(self, wire: DatagramWire) -> Any:
        return lambda: self._on_readable(wire)

    def _on_readable(self, wire: DatagramWire) -> None:
        source = self._source
        assert source is not None
        now = self._host.now()
        for datagrams, _ in wire.receive(READS_A_TURN):
            for datagram in datagrams:
                source.receive(datagram, now)
        self._work()

    # ------------------------------------------------------------------ the port's owner

    def on_writable(self) -> None:
        """Nothing is ever sent to the port."""

    def on_confirmed(self, count: int) -> None:
        """Nothing is ever sent to the port."""
