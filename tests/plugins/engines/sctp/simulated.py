"""Engines of SCTP on a simulated host: datagrams travel through memory, on a clock that only ``run`` moves."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from kernel.contracts.engine import EngineEvent
from kernel.contracts.kinds import EngineSetup
from kernel.hosting.datagram_wire import Address
from kernel.testing.memory_wire import SimulatedHost
from plugins.engines.sctp import opening
from plugins.engines.sctp.dialler import SctpDialler
from plugins.engines.sctp.listener import SctpListener
from plugins.engines.sctp.options import SctpEngineOptions
from plugins.engines.sctp.transport import unpacked

STEP = 0.01
"""Seconds between two looks at what trio's tasks do."""

_numbers = itertools.count(2_000_000)


class Air:
    """What is between the sockets: a delay, and packets that are lost."""

    def __init__(self, host: SimulatedHost, delay: float) -> None:
        self.host = host
        self.delay = delay
        self.is_lost: Callable[[bytes], bool] = lambda packet: False
        self.sockets: dict[int, MemoryDatagrams] = {}
        self.free_port = itertools.count(40_000)

    def carry(self, packet: bytes, source: int, target: int) -> None:
        if not self.is_lost(packet):
            self.host.after(self.delay, partial(self._arrive, packet, source, target))

    def _arrive(self, packet: bytes, source: int, target: int) -> None:
        if target in self.sockets:
            self.sockets[target].arrived.append((packet, source))


class MemoryDatagrams:
    """A UDP socket of 127.0.0.1.  Keeps the contract of ``DatagramWire``."""

    dropped, refusal, refused = 0, "", False

    def __init__(self, air: Air, port: int) -> None:
        self.arrived: list[tuple[bytes, int]] = []
        self._air, self._port, self._number = air, port, next(_numbers)
        air.sockets[port] = self
        air.host._wires[self._number] = self  # type: ignore[assignment]  # has what the host asks for

    def fileno(self) -> int:
        return self._number

    def ready(self) -> tuple[bool, bool]:
        return bool(self.arrived), True

    def receive(self, calls: int) -> list[tuple[list[bytes], Address]]:
        arrived, self.arrived = self.arrived, []
        return [([packet], ("127.0.0.1", source)) for packet, source in arrived]

    def send(self, packets: Sequence[bytes], target: Address) -> bool:
        for packet in packets:
            self._air.carry(packet, self._port, target[1])
        return True

    def probe(self, packet: bytes, target: Address) -> None:
        """Probes are lost."""

    def close(self) -> None:
        self._air.sockets.pop(self._port, None)
        self._air.host._wires.pop(self._number, None)


class MemoryTransport:
    """Keeps the contract of ``Transport``."""

    warnings: tuple[str, ...] = ()

    def __init__(self, air: Air, udp_port: int) -> None:
        self.udp_port = udp_port or next(air.free_port)
        self.wires = [MemoryDatagrams(air, self.udp_port)]
        self.addresses = ()

    def wire_to(self, address: bytes) -> MemoryDatagrams:
        return self.wires[0]

    def socket_address(self, address: bytes, udp_port: int) -> Address:
        return unpacked(address), udp_port

    def close(self) -> None:
        for wire in self.wires:
            wire.close()


def _no_protocol(*_: Any) -> Any:
    raise AssertionError("no protocol is asked for")


class Simulation:
    """A listener and a dialler, which are tasks of trio's."""

    def __init__(self, clock: MockClock, delay: float, patch: pytest.MonkeyPatch) -> None:
        self.host = SimulatedHost()
        self.air = Air(self.host, delay)
        self._clock = clock
        self._scopes: dict[str, trio.CancelScope] = {}
        self.gone: set[str] = set()

        def transport(hosts: Any, udp_port: int, **_: Any) -> MemoryTransport:
            return MemoryTransport(self.air, udp_port)

        patch.setattr(opening, "Transport", transport)

    async def start(self, nursery: trio.Nursery, **options: Any) -> None:
        """Start both, and wait until they are connected."""
        address = "backend+sctp://127.0.0.1:5000"
        for mode, kind in (("listen", SctpListener), ("dial", SctpDialler)):
            chosen = SctpEngineOptions(address=address, mode=mode, **options)  # type: ignore[arg-type]
            setup = EngineSetup(name=mode, options=chosen, make_protocol=_no_protocol)
            nursery.start_soon(self._live, kind(setup), mode)
        await self.run_until(lambda: len(self.told("connected")) == 2)

    async def _live(self, engine: Any, name: str) -> None:
        with trio.CancelScope() as self._scopes[name]:
            await engine.run(self.host, task_status=trio.TASK_STATUS_IGNORED)
        self.gone.add(name)

    def end(self, name: str) -> None:
        """Cancel an engine, as its thread does when it ends."""
        self._scopes[name].cancel()

    async def finish(self) -> None:
        """End what still lives: trio's own clock does not move by itself."""
        self.host.lingers = 0.0
        for name in self._scopes:
            self.end(name)
        await self.run_until(lambda: self.gone == self._scopes.keys())

    def told(self, what: str) -> list[EngineEvent]:
        return [event for event in self.host.events if event.what == what]

    async def run_until(self, done: Callable[[], bool], most: float = 60.0) -> float:
        """Let time pass until ``done()``; return the seconds that it took."""
        begun = self.host.now()
        while not done():
            assert self.host.now() < begun + most, f"not done after {most} s"
            await wait_all_tasks_blocked()
            self.host.run(self.host.now() + STEP)
            self._clock.jump(STEP)
        return self.host.now() - begun

    async def run(self, seconds: float) -> None:
        """Let so much time pass."""
        end = self.host.now() + seconds
        await self.run_until(lambda: self.host.now() >= end)
