"""Against usrsctp, in both roles, over a wire that loses and reorders, on a virtual clock of whole milliseconds."""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from plugins.protocols.sctp.association import Association
from plugins.protocols.sctp.endpoint import Endpoint
from plugins.protocols.sctp.events import Event, Message, What
from plugins.protocols.sctp.options import SctpOptions
from plugins.protocols.sctp.schedule import Terms
from tests.plugins.protocols.sctp import usrsctp_peer
from tests.plugins.protocols.sctp.usrsctp_peer import Peer, Received
from tests.seeds import many

pytestmark = pytest.mark.peer("usrsctp")

OURS, THEIRS = 6001, 6000
ADDRESS = b"peer"
STEP = 0.01
"""usrsctp's own clock ticks so."""
DELAY = 0.02


class Wire:
    """One of ours, one of theirs, and what is between."""

    def __init__(self, peer: Peer, seed: int, loss: float, *, interleaving: bool = False) -> None:
        self.chance = random.Random(seed)
        self.peer = peer
        self.loss = loss
        self.now = 50.0
        options = SctpOptions(interleaving=interleaving, association_tries=50, init_tries=50, path_tries=50)
        self.endpoint = Endpoint(options, OURS, self.chance.randbytes(32))
        self.association: Association | None = None
        self.messages: list[Message] = []
        self.theirs: list[Received] = []
        self.events: list[Event] = []
        self._order = itertools.count()
        self._under_way: list[tuple[float, int, Callable[[], None]]] = []

    def told(self, what: What) -> bool:
        return any(event.what is what for event in self.events)

    def run_until(self, done: Callable[[], bool], most: float = 3000.0) -> None:
        end = self.now + most
        while not done():
            assert self.now < end, "not done in time"
            self._pump()
            self.now += STEP
            self.peer.pass_time(round(STEP * 1000))

    def run(self, seconds: float) -> None:
        end = self.now + seconds
        self.run_until(lambda: self.now >= end)

    def _pump(self) -> None:
        self.endpoint.handle_timeout(self.now)
        while self._under_way and self._under_way[0][0] <= self.now:
            heapq.heappop(self._under_way)[2]()
            self._collect()
        for _, packet in self.endpoint.data_to_send(self.now):
            self._carry(lambda packet=packet: self.peer.packet_in(packet))  # type: ignore[misc]
        sent, self.peer.sent[:] = list(self.peer.sent), []
        for packet in sent:
            self._carry(lambda packet=packet: self._arrive(packet))  # type: ignore[misc]
        self._collect()

    def _carry(self, deliver: Callable[[], None]) -> None:
        if self.chance.random() >= self.loss:
            late = self.chance.random() * DELAY if self.loss else 0.0
            heapq.heappush(self._under_way, (self.now + DELAY + late, next(self._order), deliver))

    def _arrive(self, packet: bytes) -> None:
        association = self.endpoint.receive_data(packet, ADDRESS, self.now)
        self.association = association or self.association

    def _collect(self) -> None:
        if self.association is not None:
            self.messages += self.association.receive(self.now)
            self.events += self.association.events
            self.association.events.clear()
        self.theirs += self.peer.receive()


def connected(peer: Peer, role: str, seed: int, loss: float, **more: Any) -> Wire:
    wire = Wire(peer, seed, loss, **more)
    if role == "we connect":
        peer.listen()
        wire.association = wire.endpoint.connect([ADDRESS], THEIRS, wire.now)
    else:
        peer.connect(OURS)
    wire.run_until(lambda: wire.told(What.UP))
    return wire


@pytest.fixture(autouse=True)
def the_same_each_time() -> None:
    usrsctp_peer.stack().measure_by_passed_time(seed=1)


@pytest.fixture
def peer() -> Iterator[Peer]:
    with usrsctp_peer.peer(THEIRS) as made:
        yield made


ROLES = ("we connect", "they connect")


