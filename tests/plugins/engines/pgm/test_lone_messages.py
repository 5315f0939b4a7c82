"""Lone messages that go past the thread of an engine: what they leave behind, and leases of groups."""

from __future__ import annotations

import random
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from kernel.contracts.message import batch_of_one
from kernel.hosting import borrower, lease
from kernel.testing.fixtures import KernelFactory, kernel_factory
from kernel.threads import poller
from kernel.topology.plan import EnginePlan, RoutePlan
from kernel.topology.system import Kernel
from plugins.engines.pgm.framing import make_decoder, make_encoder
from plugins.engines.pgm.lone_halves import ReceiverHalf, SourceHalf
from plugins.engines.pgm.options import PgmOptions
from plugins.protocols.pgm.options import ReceiverOptions, SourceOptions
from plugins.protocols.pgm.receiver import Receiver
from plugins.protocols.pgm.source import Source
from tests.interruptions import interrupted
from tests.ports import free_port
from tests.states import differences, dump
from tests.systems import lends

__all__ = ["kernel_factory"]

GROUP = "239.192.77.4"
TSI = b"source\x01\x02"
PORT = 5555
ENOUGH = 400
"""Lone messages, after which a lease has begun."""
TIMEOUT = 10.0
FRAMINGS = ("zmtp1", "backend")


def same(one: object, other: object, leave_out: frozenset[str]) -> None:
    found = differences(dump(one, set(), leave_out), dump(other, set(), leave_out))
    assert not found, found


def _options() -> PgmOptions:
    return PgmOptions(address=f"zmtp1+epgm://lo;{GROUP}:{PORT}", mode="send")


def _lease() -> Any:
    pipe = SimpleNamespace(written=0, taken=0, bytes_taken=0)
    return SimpleNamespace(outgoing=pipe, incoming=pipe, trips=0, received=0, kept=None)


# ---------------------------------------------------------------------- the source

LIMITS = [
    pytest.param({}, id="as they are"),
    pytest.param({"window_packets": 5}, id="few packets"),
    pytest.param({"window_bytes": 1500}, id="few bytes"),
    pytest.param({"rate": 40_000}, id="a low rate"),
]


@pytest.mark.parametrize("limits", LIMITS)
@pytest.mark.parametrize("framing", FRAMINGS)
def test_a_source_sends_the_same_on_both_ways(framing: str, limits: dict[str, int]) -> None:
    options = SourceOptions(window_seconds=1e6, **limits)  # type: ignore[arg-type]
    usual, short = (Source(options, TSI, PORT, bytes(4), bytes(4)) for _ in range(2))
    encoder = make_encoder(framing, _options(), usual.tsdu_size)
    clock, chance, direct = SimpleNamespace(now=1.0), random.Random(3), 0
    wire: Any = SimpleNamespace()
    engine: Any = SimpleNamespace(sent=0, quiet_at=None)
    half = SourceHalf(wire, wire, short, ("", 0), encoder, engine, lambda: clock.now)
    for _ in range(250):
        clock.now += chance.choice((1e-5, 1e-4, 1e-3, 0.011, 0.05))
        # SPMs, at their time.
        assert usual.packets_to_send(clock.now) == short.packets_to_send(clock.now)
        clock.now += 1e-5
        body = chance.randbytes(chance.choice((0, 1, 100, 253, 254, 255, 1000, 1470)))
        usual.send(encoder.encode([batch_of_one(body)]))
        expected = usual.packets_to_send(clock.now)
        packet = half.encode(body)
        if packet is None:
            short.send(encoder.encode([batch_of_one(body)]))
            assert short.packets_to_send(clock.now) == expected
        else:
            direct += 1
            assert [packet] == expected
            asked = _lease()
            half.note_sent(asked, [len(packet)], len(packet), len(body))
            counted = asked.outgoing
            assert (asked.trips, counted.written, counted.taken, counted.bytes_taken) == (1, 1, 1, len(body))
            assert engine.quiet_at == clock.now
        # Repairs have a share of the rate, which is brought up to date when it is used.
        same(usual, short, frozenset(("_repair_tokens",)))
    assert (direct, engine.sent) == (direct, direct)
    assert direct > 100


# ---------------------------------------------------------------------- the receiver


