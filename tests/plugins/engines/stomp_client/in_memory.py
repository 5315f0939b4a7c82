"""A client and the broker's side of its conversation, in memory, on a clock that stands still."""

from __future__ import annotations

from collections import deque
from typing import Any

import msgspec

from kernel.contracts.engine import NOTHING_TAKEN, PortOwner, Taken
from kernel.contracts.message import Batch, Buffer, Envelope, batch_of
from kernel.testing.memory_wire import MemoryWire, SimulatedHost
from plugins.engines.stomp_client.engine import StompClientEngine
from plugins.engines.stomp_client.options import StompClientOptions
from tests.plugins.engines.amqp.fake_host import FakePort
from tests.plugins.engines.stomp.raw_client import frame


class Port(FakePort):
    """Gives whole batches, gives again what was not confirmed, and keeps what is refused."""

    def __init__(self, name: str, owner: PortOwner) -> None:
        super().__init__(name, owner)
        self.wants_confirm = True
        self.refused: list[tuple[bytes, str]] = []
        self.sent_and_confirmed = 0
        self._open: dict[int, Batch] = {}

    def take(self, most: int = 1 << 30) -> Taken:
        batches = []
        while self.waiting and most > 0:
            batch = self.waiting.popleft()
            most -= len(batch)
            batches.append(batch)
        return self._given(batches)

    def _given(self, batches: list[Batch]) -> Taken:
        taken = self.number(batches)
        if taken.position is not None:
            singles = [each.slice(at, at + 1) for each in batches for at in range(len(each))]
            self._open.update(enumerate(singles, taken.position - taken.count + 1))
        return taken

    def take_again(self) -> Taken:
        left, self._open = list(self._open.values()), {}
        self._waited_for.clear()
        return self._given(left) if left else NOTHING_TAKEN

    def confirm_through(self, position: int | None) -> None:
        super().confirm_through(position)
        self._open = {at: batch for at, batch in self._open.items() if position is None or at > position}

    def refuse(self, first: int, last: int, reason: str) -> None:
        for at in range(first, last + 1):
            self.refused.append((bytes(self._open.pop(at).bodies[0]), reason))

    def confirmed(self) -> int:
        return self.sent_and_confirmed


class Broker:
    """One connection, seen from the broker: the test says what it answers.  It reads by rules of its own."""

    def __init__(self, host: SimulatedHost, wire: MemoryWire) -> None:
        self.frames: list[tuple[str, dict[str, str], bytes]] = []
        self.beats = 0
        self.ended = False
        self.wire = wire
        self._host = host
        self._data = b""
        host.watch(wire.fileno(), readable=self._on_readable)

    def say(self, data: bytes) -> None:
        out: deque[Buffer] = deque([data])
        assert self.wire.send(out)
        self._host.run(until=self._host.now())

    def answer(self, command: str, body: bytes = b"", /, **headers: object) -> None:
        self.say(frame(command, body, **headers))

    def take(self, command: str) -> list[tuple[dict[str, str], bytes]]:
        """Return headers and bodies of the frames with this command since the last call."""
        found = [(headers, body) for name, headers, body in self.frames if name == command]
        self.frames = [each for each in self.frames if each[0] != command]
        return found

    def sent(self) -> list[tuple[bytes, str | None]]:
        """Return bodies and receipts of what was published since the last call."""
        return [(body, headers.get("receipt")) for headers, body in self.take("SEND")]

    def receipts(self, *receipts: object) -> None:
        self.say(b"".join(frame("RECEIPT", receipt_id=receipt) for receipt in receipts))

    def _on_readable(self) -> None:
        data = self.wire.receive(1 << 20)
        if not data:
            self.ended = True
            self._host.watch(self.wire.fileno())
            return
        self._data += data
        while True:
            rest = self._data.lstrip(b"\n")
            self.beats += len(self._data) - len(rest)
            self._data = rest
            head, blank, rest = rest.partition(b"\n\n")
            if not blank:
                return
            command, *lines = head.decode().split("\n")
            headers = dict(line.split(":", 1) for line in lines)
            length = int(headers.pop("content-length", 0))
            if len(rest) <= length:
                return
            assert rest[length] == 0
            self._data = rest[length + 1 :]
            self.frames.append((command, headers, rest[:length]))


class InMemory:
    """A client engine on a simulated host, whose connections the test makes."""

    def __init__(self, *, capacity: int = 1 << 20, **options: Any) -> None:
        self.host = SimulatedHost()
        self.options = msgspec.convert({"destination": "/queue/q", **options}, StompClientOptions)
        self.engine = StompClientEngine("client", self.options)
        self.port = Port("client", self.engine)
        self.engine.use_host(self.host, self.port)  # type: ignore[arg-type]  # as much of one as is used
        self._capacity = capacity

    def dial(self) -> Broker:
        """The client connects: return the broker's side, which has CONNECT in ``frames``."""
        ours, theirs = self.host.wire(capacity=self._capacity)
        broker = Broker(self.host, theirs)
        self.engine.use_wire(ours)
        self.run()
        return broker

    def connect(self, **headers: object) -> Broker:
        """The client connects, and the broker accepts it and all its subscriptions."""
        broker = self.dial()
        broker.answer("CONNECTED", **{"version": "1.2", **headers})
        while asked := broker.take("SUBSCRIBE"):
            broker.receipts(*(each["receipt"] for each, _ in asked))
        broker.take("CONNECT")
        return broker

    def cut(self, broker: Broker) -> None:
        """The connection is lost."""
        self.host.watch(broker.wire.fileno())
        broker.wire.close()
        self.run()

    def feed(self, *bodies: bytes, envelope: Envelope | None = None) -> None:
        """Something comes over the routes."""
        self.port.waiting.append(batch_of(list(bodies), envelope or Envelope()))
        self.engine.on_output()
        self.run()

    def confirm(self, position: int) -> None:
        """The routes have confirmed."""
        self.port.sent_and_confirmed = position
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