def exchange(wire: Wire, count: int, sizes: tuple[int, ...]) -> None:
    """Messages both ways on several streams; all must come, in the order of their stream."""
    association = wire.association
    assert association is not None
    sent: dict[int, list[bytes]] = {}
    answered: dict[int, list[bytes]] = {}
    for number in range(count):
        data = number.to_bytes(4, "big") + wire.chance.randbytes(wire.chance.choice(sizes))
        sent.setdefault(number % 5, []).append(data)
        association.send(number % 5, data, protocol=number)
        answered.setdefault(number % 3, []).append(data)
        wire.run_until(lambda number=number, data=data: wire.peer.send(number % 3, data, number))  # type: ignore[misc]
    wire.run_until(lambda: len(wire.theirs) == count and len(wire.messages) == count)
    for stream, expected in sent.items():
        assert [each.data for each in wire.theirs if each.stream == stream] == expected
    for stream, expected in answered.items():
        assert [each.data for each in wire.messages if each.stream == stream] == expected
    assert all(int.from_bytes(each.data[:4], "big") == each.protocol for each in wire.theirs)
    assert all(int.from_bytes(each.data[:4], "big") == each.protocol for each in wire.messages)
    assert wire.endpoint.statistics == type(wire.endpoint.statistics)()
    assert association.violations == 0


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("loss", [0.0, 0.1])
def test_messages_of_all_sizes_go_both_ways(peer: Peer, role: str, loss: float) -> None:
    exchange(connected(peer, role, 7, loss), 60, (0, 100, 1000, 20_000))


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("seed", range(5))
def test_they_close_or_we_do(peer: Peer, role: str, seed: int) -> None:
    wire = connected(peer, role, seed, 0.1 if seed else 0.0)
    association = wire.association
    assert association is not None
    association.send(0, b"last words")
    if seed % 2:
        association.close(wire.now)
    else:
        wire.run_until(lambda: bool(wire.theirs))
        wire.peer.shut_down()
    wire.run_until(lambda: wire.told(What.CLOSED))
    assert [each.data for each in wire.theirs] == [b"last words"]


def test_usrsctp_that_has_restarted_is_taken_for_a_new_peer(peer: Peer) -> None:
    wire = connected(peer, "we connect", 2, 0.0)
    with usrsctp_peer.peer(THEIRS) as again:
        wire.peer = again
        again.connect(OURS)
        wire.run_until(lambda: wire.told(What.RESTARTED))
        assert wire.association is not None
        wire.association.send(0, b"ours")
        wire.run_until(lambda: again.send(0, b"theirs"))
        wire.run_until(lambda: bool(wire.messages and wire.theirs))
        assert len(wire.endpoint.associations) == 1


def test_unordered_messages_are_known_as_such(peer: Peer) -> None:
    wire = connected(peer, "we connect", 1, 0.0)
    assert wire.association is not None
    wire.association.send(1, b"ours", terms=Terms(unordered=True))
    assert wire.peer.send(1, b"theirs", unordered=True)
    wire.run_until(lambda: bool(wire.theirs and wire.messages))
    assert wire.theirs[0].unordered
    assert wire.messages[0].unordered


