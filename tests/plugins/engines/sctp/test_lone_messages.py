"""Lone messages that go past the thread of the engine leave behind what they leave on the usual way."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from kernel.contracts.engine import Taken
from kernel.contracts.message import batch_of_one
from kernel.testing.fixtures import KernelFactory
from kernel.testing.memory_wire import SimulatedHost
from plugins.engines.sctp.conversation import Conversation, Role
from plugins.engines.sctp.lone_half import LoneHalf
from plugins.engines.sctp.options import HostedSctp, SctpEngineOptions
from plugins.protocols.sctp.association import Association
from plugins.protocols.sctp.endpoint import Endpoint
from tests.plugins.engines.sctp.plans import dialler, listener
from tests.states import differences, dump
from tests.system.conftest import route
from tests.systems import lends

PORTS = (5000, 6000)
ADDRESSES = (b"\x7f\0\0\1", b"\x7f\0\0\2")
DELAY = 0.001
LONG = 2.0
"""Seconds in which what was lost is sent again."""
OF_THE_USUAL_WAY = frozenset(
    ("_turns", "arrival", "_entry", "_virtual", "touched", "_batches", "_body_size", "_role")
)
"""What the scheduler of streams counts, where a message has to wait; which association was touched since the
last flush; what the decoder found last; how long the last messages were; and this test itself."""


class MemoryPort:
    """The port of a stream, as an application would have it that sends and receives one message at a time."""

    confirms = wants_confirm = False

    def __init__(self) -> None:
        self.waiting: list[bytes] = []
        self.got: list[bytes] = []

    def take(self, most: int = 0) -> Taken:
        if not self.waiting:
            return Taken([], 0, None)
        return Taken([batch_of_one(self.waiting.pop(0))], 1, None)

    def take_again(self) -> Taken:
        return Taken([], 0, None)

    def has_input(self) -> bool:
        return bool(self.waiting)

    def send(self, batches: Any) -> bool:
        self.got += [bytes(body) for batch in batches for body in batch.bodies]
        return True


class OneSide(Role):
    """An endpoint, its conversation, and the half that it lends."""

    def __init__(self, at: int, clock: SimulatedHost, options: SctpEngineOptions, *, plain: bool) -> None:
        self.dials = at == 0
        self.at, self.clock, self.options, self.plain = at, clock, options, plain
        self.packets_in = self.packets_out = self.bytes_in = self.bytes_out = 0
        sctp = msgspec.structs.replace(options.sctp, streams_out=options.streams)
        self.endpoint = Endpoint(sctp, PORTS[at], bytes((at,)) * 32, listens=at == 1)
        self.conversation: Conversation | None = None
        self.sent: list[bytes] = []
        self._ports: list[MemoryPort] = []
        self.half: LoneHalf | None = None

    def open_port(self, conversation: Conversation, index: int) -> Any:
        self._ports.append(MemoryPort())
        return self._ports[-1]

    def on_open(self, conversation: Conversation) -> None:
        """They are looked at afterwards."""

    def on_end(self, conversation: Conversation, reason: str) -> None:
        raise AssertionError(reason)

    @property
    def association(self) -> Association:
        (only,) = self.endpoint.associations
        return only

    def connect(self) -> None:
        self.converse(self.endpoint.connect([ADDRESSES[1]], PORTS[1], self.clock.now()))
        self.flush()

    def converse(self, association: Association) -> None:
        host: Any = self.clock
        self.conversation = Conversation(
            host,
            "net",
            self.options,
            association,
            self,
            plain=self.plain,
            flush=self.flush,
            forget=lambda: None,
            lend=lambda *_: None,
        )

    def flush(self) -> None:
        made = [packet for _, packet in self.endpoint.data_to_send(self.clock.now())]
        self.packets_out += len(made)
        self.bytes_out += sum(map(len, made))
        self.sent += made

    def take_sent(self) -> list[bytes]:
        sent, self.sent = self.sent, []
        return sent

    def tick(self) -> None:
        # As a look at the lease, which arms the timer.
        self.endpoint.next_deadline()
        if self.endpoint.handle_timeout(self.clock.now()):
            self.flush()

    # ------------------------------------------------------------------ the usual way

    def receive(self, packet: bytes) -> None:
        self.packets_in += 1
        self.bytes_in += len(packet)
        association = self.endpoint.receive_data(packet, ADDRESSES[1 - self.at], self.clock.now())
        if association is not None:
            if self.conversation is None:
                self.converse(association)
            assert self.conversation is not None
            self.conversation.progress(self.clock.now())
        self.flush()

    def say(self, body: bytes, stream: int) -> None:
        assert self.conversation is not None
        self._ports[stream].waiting.append(body)
        self.conversation.streams[stream].on_output()

    def heard(self) -> list[bytes]:
        heard = [body for port in self._ports for body in port.got]
        for port in self._ports:
            port.got.clear()
        return heard

    # ------------------------------------------------------------------ the short way

    def lend(self, stream: int) -> LoneHalf:
        me: Any = self
        assert self.conversation is not None
        pipes: Any = [SimpleNamespace(written=0, taken=0, bytes_taken=0) for _ in self._ports]
        wire: Any = SimpleNamespace()
        return LoneHalf(
            me,
            self.conversation,
            self.association,
            self.conversation.streams[stream],
            wire,
            wire,
            ("peer", 1),
            pipes,
        )

    def say_directly(self, body: bytes, stream: int) -> bool:
        half, lease = self.lend(stream), _lease()
        packet = half.encode(body)
        if packet is None:
            return False
        half.note_sent(lease, [len(packet)], len(packet), len(body))
        counted = lease.outgoing
        assert (lease.trips, lease.received) == (1, 0)
        assert (counted.written, counted.taken, counted.bytes_taken) == (1, 1, len(body))
        self.sent.append(packet)
        return True

    def receive_directly(self, packet: bytes, stream: int) -> bytes | None:
        half, lease = self.lend(stream), _lease()
        got: list[Any] = [(packet, [], 0, ("peer", 1))]
        body = half.decode(got[0])
        if body is None:
            return None
        assert half.note_received(lease, got, body)
        assert (lease.trips, lease.received) == (1, 1)
        # Of the stream on which it came.
        counted = [(pipe.written, pipe.taken, pipe.bytes_taken) for pipe in half._pipes if pipe.written]
        assert counted == [(1, 1, len(body))]
        assert (got, lease.kept) == ([], body)
        return bytes(body)


def _lease() -> Any:
    pipe = SimpleNamespace(written=0, taken=0, bytes_taken=0)
    return SimpleNamespace(outgoing=pipe, incoming=pipe, trips=0, received=0, kept=None)


class World:
    """A dialler and a listener, which are connected, and have greeted each other."""

    def __init__(self, *, plain: bool, interleaving: bool) -> None:
        self.clock = SimulatedHost()
        sctp = HostedSctp(interleaving=interleaving, packet_size_max=1200, heartbeat=1e6)
        options = SctpEngineOptions(address="plain+sctp://127.0.0.1:5000", streams=2, sctp=sctp)
        self.sides = [OneSide(at, self.clock, options, plain=plain) for at in range(2)]
        self.sides[0].connect()
        for _ in range(20):
            self.wait(DELAY)
            for side, other in (self.sides, self.sides[::-1]):
                for packet in side.take_sent():
                    other.receive(packet)
        self.wait(1.0)
        assert all(side.conversation is not None and side.conversation.streams for side in self.sides)

    def wait(self, seconds: float) -> None:
        """Let time pass, and timers fire."""
        self.clock.run(until=self.clock.now() + seconds)
        for side in self.sides:
            side.tick()

    def state(self) -> Any:
        seen: set[int] = set()
        return [dump(side.conversation, seen, OF_THE_USUAL_WAY) for side in self.sides] + [
            (side.packets_in, side.packets_out, side.bytes_in, side.bytes_out) for side in self.sides
        ]


class Both:
    """Two worlds in which the same happens: one takes the usual way, and the other one the short way if it can."""

    def __init__(self, *, plain: bool, interleaving: bool) -> None:
        self.usual, self.short = (World(plain=plain, interleaving=interleaving) for _ in range(2))
        self.worlds = (self.usual, self.short)
        self.direct = 0

    def disturb(self) -> None:
        """Change what would stay as it is: windows, as if other messages had been there, and slow start."""
        for side in (*self.usual.sides, *self.short.sides):
            association = side.association
            assert association.receiver is not None
            association.sender.peer_window -= 1
            association.receiver.told_window -= 1
            association.paths.all[0].ssthresh = association.paths.all[0].cwnd - 1

    def wait(self, seconds: float) -> None:
        for world in self.worlds:
            world.wait(seconds)

    def same(self) -> None:
        found = differences(self.usual.state(), self.short.state())
        assert not found, found

    def say(self, at: int, body: bytes, stream: int, *, directly: bool) -> None:
        self.usual.sides[at].say(body, stream)
        side = self.short.sides[at]
        if directly and side.say_directly(body, stream):
            self.direct += 1
        else:
            side.say(body, stream)

    def lose(self) -> None:
        for at in range(2):
            assert self.usual.sides[at].take_sent() == self.short.sides[at].take_sent()

    def carry(self, stream: int) -> list[bytes]:
        """Let all packets arrive; return what was heard."""
        heard: list[bytes] = []
        for at in range(2):
            here: list[bytes] = []
            packets = self.usual.sides[at].take_sent()
            assert packets == self.short.sides[at].take_sent()
            usual, short = (world.sides[1 - at] for world in self.worlds)
            for packet in packets:
                usual.receive(packet)
                body = short.receive_directly(packet, stream)
                if body is None:
                    short.receive(packet)
                else:
                    self.direct += 1
                    here.append(body)
            here += short.heard()
            assert sorted(usual.heard()) == sorted(here)
            heard += here
        return heard


@pytest.mark.parametrize("plain", [False, True], ids=["backend", "plain"])
@pytest.mark.parametrize("interleaving", [False, True], ids=["DATA", "I-DATA"])
def test_both_ways_send_the_same_and_leave_the_same_behind(plain: bool, interleaving: bool) -> None:
    both = Both(plain=plain, interleaving=interleaving)
    chance = random.Random(7)
    for number in range(300):
        body = chance.randbytes(chance.choice((1, 3, 100, 254, 255, 1000, 1100)))
        stream = chance.choice((0, 0, 0, 1))
        both.wait(chance.choice((DELAY, DELAY, DELAY, 0.003, 0.05, 0.3)))
        both.same()
        both.disturb()
        expected = [body]
        # Mostly one message, and sometimes two at once.
        if chance.random() < 0.05:
            both.say(number % 2, body, 1 - stream, directly=False)
            expected.append(body)
        both.say(number % 2, body, stream, directly=len(expected) == 1)
        both.wait(DELAY)
        if chance.random() < 0.05:
            # Lost: it is sent again, and the windows and timeouts of the path change.
            both.lose()
            both.wait(LONG)
        assert sorted(both.carry(stream)) == sorted(expected)
        both.same()
    assert both.direct > 250


@lends
@pytest.mark.parametrize("framing", ["backend", "plain"])
def test_an_application_gets_a_lease(kernel_factory: KernelFactory, framing: str) -> None:
    far = kernel_factory(listener(framing=framing), route("net", "app"), route("app", "net"))
    place = far.address_of("net")
    near = kernel_factory(dialler(place, framing=framing), route("net", "app"), route("app", "net"))
    asking, answering = near.open("app"), far.open("app")
    leased = 0
    for number in range(2000):
        asking.send(b"question %d" % number)
        assert bytes(answering.receive(10)) == b"question %d" % number
        answering.send(b"answer %d" % number)
        assert bytes(asking.receive(10)) == b"answer %d" % number
        leased += asking.leased is not None and asking.leased.active
        if leased > 20:
            break
    assert leased > 20
