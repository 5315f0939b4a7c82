"""Connections that are cut anywhere: nothing is lost with QoS 1, and with QoS 2 everything comes once and in order."""

from __future__ import annotations

import random
from collections import deque

import pytest

from kernel.contracts.message import Buffer, Envelope, batch_of
from kernel.testing.memory_wire import MemoryWire
from plugins.protocols.mqtt.encoder import encode
from plugins.protocols.mqtt.packet_types import PacketType
from plugins.protocols.mqtt.packets import (
    Acknowledgement,
    Connack,
    Connect,
    Packet,
    Pingreq,
    Pingresp,
    Publish,
    PublishHead,
    Suback,
    Subscribe,
)
from plugins.protocols.mqtt.parser import Parser
from plugins.protocols.mqtt.properties import NO_PROPERTIES
from tests.plugins.engines.mqtt_client.in_memory import InMemory
from tests.seeds import many

ONCE = Envelope(key="once", persistent=True)
LEAST = Envelope(key="least", persistent=True)


class LastingBroker:
    """A broker with one session, which outlives connections.  It is as simple as MQTT allows."""

    def __init__(self, world: InMemory, version: int) -> None:
        self.got: list[bytes] = []
        self._world = world
        self._version = version
        self._has_session = False
        self._received: set[int] = set()
        self._sent: dict[int, tuple[bytes, int]] = {}
        self._released: set[int] = set()
        self._next_id = 0
        self._wire: MemoryWire | None = None
        self._ours: MemoryWire | None = None
        self._parser = Parser("server")

    @property
    def is_idle(self) -> bool:
        return not self._sent and not self._released and not self._received

    @property
    def has_room(self) -> bool:
        return len(self._sent) + len(self._released) < 40

    @property
    def is_there(self) -> bool:
        return self._wire is not None

    def connect(self, split: int, delay: float) -> None:
        self._ours, self._wire = self._world.host.wire(split=split, delay=delay)
        self._parser = Parser("server")
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

    def publish(self, body: bytes, qos: int) -> None:
        while self._next_id in self._sent or self._next_id in self._released or not self._next_id:
            self._next_id = self._next_id % 50 + 1
        self._sent[self._next_id] = (body, qos)
        self._send_message(self._next_id, dup=False)

    def _send_message(self, identifier: int, *, dup: bool) -> None:
        body, qos = self._sent[identifier]
        head = PublishHead(topic="t", properties=NO_PROPERTIES)
        self._say(Publish(head, [body], len(body), 0, qos, (identifier,), dup=dup))

    def _say(self, packet: Packet) -> None:
        if self._wire is not None and self._has_session:
            out: deque[Buffer] = deque([encode(packet, self._version)])
            assert self._wire.send(out)

    def _on_readable(self) -> None:
        assert self._wire is not None
        data = self._wire.receive(1 << 16)
        if not data:
            self._world.host.watch(self._wire.fileno())
            self._wire = None
            return
        for packet in self._parser.receive_data(data):
            self._take(packet)

    def _take(self, packet: Packet) -> None:
        if isinstance(packet, Connect):
            self._connect()
        elif isinstance(packet, Subscribe):
            self._say(Suback(packet.id, tuple(each.qos for each in packet.subscriptions)))
        elif isinstance(packet, Pingreq):
            self._say(Pingresp())
        elif isinstance(packet, Publish):
            self._published(packet)
        elif isinstance(packet, Acknowledgement):
            for identifier in packet.ids:
                self._acknowledged(packet.kind, identifier)

    def _connect(self) -> None:
        present, self._has_session = self._has_session, True
        self._say(Connack(session_present=present))
        for identifier in self._sent:
            self._send_message(identifier, dup=True)
        for identifier in self._released:
            self._say(Acknowledgement(PacketType.PUBREL, (identifier,)))

    def _published(self, packet: Publish) -> None:
        for identifier, body in zip(packet.ids, packet.payloads, strict=True):
            if packet.qos == 1 or identifier not in self._received:
                self.got.append(bytes(body))
            if packet.qos == 2:
                self._received.add(identifier)
            kind = PacketType.PUBACK if packet.qos == 1 else PacketType.PUBREC
            self._say(Acknowledgement(kind, (identifier,)))

    def _acknowledged(self, kind: PacketType, identifier: int) -> None:
        if kind is PacketType.PUBREL:
            self._received.discard(identifier)
            self._say(Acknowledgement(PacketType.PUBCOMP, (identifier,)))
        elif kind is PacketType.PUBREC:
            if self._sent.pop(identifier, None) is not None:
                self._released.add(identifier)
            self._say(Acknowledgement(PacketType.PUBREL, (identifier,)))
        elif kind is PacketType.PUBACK:
            del self._sent[identifier]
        else:
            self._released.discard(identifier)