@pytest.mark.parametrize("seed", range(5))
def test_what_has_expired_is_skipped_by_usrsctp(peer: Peer, seed: int) -> None:
    wire = connected(peer, "we connect", seed, 0.3)
    association = wire.association
    assert association is not None
    for number in range(100):
        association.send(number % 3, b"%d" % number * 300, terms=Terms(retransmissions=0))
    association.send(0, b"the end")
    association.send(1, b"the end")
    association.send(2, b"the end")
    wire.run_until(lambda: sum(each.data == b"the end" for each in wire.theirs) == 3)
    numbers = [int(each.data[: len(each.data) // 300]) for each in wire.theirs if each.data != b"the end"]
    assert 20 < len(numbers) < 100
    assert association.sender.outstanding.abandoned_count >= 100 - len(numbers)
    for stream in range(3):
        of_stream = [number for number in numbers if number % 3 == stream]
        assert of_stream == sorted(of_stream)


COURSES = [(0.0, 0), *[(0.1, seed) for seed in range(1, 6)]]
"""Losses, and the seeds that decide what is lost."""


@pytest.mark.parametrize("loss, seed", COURSES)
def test_streams_are_reset_by_either_side(peer: Peer, loss: float, seed: int) -> None:
    wire = connected(peer, "we connect", seed, loss)
    association = wire.association
    assert association is not None

    def resets(whose: str) -> list[tuple[int, ...]]:
        told = [event for event in wire.events if event.what is What.STREAMS_RESET]
        return [event.streams for event in told if event.detail == whose]

    for round_ in range(3):
        for number in range(5):
            association.send(1, b"ours %d.%d" % (round_, number))
            theirs = b"theirs %d.%d" % (round_, number)
            wire.run_until(lambda theirs=theirs: wire.peer.send(2, theirs))  # type: ignore[misc]
        association.reset_streams(1)
        wire.run_until(lambda: not association.sender.paused)
        wire.run_until(lambda round_=round_: len(wire.messages) == 5 * round_ + 5)  # type: ignore[misc]
        wire.run(5.0)  # it must have been acknowledged, too
        wire.run_until(lambda: wire.peer.reset(2))
        wire.run_until(lambda round_=round_: len(resets("the peer's")) == round_ + 1)  # type: ignore[misc]
    wire.run_until(lambda: len(wire.theirs) == len(wire.messages) == 15)
    assert [each.data for each in wire.theirs] == [b"ours %d.%d" % (r, n) for r in range(3) for n in range(5)]
    assert [each.data for each in wire.messages] == [
        b"theirs %d.%d" % (r, n) for r in range(3) for n in range(5)
    ]
    assert resets("ours") == [(1,)] * 3
    assert resets("the peer's") == [(2,)] * 3


@pytest.mark.parametrize("loss, seed", COURSES)
def test_either_side_asks_the_other_to_reset_its_streams(peer: Peer, loss: float, seed: int) -> None:
    wire = connected(peer, "we connect", seed, loss)
    association = wire.association
    assert association is not None

    def resets(whose: str) -> list[tuple[int, ...]]:
        told = [event for event in wire.events if event.what is What.STREAMS_RESET]
        return [event.streams for event in told if event.detail == whose]

    for round_ in range(1, 4):
        association.send(1, b"ours")
        wire.run_until(lambda: wire.peer.send(2, b"theirs"))
        wire.run_until(lambda round_=round_: len(wire.messages) == round_)  # type: ignore[misc]
        wire.run(5.0)  # it must have been acknowledged, too
        association.reset_streams(2, theirs=True)
        wire.run_until(lambda round_=round_: len(resets("the peer's")) == round_)  # type: ignore[misc]
        wire.run_until(lambda: wire.peer.reset(1, ours=True))
        wire.run_until(lambda round_=round_: len(resets("ours")) == round_)  # type: ignore[misc]
    wire.run_until(lambda: len(wire.theirs) == 3)
    assert resets("the peer's") == [(2,)] * 3
    assert resets("ours") == [(1,)] * 3


@pytest.mark.parametrize("loss, seed", COURSES)
def test_either_side_adds_streams(loss: float, seed: int) -> None:
    with usrsctp_peer.peer(THEIRS, most_of_ours=70) as peer:
        wire = connected(peer, "we connect", seed, loss)
        association = wire.association
        assert association is not None
        assert association.receiver is not None
        association.add_streams(3)
        wire.run_until(lambda: association.sender.streams == 67)
        association.add_streams(4)
        wire.run_until(lambda: any(event.what is What.ADDING_REFUSED for event in wire.events))
        association.send(66, b"on a new one of ours")
        peer.add_streams(2)
        wire.run_until(lambda: association.receiver.streams == 12)
        wire.run_until(lambda: peer.send(11, b"on a new one of theirs"))
        wire.run_until(lambda: bool(wire.theirs and wire.messages))
        assert [message.stream for message in wire.theirs] == [66]
        assert [message.stream for message in wire.messages] == [11]


@pytest.mark.slow
@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("seed", many(0, 20))
def test_many_messages_through_much_loss(peer: Peer, role: str, seed: int) -> None:
    exchange(connected(peer, role, seed, 0.1), 300, (0, 100, 1000, 5000))


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("loss", [0.0, 0.1])
def test_interleaved_messages_go_both_ways(role: str, loss: float) -> None:
    with usrsctp_peer.peer(THEIRS, interleaving=True) as peer:
        wire = connected(peer, role, 11, loss, interleaving=True)
        assert wire.association is not None
        assert wire.association.sender.interleaved
        exchange(wire, 60, (0, 100, 1000, 20_000))
