"""Connections that are cut anywhere: nothing is lost in either direction, and everything ends up acknowledged."""

from __future__ import annotations

import random
from collections import deque

import pytest

from kernel.contracts.message import Buffer, Envelope, batch_of
from kernel.testing.memory_wire import MemoryWire
from plugins.protocols.stomp.frame_reader import FrameReader
from plugins.protocols.stomp.frames import CONNECTING
from plugins.protocols.stomp.versions import Version
from tests.plugins.engines.stomp.raw_client import frame
from tests.plugins.engines.stomp_client.in_memory import InMemory
from tests.seeds import many

GOOD = Envelope(key="good")
BAD = Envelope(key="bad")
"""What the broker refuses."""


class LastingBroker:
    """A broker with two queues, which outlive connections.  It acknowledges as STOMP says, or as RabbitMQ does."""

    def __init__(self, world: InMemory, chance: random.Random, version: Version) -> None:
        self.got: list[bytes] = []
        self.unacked: dict[int, tuple[str, bytes]] = {}
        """By number: the subscription and the body."""
        self._world = world
        self._chance = chance
        self._version = version
        self._by_connection = chance.random() < 0.5
        self._names_errors = chance.random() < 0.5
        self._next = 0
        self._tags: dict[int, int] = {}
        """What is delivered on this connection: the number of the delivery, and that of the message."""
        self._subscribed: dict[str, str] = {}
        self._receipts: list[str] = []
        self._wire: MemoryWire | None = None
        self._ours: MemoryWire | None = None
        self._reader = FrameReader()

    @property
    def is_there(self) -> bool:
        return self._wire is not None

    def connect(self, split: int, delay: float) -> None:
        self._ours, self._wire = self._world.host.wire(split=split, delay=delay)
        self._reader = FrameReader()
        self._subscribed.clear()
        self._tags.clear()
        self._receipts.clear()
        self._world.host.watch(self._wire.fileno(), readable=self._on_readable)
        self._world.engine.use_wire(self._ours)

    def cut(self) -> None:
        assert self._wire is not None
        assert self._ours is not None
        self._world.host.watch(self._wire.fileno())
        # What was sent and not read is lost in both directions.
        self._wire.cut = self._ours.cut = True
        self._wire = None
        self._world.run()

    def publish(self, body: bytes) -> None:
        self._next += 1
        self.unacked[self._next] = (self._chance.choice("ab"), body)
        self._deliver(self._next)

    def answer(self) -> None:
        """Send the receipts of what has come, in any order."""
        self._chance.shuffle(self._receipts)
        receipts, self._receipts = self._receipts, []
        for receipt in receipts:
            self._say(frame("RECEIPT", receipt_id=receipt))

    def _deliver(self, number: int) -> None:
        subscription, body = self.unacked[number]
        if subscription in self._subscribed:
            tag = max(self._tags, default=0) + 1
            self._tags[tag] = number
            named = {"message_id": tag, "ack": tag, "destination": f"/queue/{subscription}"}
            self._say(frame("MESSAGE", body, subscription=subscription, **named))

    def _say(self, data: bytes) -> None:
        if self._wire is not None:
            out: deque[Buffer] = deque([data])
            assert self._wire.send(out)

    def _on_readable(self) -> None:
        assert self._wire is not None
        data = self._wire.receive(1 << 16)
        if not data:
            self._hang_up()
            return
        self._reader.feed(data)
        while self._wire is not None and (found := self._reader.read()):
            for frames in found:
                receipts = dict(frames.receipts)
                named = frames.acknowledged or [""] * len(frames.bodies)
                for at, (body, name) in enumerate(zip(frames.bodies, named, strict=True), 1):
                    if self._wire is not None:
                        self._take(frames.command, frames.headers, body, receipts.get(at), name)

    def _hang_up(self) -> None:
        assert self._wire is not None
        self._world.host.watch(self._wire.fileno())
        self._wire.close()
        self._wire = None

    def _take(self, command: str, headers: object, body: bytes, receipt: str | None, named: str) -> None:
        assert isinstance(headers, dict)
        if command in CONNECTING:
            self._reader.version = self._version
            self._say(frame("CONNECTED", version=self._version))
        elif command == "SUBSCRIBE":
            self._subscribed[headers["id"]] = headers["ack"]
            self._say(frame("RECEIPT", receipt_id=receipt))
            for number in sorted(self.unacked):
                if self.unacked[number][0] == headers["id"]:
                    self._deliver(number)
        elif command == "SEND":
            self._sent(headers["destination"], body, receipt)
        elif command == "ACK":
            self._acknowledged(int(named))

    def _sent(self, destination: str, body: bytes, receipt: str | None) -> None:
        if destination == "/queue/bad":
            named = {"receipt_id": receipt} if receipt and self._names_errors else {}
            self._say(frame("ERROR", message="refused", **named))
            self._hang_up()
            return
        self.got.append(body)
        if receipt:
            self._receipts.append(receipt)

    def _acknowledged(self, tag: int) -> None:
        number = self._tags[tag]
        assert number in self.unacked, "an acknowledgement of nothing"
        subscription, _ = self.unacked[number]
        if self._subscribed[subscription] == "client-individual" or self._version is Version.V1_0:
            del self.unacked[number]
            return
        for each in [self._tags[each] for each in self._tags if each <= tag]:
            if each in self.unacked and (self._by_connection or self.unacked[each][0] == subscription):
                del self.unacked[each]