class OneReceiver:
    """A receiver and its decoders."""

    def __init__(self, framing: str, clock: Any) -> None:
        self.receiver = Receiver(ReceiverOptions(), PORT, bytes(4), seed=1)
        self.decoders: dict[bytes, Any] = {}
        self.engine: Any = SimpleNamespace(messages=0)
        self._framing, self._clock, self._options = framing, clock, _options()

    def naks(self) -> list[bytes]:
        return [packet for _, packet in self.receiver.packets_to_send(self._clock.now)]

    def receive(self, packet: bytes) -> list[bytes]:
        self.receiver.receive([packet], self._clock.now, "somewhere")
        bodies: list[bytes] = []
        for tsi, units in self.receiver.take():
            decoder = self.decoders.setdefault(tsi, make_decoder(self._framing, self._options))
            bodies += [bytes(body) for batch in decoder.decode(units) for body in batch.bodies]
        self.receiver.events.clear()
        return bodies

    def receive_directly(self, packet: bytes) -> list[bytes] | None:
        wire: Any = SimpleNamespace()
        half = ReceiverHalf(
            wire, wire, self.receiver, self.decoders, self.engine, lambda: float(self._clock.now)
        )
        got: list[Any] = [(packet, [], 0, ("somewhere", 1))]
        body, asked = half.decode(got[0]), _lease()
        if body is None:
            return None
        assert half.note_received(asked, got, body)
        assert got == []
        counted = asked.incoming
        assert (asked.trips, asked.received) == (1, 1)
        assert (counted.written, counted.taken, counted.bytes_taken) == (1, 1, len(body))
        return [asked.kept]


@pytest.mark.parametrize("framing", FRAMINGS)
def test_a_receiver_takes_the_same_on_both_ways(framing: str) -> None:
    source = Source(SourceOptions(window_packets=50), TSI, PORT, bytes(4), bytes(4))
    encoder = make_encoder(framing, _options(), source.tsdu_size)
    clock, chance, direct = SimpleNamespace(now=1.0), random.Random(5), 0
    usual, short = (OneReceiver(framing, clock) for _ in range(2))
    for _ in range(250):
        clock.now += chance.choice((1e-4, 1e-3, 0.01, 0.3))
        size = chance.choice((0, 1, 100, 254, 1000, 3000))
        # Mostly one message, and sometimes several in a packet.
        for body in [chance.randbytes(size)] * chance.choice((1, 1, 1, 1, 3)):
            source.send(encoder.encode([batch_of_one(body)]))
        for packet in source.packets_to_send(clock.now):
            if chance.random() < 0.03:
                continue
            expected, got = usual.receive(packet), short.receive_directly(packet)
            direct += got is not None
            assert (short.receive(packet) if got is None else got) == expected
            naks = usual.naks()
            assert short.naks() == naks
            for nak in naks:
                source.receive(nak, clock.now)
            same(
                [usual.receiver, usual.decoders],
                [short.receiver, short.decoders],
                frozenset(("_updated", "_batches", "_taken")),
            )
    assert short.engine.messages == direct
    assert direct > 60


# ---------------------------------------------------------------------- leases


class Group:
    """A kernel with a sender and a receiver of a group, and an application that has a channel to each."""

    def __init__(self, kernels: KernelFactory, framing: str) -> None:
        address = f"{framing}+epgm://lo;{GROUP}:{free_port()}"
        options = {"address": address, "report_repairs": True}
        self.kernel: Kernel = kernels(
            EnginePlan(name="out", kind="pgm", options={**options, "mode": "send"}),
            EnginePlan(name="in", kind="pgm", options={**options, "mode": "receive"}),
            EnginePlan(name="from", kind="native"),
            EnginePlan(name="to", kind="native"),
            RoutePlan(source="from", targets=("out",)),
            RoutePlan(source="in", targets=("to",)),
        )
        self.source, self.target = self.kernel.open("from"), self.kernel.open("to")

    def pass_on(self, body: bytes) -> None:
        self.source.send(body)
        assert bytes(self.target.receive(TIMEOUT)) == body

    def lend(self) -> tuple[Any, Any]:
        """Exchange messages until both channels have a lease; return them."""
        self.target._borrower.after = 8
        for number in range(50 * ENOUGH):
            self.pass_on(b"lend %d" % number)
            sends, receives = self.source._direct, self.target.leased
            if sends is not None and sends.active and receives is not None and receives.active:
                return sends, receives
        raise AssertionError("no lease")


@pytest.fixture(params=FRAMINGS)
def group(
    request: pytest.FixtureRequest, kernel_factory: KernelFactory, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Group]:
    # Here a message comes back at once, and the next one is sent.
    monkeypatch.setattr(lease, "_APART", 5e-6)
    # Leases that end soon are not offered less often.
    monkeypatch.setattr(borrower, "LEAST_OFTEN", 8)
    made = Group(kernel_factory, request.param)
    yield made
    made.source.close()
    made.target.close()


@lends
def test_lone_messages_pass_without_the_poll_thread(group: Group) -> None:
    # A lease may end at any time, so it is tried more than once.
    for _ in range(20):
        sends, receives = group.lend()
        before = min(sends.trips, receives.trips)
        for number in range(50):
            group.pass_on(b"%d" % number)
        if min(sends.trips, receives.trips) >= before + 10:
            return
    raise AssertionError("each time some other way was taken")


@lends
def test_a_batch_keeps_its_order_behind_lone_messages(group: Group) -> None:
    group.lend()
    bodies = [b"%d" % number for number in range(1000)]
    group.source.send(b"first")
    group.source.send_many(list(bodies))
    group.source.send(b"last")
    got: list[bytes] = []
    while len(got) < len(bodies) + 2:
        got += map(bytes, group.target.receive_many(timeout=TIMEOUT))
    assert got == [b"first", *bodies, b"last"]


