"""A client and the server's side of its conversation, in memory, on a clock that stands still."""

from __future__ import annotations

from collections import deque
from typing import Any

import msgspec

from kernel.contracts.engine import PortOwner, Taken
from kernel.contracts.message import Batch, Buffer, batch_of
from kernel.testing.memory_wire import SimulatedHost
from plugins.engines.amqp_client.connection_host import ConnectionHost
from plugins.engines.amqp_client.engine import AmqpClient
from plugins.engines.amqp_client.options import AmqpClientOptions
from plugins.protocols.amqp091.connection import ClientConnection, ServerConnection
from plugins.protocols.amqp091.events import (
    Acknowledged,
    Event,
    LoginRequested,
    MethodReceived,
    OpenRequested,
    Published,
)
from plugins.protocols.amqp091.frames import HEARTBEAT_FRAME
from plugins.protocols.amqp091.methods import basic, confirm, exchange, queue
from plugins.protocols.amqp091.methods.method import Method
from plugins.protocols.amqp091.options import ClientOptions, ServerOptions
from tests.plugins.engines.amqp.fake_host import FakePort

ANSWERS: dict[type[Method], Method] = {
    confirm.Select: confirm.SelectOk(),
    basic.Qos: basic.QosOk(),
    basic.Consume: basic.ConsumeOk(consumer_tag="client"),
    exchange.Declare: exchange.DeclareOk(),
    queue.Declare: queue.DeclareOk(queue="q", message_count=0, consumer_count=0),
    queue.Bind: queue.BindOk(),
}


class Port(FakePort):
    """Gives about as much as is asked for, in whole batches, and again what was not confirmed."""

    def __init__(self, name: str, owner: PortOwner) -> None:
        super().__init__(name, owner)
        self.wants_confirm = True
        self.origin = ("", "")
        self.taken: list[Batch] = []

    def take(self, most: int = 1 << 30) -> Taken:
        batches = []
        while self.waiting and most > 0:
            batch = self.waiting.popleft()
            most -= len(batch)
            self.taken += [batch.slice(at, at + 1) for at in range(len(batch))]
            batches.append(batch)
        return self.number(batches)

    def take_again(self) -> Taken:
        self.nobody_waits()
        return self.number(self.taken[self.confirmed_in :])


class InMemory:
    """The client on one end of a wire; on the other a server that agrees to everything and is moved by the test."""

    def __init__(self, *, heartbeat: int = 0, capacity: int = 1 << 20, **options: Any) -> None:
        self.host = SimulatedHost()
        self.client = AmqpClient("client", msgspec.convert({"key": "q", **options}, AmqpClientOptions))
        self.client.host = self.host  # type: ignore[assignment]  # as much of one as is used
        self.port = Port("client", self.client)
        self.client.port = self.port
        ours, self.wire = self.host.wire(capacity=capacity)
        self.heartbeat = heartbeat
        self.link = self.client.consuming or self.client.publishing
        self.link.host = self.host  # type: ignore[assignment]
        self.hosting = ConnectionHost(self.link, ours, self._conversation())
        self.server = ServerConnection(ServerOptions(heartbeat=heartbeat), 0.0)
        self.methods: list[Method] = []
        self.published: list[bytes] = []
        self.acknowledged: list[tuple[int, int, bool]] = []
        self.listen()
        self.link.use_connection(self.hosting)
        self.host.run()

    def _conversation(self) -> ClientConnection:
        return ClientConnection(
            ClientOptions(heartbeat=self.heartbeat, max_body_size=self.client.options.max_body_bytes),
            self.host.now(),
        )

    def listen(self) -> None:
        self.host.watch(self.wire.fileno(), readable=self._on_readable)

    def deaf(self) -> None:
        """The server reads nothing any more."""
        self.host.watch(self.wire.fileno())

    def feed(self, *bodies: bytes) -> None:
        """Something comes over the routes."""
        self.port.waiting.append(batch_of(list(bodies)))
        self.client.on_output()
        self.host.run()

    def say(self, channel: int, method: Method) -> None:
        self.server.send_method(channel, method)
        self.flush()

    def deliver(self, first_tag: int, *bodies: bytes, channel: int = 3) -> None:
        self.server.send_deliveries(channel, "client", first_tag, False, batch_of(list(bodies)))
        self.flush()

    def acknowledge(self, tag: int, *, multiple: bool = True) -> None:
        self.server.send_acknowledgement(2, tag, multiple=multiple)
        self.flush()

    def close(self, channel: int, code: int) -> None:
        """The server closes a channel."""
        self.server.close_channel(channel, code, "")
        self.flush()

    def beat(self) -> None:
        """The server sends a heartbeat."""
        assert self.wire.send(deque([HEARTBEAT_FRAME]))
        self.host.run()

    def flush(self) -> None:
        self._write()
        self.host.run()

    def what(self) -> list[str]:
        """What the client has reported."""
        return [event.what for event in self.host.events]

    def _write(self) -> None:
        out: deque[Buffer] = deque(self.server.data_to_send())
        assert self.wire.send(out)

    def _on_readable(self) -> None:
        data = self.wire.receive(1 << 20)
        if not data:
            self.host.watch(self.wire.fileno())
            return
        for event in self.server.receive_data(data, self.host.now()):
            self._take(event)
        self._write()

    def _take(self, event: Event) -> None:
        if isinstance(event, LoginRequested):
            self.server.accept_login()
        elif isinstance(event, OpenRequested):
            self.server.accept_open()
        elif isinstance(event, MethodReceived):
            self.methods.append(event.method)
            answer = ANSWERS.get(type(event.method))
            if answer is not None:
                self.server.send_method(event.channel, answer)
        elif isinstance(event, Published):
            self.published += event.batch.bodies
        elif isinstance(event, Acknowledged):
            self.acknowledged.append((event.channel, event.last_delivery_tag, event.multiple))