class Course:
    """A random course of messages in both directions, confirmations and cuts."""

    def __init__(self, chance: random.Random, version: Version) -> None:
        self.out: list[bytes] = []
        self.bad: list[bytes] = []
        self.into: list[bytes] = []
        ack = chance.choice(["client", "client-individual"])
        self.world = InMemory(
            destination=None,
            receipts="each",
            in_flight=chance.choice([1, 5, 1000]),
            heartbeat=0,
            confirm_timeout=10_000.0,
            connect_timeout=10_000.0,
            subscriptions=[{"destination": f"/queue/{name}", "id": name, "ack": ack} for name in "ab"],
        )
        self.world.port.confirms = chance.random() < 0.8
        self.world.port.wants_confirm = chance.random() < 0.8
        self.broker = LastingBroker(self.world, chance, version)
        self._chance = chance

    def step(self) -> None:
        chance = self._chance
        if self.broker.is_there:
            steps = (self._send, self._receive, self._confirm, self.broker.answer, self.broker.cut)
            chance.choices(steps, (30, 20, 20, 20, 4))[0]()
        else:
            chance.choices((self._send, self._connect, self._confirm), (30, 30, 20))[0]()
        self.world.run(chance.choice([0.0, 0.005, 0.03]))

    def _send(self) -> None:
        if self._chance.random() < 0.05:
            self.bad.append(b"bad %d" % len(self.bad))
            self.world.port.waiting.append(batch_of([self.bad[-1]], BAD))
        else:
            first = len(self.out)
            bodies = [b"out %d" % number for number in range(first, first + self._chance.randint(1, 20))]
            self.out += bodies
            self.world.port.waiting.append(batch_of(bodies, GOOD))
        self.world.engine.on_output()

    def _receive(self) -> None:
        for _ in range(self._chance.randint(1, 5)):
            self.into.append(b"in %d" % len(self.into))
            self.broker.publish(self.into[-1])

    def _confirm(self) -> None:
        self.world.confirm(max(0, self.world.port.sent() - self._chance.choice([0, 0, 1, 3])))

    def _connect(self) -> None:
        chance = self._chance
        self.broker.connect(split=chance.choice([1, 7, 1 << 16]), delay=chance.choice([0.0, 0.01]))

    def finish(self) -> None:
        """Without further cuts everything arrives."""
        for _ in range(20_000):
            if not self.broker.is_there:
                self.broker.connect(split=1 << 16, delay=0.0)
            self.world.run(0.1)
            self.broker.answer()
            self.world.confirm(self.world.port.sent())
            waits = self.broker.unacked or self.world.engine.outgoing.unfinished or self.world.port.waiting
            if self.broker.is_there and not waits:
                return
        raise AssertionError("it does not come to an end")


@pytest.mark.slow
@pytest.mark.parametrize("version", list(Version))
@pytest.mark.parametrize("seed", many(1, 8))
def test_nothing_is_lost(seed: int, version: Version) -> None:
    course = Course(random.Random(seed), version)
    for _ in range(300):
        course.step()
    course.finish()
    world, broker = course.world, course.broker
    assert set(broker.got) == set(course.out)
    assert set(world.sent()) == set(course.into)
    assert world.engine.counters.messages_refused == len(course.bad)
    if world.port.wants_confirm:
        assert {body for body, _ in world.port.refused} == set(course.bad)
