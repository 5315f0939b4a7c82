"""A client and the broker's side of its conversation, in memory, on a clock that stands still."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

import msgspec

from kernel.contracts.engine import PortOwner, Taken
from kernel.contracts.message import Batch, Buffer, Envelope, batch_of
from kernel.testing.memory_wire import MemoryWire, SimulatedHost
from plugins.engines.mqtt_client.engine import MqttClientEngine
from plugins.engines.mqtt_client.options import MqttClientOptions
from plugins.protocols.mqtt.encoder import encode
from plugins.protocols.mqtt.packet_types import PacketType
from plugins.protocols.mqtt.packets import (
    Acknowledgement,
    AcknowledgementType,
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
from plugins.protocols.mqtt.properties import NO_PROPERTIES, Properties
from tests.plugins.engines.amqp.fake_host import FakePort


class Port(FakePort):
    """Gives whole batches, and keeps what is refused."""

    def __init__(self, name: str, owner: PortOwner) -> None:
        super().__init__(name, owner)
        self.wants_confirm = True
        self.refused: list[tuple[int, int, str]] = []

    def take(self, most: int = 1 << 30) -> Taken:
        batches = []
        while self.waiting and most > 0:
            batch = self.waiting.popleft()
            most -= len(batch)
            batches.append(batch)
        return self.number(batches)

    def refuse(self, first: int, last: int, reason: str) -> None:
        self.refused.append((first, last, reason))


class Broker:
    """One connection, seen from the broker: the test says what it answers."""

    def __init__(self, host: SimulatedHost, wire: MemoryWire, version: int) -> None:
        self.packets: list[Packet] = []
        self.ended = False
        self.answers_pings = True
        self._host = host
        self.wire = wire
        self._version = version
        self._parser = Parser("server")
        host.watch(wire.fileno(), readable=self._on_readable)

    def say(self, *packets: Packet) -> None:
        self.say_octets(*[encode(packet, self._version) for packet in packets])

    def say_octets(self, *octets: bytes) -> None:
        out: deque[Buffer] = deque(octets)
        assert self.wire.send(out)
        self._host.run(until=self._host.now())

    def acknowledge(self, kind: AcknowledgementType, ids: Sequence[int], code: int = 0, **more: Any) -> None:
        for identifier in ids:
            self.say(Acknowledgement(kind, (identifier,), code, **more))

    def publish(self, qos: int, ids: Sequence[int], *bodies: bytes, topic: str = "t", **more: Any) -> None:
        head = PublishHead(topic=topic, properties=more.pop("properties", NO_PROPERTIES))
        self.say(Publish(head, list(bodies), sum(map(len, bodies)), 0, qos, ids, **more))

    def take(self, kind: type[Packet]) -> list[Any]:
        """Return the packets of this type that have come since the last call."""
        found = [packet for packet in self.packets if isinstance(packet, kind)]
        self.packets = [packet for packet in self.packets if not isinstance(packet, kind)]
        return found

    def published(self) -> list[tuple[int, bytes, int, bool]]:
        """Return identifier, body, QoS and DUP of what was published since the last call."""
        return [
            (packet.ids[at] if packet.ids else 0, bytes(body), packet.qos, packet.dup)
            for packet in self.take(Publish)
            for at, body in enumerate(packet.payloads)
        ]

    def acknowledged(self, kind: PacketType) -> list[int]:
        """Return the identifiers of acknowledgements since the last call."""
        found = [each for each in self.packets if isinstance(each, Acknowledgement) and each.kind is kind]
        self.packets = [packet for packet in self.packets if packet not in found]
        return [identifier for each in found for identifier in each.ids]

    def _on_readable(self) -> None:
        data = self.wire.receive(1 << 20)
        if not data:
            self.ended = True
            self._host.watch(self.wire.fileno())
            return
        for packet in self._parser.receive_data(data):
            if isinstance(packet, Pingreq) and self.answers_pings:
                out: deque[Buffer] = deque([encode(Pingresp(), self._version)])
                assert self.wire.send(out)
            self.packets.append(packet)


class InMemory:
    """A client engine on a simulated host, whose connections the test makes."""

    def __init__(self, *, capacity: int = 1 << 20, **options: Any) -> None:
        self.host = SimulatedHost()
        self.options = msgspec.convert({"topic": "t", "client_id": "c", **options}, MqttClientOptions)
        self.engine = MqttClientEngine("client", self.options)
        self.port = Port("client", self.engine)
        self.engine.use_host(self.host, self.port)  # type: ignore[arg-type]  # as much of one as is used
        self._capacity = capacity

    def dial(self) -> Broker:
        """The client connects: return the broker's side, which has CONNECT in ``packets``."""
        ours, theirs = self.host.wire(capacity=self._capacity)
        broker = Broker(self.host, theirs, self.options.version)
        self.engine.use_wire(ours)
        self.run()
        return broker

    def connect(self, *, present: bool = False, **server: Any) -> Broker:
        """The client connects, and the broker accepts it and all its subscriptions."""
        broker = self.dial()
        broker.say(Connack(session_present=present, properties=Properties(**server)))
        for packet in broker.take(Subscribe):
            broker.say(Suback(packet.id, tuple(each.qos for each in packet.subscriptions)))
        broker.take(Connect)
        return broker

    def cut(self, broker: Broker) -> None:
        """The connection is lost."""
        self.host.watch(broker.wire.fileno())
        broker.wire.close()
        self.run()

    def feed(self, *bodies: bytes, envelope: Envelope | None = None) -> None:
        """Something comes over the routes."""
        batch: Batch = batch_of(list(bodies), envelope or Envelope(persistent=True))
        self.port.waiting.append(batch)
        self.engine.on_output()
        self.run()

    def confirm(self, position: int) -> None:
        """The routes have confirmed."""
        self.engine.on_confirmed(position)
        self.run()

    def run(self, seconds: float = 0.0) -> None:
        self.host.run(until=self.host.now() + seconds)

    def sent(self) -> list[bytes]:
        """What was sent to the routes."""
        return [bytes(body) for batch in self.port.batches_sent for body in batch.bodies]

    def what(self) -> list[str]:
        """What the client has reported."""
        return [event.what for event in self.host.events]
