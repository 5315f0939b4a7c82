"""A broker in the test's own thread, on a clock that stands still: what happens, and in which turn, is the test's choice."""

from __future__ import annotations

import select
import socket
from collections import deque
from collections.abc import Callable
from typing import Any

from kernel.contracts.engine import EngineEvent, Poller, PortOwner
from kernel.hosting.wire import PlainWire
from plugins.engines.amqp.connection_host import ConnectionHost
from plugins.engines.amqp.front_end import make_amqp_engine
from plugins.engines.amqp.options import AmqpOptions
from plugins.engines.broker.host.listening import Accepted, StreamFrontEnd
from plugins.protocols.amqp091.connection import ClientConnection
from plugins.protocols.amqp091.events import ChannelOpened, ConnectionOpened, Event, MethodReceived
from plugins.protocols.amqp091.methods.method import Method
from plugins.protocols.amqp091.options import ClientOptions
from tests.plugins.engines.amqp.fake_host import FakePort
from tests.plugins.engines.amqp.raw_client import SomeEvent, SomeMethod

Callback = Callable[[], Any]


class StillHost:
    """Enough of ``kernel.contracts.engine.Host``: nothing happens but in ``turn`` and ``pass_time``."""

    nursery: Any = None
    rendezvous: Any = {}  # what nobody else looks at

    def __init__(self) -> None:
        self.poller: Poller = self
        self.more = False
        self.clock = 1000.0
        self.events: list[EngineEvent] = []
        self.ports: dict[str, FakePort] = {}
        self.watched: dict[int, tuple[Callback | None, Callback | None]] = {}
        self._soon: deque[Callback] = deque()
        self._timers: dict[object, tuple[float, Callback]] = {}

    def watch(self, fd: int, *, readable: Callback | None, writable: Callback | None) -> None:
        if readable or writable:
            self.watched[fd] = readable, writable
        else:
            self.watched.pop(fd, None)

    def now(self) -> float:
        return self.clock

    def processor_time(self) -> float:
        return 0.0

    def soon(self, callback: Callback) -> None:
        self._soon.append(callback)

    post = soon

    def port(self, name: str, owner: PortOwner, options: dict[str, Any] | None = None) -> FakePort:
        self.ports[name] = FakePort(name, owner)
        return self.ports[name]

    def set_timer(self, when: float | None, callback: Callback, key: object) -> None:
        if when is None:
            self._timers.pop(key, None)
        else:
            self._timers[key] = when, callback

    def report(self, event: EngineEvent) -> None:
        self.events.append(event)

    def turn(self) -> bool:
        """One turn of a loop: what was put off, then each descriptor that is ready, once.  Whether there was anything."""
        soon = [self._soon.popleft() for _ in range(len(self._soon))]
        readable = [fd for fd, (callback, _) in self.watched.items() if callback]
        writable = [fd for fd, (_, callback) in self.watched.items() if callback]
        ready_to_read, ready_to_write, _ = select.select(readable, writable, [], 0)
        for callback in soon:
            callback()
        left = len(ready_to_read) + len(ready_to_write)
        for ready, which in ((ready_to_read, 0), (ready_to_write, 1)):
            for fd in ready:
                left -= 1
                self.more = left > 0
                found = self.watched.get(fd, (None, None))[which]
                if found is not None:
                    found()
        return bool(soon or ready_to_read or ready_to_write)

    def release(self) -> None:
        """Let go of all watches and timers, and so of wires whose farewell is not over."""
        self.watched.clear()
        self._timers.clear()

    def process(self) -> None:
        """Turn until nothing happens any more."""
        while self.turn():
            pass

    def pass_time(self, seconds: float) -> None:
        """Let time pass; timers that become due are called at their time."""
        end = self.clock + seconds
        while due := [(when, key) for key, (when, _) in self._timers.items() if when <= end]:
            when, key = min(due, key=lambda pair: pair[0])
            self.clock = max(self.clock, when)
            _, callback = self._timers.pop(key)
            callback()
            self.process()
        self.clock = end
        self.process()


