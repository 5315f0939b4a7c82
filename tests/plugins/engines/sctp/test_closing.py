"""How engines end their associations: by the measured round trip, within the time that they may linger."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from kernel.testing.memory_wire import SimulatedHost
from plugins.engines.sctp.conversation import Conversation, Role
from plugins.engines.sctp.opening import CLOSE_TIMEOUT
from plugins.engines.sctp.options import SctpEngineOptions
from plugins.protocols.sctp import chunks, packets
from plugins.protocols.sctp.association import Association
from plugins.protocols.sctp.chunks import Type
from plugins.protocols.sctp.endpoint import Endpoint
from plugins.protocols.sctp.events import Event, What
from tests.plugins.engines.sctp.simulated import STEP, Simulation

LINGERS = 5.0


def kinds(packet: bytes) -> set[int]:
    return {chunks.kind_of(chunk) for chunk in packets.decode(packet).chunks}


def loses(kind: Type, count: int) -> Callable[[bytes], bool]:
    """Lose the first packets that have such a chunk."""
    left = [count]

    def is_lost(packet: bytes) -> bool:
        if kind in kinds(packet) and left[0]:
            left[0] -= 1
            return True
        return False

    return is_lost


def simulate(
    patch: pytest.MonkeyPatch, delay: float, lingers: float, course: Callable[[Simulation], Awaitable[None]]
) -> Simulation:
    """Connect two engines over a path of that delay, and let a course run."""
    clock = MockClock()

    async def main() -> Simulation:
        simulation = Simulation(clock, delay, patch)
        simulation.host.lingers = lingers
        async with trio.open_nursery() as nursery:
            await simulation.start(nursery)
            # So that round trips are measured, and not only assumed.
            await simulation.run(10.0)
            await course(simulation)
            await simulation.finish()
        return simulation

    return trio.run(main, clock=clock)


def test_a_shutdown_has_the_time_that_its_round_trips_take(monkeypatch: pytest.MonkeyPatch) -> None:
    async def course(simulation: Simulation) -> None:
        simulation.end("dial")
        await simulation.run_until(lambda: "dial" in simulation.gone)
        await simulation.run_until(lambda: bool(simulation.told("disconnected")))

    told = simulate(monkeypatch, 0.4, LINGERS, course).told("disconnected")
    assert [event.detail for event in told] == ["closed by the peer"]


@pytest.mark.parametrize("kind", [Type.SHUTDOWN, Type.SHUTDOWN_ACK, Type.SHUTDOWN_COMPLETE])
def test_what_is_lost_of_a_shutdown_is_repeated(kind: Type, monkeypatch: pytest.MonkeyPatch) -> None:
    async def course(simulation: Simulation) -> None:
        simulation.air.is_lost = loses(kind, 1)
        simulation.end("dial")
        await simulation.run_until(lambda: "dial" in simulation.gone)
        await simulation.run_until(lambda: bool(simulation.told("disconnected")))

    told = simulate(monkeypatch, 0.05, LINGERS, course).told("disconnected")
    assert [event.detail for event in told] == ["closed by the peer"]


@pytest.mark.parametrize("lingers", [0.0, 1.0, 3600.0])
def test_a_peer_that_is_gone_is_waited_for_no_longer_than_the_engine_may_linger(
    lingers: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def course(simulation: Simulation) -> None:
        simulation.air.is_lost = lambda packet: True
        simulation.end("dial")
        took = await simulation.run_until(lambda: "dial" in simulation.gone)
        # At the default of 200 ms for ``rto_min`` a dead peer costs some seconds, and not an hour.
        assert took <= max(min(lingers, 5.0), CLOSE_TIMEOUT) + 2 * STEP

    simulate(monkeypatch, 0.01, lingers, course)


def test_the_sockets_of_an_engine_that_may_not_linger_close_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async def course(simulation: Simulation) -> None:
        simulation.end("dial")
        took = await simulation.run_until(lambda: "dial" in simulation.gone)
        # SHUTDOWN and SHUTDOWN ACK.
        assert took <= 2 * 0.01 + 4 * STEP

    simulate(monkeypatch, 0.01, 0.0, course)


class Told(Role):
    """Keeps the reason of the end."""

    dials = False

    def __init__(self) -> None:
        self.reasons: list[str] = []

    def on_end(self, conversation: Conversation, reason: str) -> None:
        self.reasons.append(reason)


class Slow:
    """An association whose peer shuts down, and acknowledges 1,000 bytes a second of what it lacks."""

    peer_port = 5000
    paths = SimpleNamespace(all=[SimpleNamespace(address=bytes((127, 0, 0, 1)))])

    def __init__(self, host: SimulatedHost, left: int) -> None:
        self.events = [Event(what=What.SHUTTING_DOWN)]
        self._host, self._left = host, left

    def receive(self, now: float) -> list[Any]:
        return []

    def shutdown_time(self) -> float:
        return 2.0

    def buffered(self) -> int:
        return max(self._left - int(1000 * self._host.now()), 0)

    def abort(self, reason: str = "") -> None:
        """Nobody hears it."""


def test_a_shutdown_of_the_peer_is_waited_for_while_it_acknowledges_what_it_lacks() -> None:
    host, role = SimulatedHost(), Told()
    association: Any = Slow(host, 20_000)
    options = SctpEngineOptions(address="plain+sctp://127.0.0.1:5000")
    conversation = Conversation(
        host,
        "net",
        options,
        association,
        role,
        plain=True,
        flush=lambda: None,
        forget=lambda: None,
        lend=lambda *_: None,
    )
    conversation.progress(host.now())
    host.run(until=20.0)
    assert role.reasons == []
    host.run(until=25.0)
    assert role.reasons == ["the peer's shutdown was not completed within 2.0 s"]


def test_a_timer_looks_at_the_associations_that_are_due(monkeypatch: pytest.MonkeyPatch) -> None:
    """A listener may have thousands, each with heartbeats: all of them were looked at for each."""
    looks = 0

    def associations(self: Endpoint) -> list[Association]:
        nonlocal looks
        looks += 1
        return list(self._associations)

    monkeypatch.setattr(Endpoint, "associations", property(associations))

    async def course(simulation: Simulation) -> None:
        # Heartbeats, and then no answer to them: timers tell it.
        simulation.air.is_lost = lambda packet: True
        await simulation.run_until(lambda: len(simulation.told("path down")) == 2, 120.0)

    simulate(monkeypatch, 0.01, LINGERS, course)
    assert looks == 0