class Course:
    """A random course of messages in both directions, confirmations and cuts."""

    def __init__(self, chance: random.Random, qos: int, version: int) -> None:
        self.out: list[bytes] = []
        self.into: list[bytes] = []
        self.world = InMemory(
            topic=None,
            qos=qos,
            version=version,
            in_flight=chance.choice([1, 5, 1000]),
            subscriptions=({"filter": "t", "qos": qos},),
        )
        self.world.port.confirms = chance.random() < 0.8
        self.broker = LastingBroker(self.world, version)
        self._chance = chance
        self._qos = qos
        # The engine has to know that the session is its own.  On one of a former engine some messages of QoS 2 may
        # come twice if the connection is cut again (``Outgoing``).
        self.broker.connect(split=1 << 16, delay=0.0)
        self.world.run()

    def step(self) -> None:
        chance = self._chance
        if self.broker.is_there:
            chance.choices((self._send, self._receive, self._confirm, self.broker.cut), (30, 20, 20, 5))[0]()
        else:
            chance.choices((self._send, self._connect, self._confirm), (30, 30, 20))[0]()
        self.world.run(chance.choice([0.0, 0.005, 0.03]))

    def _send(self) -> None:
        first = len(self.out)
        bodies = [b"out %d" % number for number in range(first, first + self._chance.randint(1, 20))]
        self.out += bodies
        self.world.port.waiting.append(batch_of(bodies, self._chance.choice([ONCE, LEAST])))
        self.world.engine.on_output()

    def _receive(self) -> None:
        for _ in range(self._chance.randint(1, 5)):
            if self.broker.has_room:
                self.into.append(b"in %d" % len(self.into))
                self.broker.publish(self.into[-1], self._qos)

    def _confirm(self) -> None:
        self.world.engine.on_confirmed(self.world.port.sent() - self._chance.choice([0, 0, 1, 3]))

    def _connect(self) -> None:
        chance = self._chance
        self.broker.connect(split=chance.choice([1, 7, 1 << 16]), delay=chance.choice([0.0, 0.01]))

    def finish(self) -> None:
        """Without further cuts everything arrives."""
        if not self.broker.is_there:
            self.broker.connect(split=1 << 16, delay=0.0)
        for _ in range(50):
            self.world.run(1.0)
            self.world.engine.on_confirmed(self.world.port.sent())


@pytest.mark.slow
@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("seed", many(1, 6))
def test_nothing_is_lost(seed: int, qos: int, version: int) -> None:
    course = Course(random.Random(seed), qos, version)
    for _ in range(300):
        course.step()
    course.finish()
    world, broker = course.world, course.broker
    assert broker.is_idle
    assert world.port.confirmed_in == len(course.out)
    assert world.engine.outgoing.unfinished == 0
    if qos == 2:
        assert broker.got == course.out
        assert world.sent() == course.into
    else:
        assert set(broker.got) == set(course.out)
        assert set(world.sent()) == set(course.into)