class StillServer:
    """The engine, and clients of it."""

    def __init__(self, **options: Any) -> None:
        self.host = StillHost()
        self.engine = make_amqp_engine("broker", AmqpOptions(**{"address": "127.0.0.1:0", **options}))
        self.address = self.engine.start(self.host)
        self._clients: list[StillClient] = []

    def connect(self, **options: Any) -> StillClient:
        """Return a client whose first channel is open."""
        ours, theirs = socket.socketpair()
        for each in (ours, theirs):
            each.setblocking(False)
        accepted = Accepted(PlainWire(theirs), f"client {len(self._clients)}", loopback=True, certified=None)
        front_end = self.engine.front_ends[0]
        assert isinstance(front_end, StreamFrontEnd)
        front_end.begin(accepted)
        hosted = list(self.engine.clients)[-1]
        assert isinstance(hosted, ConnectionHost)
        client = StillClient(self, ours, hosted, options)
        self._clients.append(client)
        return client

    def close(self) -> None:
        self.engine.stop()
        self.host.process()
        self.host.release()
        for client in self._clients:
            client.wire.close()


class StillClient:
    """One connection, in the test's hand."""

    def __init__(
        self, server: StillServer, wire: socket.socket, hosted: ConnectionHost, options: dict[str, Any]
    ) -> None:
        self.wire = wire
        self.hosted = hosted
        """The server's side of it."""
        self.connection = ClientConnection(ClientOptions(**{"heartbeat": 0, **options}), 0.0)
        self._host = server.host
        self._unwritten = bytearray()
        self._events: list[Event] = []
        self.wait_for(ConnectionOpened)
        self.open_channel(1)

    def open_channel(self, number: int) -> None:
        self.connection.open_channel(number)
        self.wait_for(ChannelOpened)

    def send(self, method: Method, channel: int = 1) -> None:
        """Write a method; the server has not read it yet."""
        self.connection.send_method(channel, method)
        self.write()

    def send_octets(self, octets: bytes) -> None:
        """Write these octets behind what the conversation has to say."""
        self.write()
        self._unwritten += octets
        self.write()

    def write(self) -> None:
        """Write what the conversation has to say; what the wire does not take waits for the next time."""
        self._unwritten += b"".join(map(bytes, self.connection.data_to_send()))
        try:
            while self._unwritten:
                del self._unwritten[: self.wire.send(self._unwritten)]
        except BlockingIOError:
            pass

    def flush(self) -> None:
        """Write until the server has read it all and done what follows."""
        self.write()
        while self.unwritten:
            assert self._host.turn(), "the server does not read"
            self.write()
        self._host.process()

    @property
    def unwritten(self) -> int:
        """How many octets the wire has not taken."""
        return len(self._unwritten)

    def read(self) -> list[Event]:
        """Read what there is, and return what it means together with what was read and not asked for before."""
        try:
            while data := self.wire.recv(1 << 20):
                self._events += self.connection.receive_data(data, 0.0)
        except BlockingIOError:
            pass
        events, self._events = self._events, []
        return events

    def read_all(self) -> list[Event]:
        """Read until the server has no more to write."""
        events = self.read()
        while self._host.turn():
            events += self.read()
        return events + self.read()

    def wait_for(self, kind: type[SomeEvent]) -> SomeEvent:
        """Return the next event of a kind; those before it are forgotten."""
        while True:
            self.write()
            self._host.process()
            events = self.read()
            for index, event in enumerate(events):
                if isinstance(event, kind):
                    self._events = events[index + 1 :]
                    return event
            self.write()
            assert self._host.turn(), f"no {kind.__name__} came, but {events}"

    def ask(self, method: Method, answer: type[SomeMethod], channel: int = 1) -> SomeMethod:
        """Send a method, and return its answer."""
        self.send(method, channel)
        while True:
            found = self.wait_for(MethodReceived).method
            if isinstance(found, answer):
                return found


def drained(wire: socket.socket) -> bytes:
    """Return all octets that have come, from a socket that does not block."""
    octets = bytearray()
    try:
        while data := wire.recv(1 << 20):
            octets += data
    except (BlockingIOError, ConnectionResetError):
        pass
    return bytes(octets)