@lends
def test_many_messages_one_after_another_end_the_lease(group: Group) -> None:
    sends, _ = group.lend()
    bodies = [b"%d" % number for number in range(2000)]
    for body in bodies:
        group.source.send(body)
    got: list[bytes] = []
    while len(got) < len(bodies):
        got += map(bytes, group.target.receive_many(timeout=TIMEOUT))
    assert got == bodies
    assert not sends.active
    group.pass_on(b"on")


def _lose_one(sends: Any) -> None:
    """Let the system say that it has taken the next message, and lose that."""
    send = sends._send

    def lose(data: bytes, *_: Any) -> int:
        sends._send = send
        return len(data)

    sends._send = lose


@lends
def test_what_was_lost_is_sent_again(group: Group) -> None:
    # The next message shows the loss of the first one, and a heartbeat that of the last one.
    for last in (False, True):
        sends, _ = group.lend()
        _lose_one(sends)
        bodies = [b"lost"] if last else [b"lost", b"shows it"]
        for body in bodies:
            group.source.send(body)
        assert [bytes(group.target.receive(TIMEOUT)) for _ in bodies] == bodies
    counters = {each.name: each.counters for each in group.kernel.statistics().engines}
    assert counters["out"]["repairs"] >= 1


@lends
def test_messages_are_counted(group: Group) -> None:
    group.lend()
    for _ in range(10):
        group.pass_on(b"ten")
    statistics = group.kernel.statistics()
    counters = {each.name: each.counters for each in statistics.engines}
    came = counters["in"]["messages_in"]
    assert came == counters["out"]["messages_out"]
    assert [(pipe.depth, pipe.written, pipe.taken) for pipe in statistics.pipes] == [(0, came, came)] * 2


@lends
def test_a_closed_channel_gives_its_lease_back(group: Group) -> None:
    sends, receives = group.lend()
    group.source.close()
    group.target.close()
    group.source, group.target = group.kernel.open("from"), group.kernel.open("to")
    group.pass_on(b"on")
    assert not sends.active
    assert not receives.active


@lends
@pytest.mark.slow
def test_a_handler_that_raises_anywhere_loses_nothing_and_repeats_nothing(group: Group) -> None:
    places: set[str] = set()
    for which in ("send", "receive"):
        at = 0
        while True:
            group.lend()
            mine, marker = b"%s %d" % (which.encode(), at), b"marker %d" % at
            if which == "send":
                where, _ = interrupted(lambda: group.source.send(mine), at)  # noqa: B023 - called at once
                expected = [[mine, marker], [marker]]
                answer = None
            else:
                group.source.send(mine)
                where, answer = interrupted(lambda: group.target.receive(TIMEOUT), at)
                expected = [[mine, marker]]
            got = [] if answer is None else [bytes(answer)]
            group.source.send(marker)
            while not got or got[-1] != marker:
                got.append(bytes(group.target.receive(TIMEOUT)))
            assert got in expected, where
            if not where:
                break
            places.add(where)
            at += 1
    assert {place.partition(":")[0] for place in places} >= {"send", "encode", "receive", "decode"}
    # No packet was left out, or numbered twice: there was nothing to repair.
    counters = {each.name: each.counters for each in group.kernel.statistics().engines}
    assert (counters["out"]["repairs"], counters["in"]["gaps"], counters["in"]["duplicates"]) == (0, 0, 0)


@lends
@pytest.mark.slow
def test_a_handler_that_waits_anywhere_while_the_leases_are_ended_loses_nothing(
    group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(poller, "TURN_TIMEOUT", 0.005)
    places: set[str] = set()
    for which in ("send", "receive"):
        at = 0
        while True:
            leases = group.lend()

            def end_and_wait() -> None:
                # As the look of the other thread does when its lock is not valid any more.
                for each in leases:  # noqa: B023 - called at once
                    each._to_connection(each.end)
                group.kernel.inspect("connections")

            mine = b"%s %d" % (which.encode(), at)
            if which == "send":
                where, _ = interrupted(lambda: group.source.send(mine), at, end_and_wait)  # noqa: B023
                got = group.target.receive(TIMEOUT)
            else:
                group.source.send(mine)
                where, got = interrupted(lambda: group.target.receive(TIMEOUT), at, end_and_wait)
            assert bytes(got) == mine, where
            group.pass_on(b"after %d" % at)
            if not where:
                break
            places.add(where)
            at += 1
    assert {place.partition(":")[0] for place in places} >= {"send", "encode", "receive", "decode"}
    counters = {each.name: each.counters for each in group.kernel.statistics().engines}
    assert (counters["out"]["repairs"], counters["in"]["gaps"], counters["in"]["duplicates"]) == (0, 0, 0)
