"""What a client has begun and not finished counts as memory of the broker, on a clock that stands still."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import suppress

import pytest

from kernel.hosting.wire import PlainWire
from plugins.engines.broker.alarms import PERIOD
from plugins.engines.broker.host.alarm_watch import MEMORY_SECONDS
from plugins.engines.broker.host.options import BrokerOptions
from plugins.engines.broker.public import Accepted, BrokerEngine, FrontEnd, StreamFrontEnd
from plugins.engines.stomp.client import StompClient
from plugins.engines.stomp.front_end import make_front_end
from plugins.engines.stomp.options import StompListenerOptions
from tests.plugins.engines.amqp.still_host import StillHost
from tests.plugins.engines.stomp.raw_client import frame

MEGABYTE = b"x" * 1_000_000


class Broker:
    """A broker in the test's own thread, whose messages may take a megabyte."""

    def __init__(self) -> None:
        self.host = StillHost()
        options = BrokerOptions(memory_limit=0, queued_limit=len(MEGABYTE))
        self.engine = BrokerEngine("broker", options, (_front_end,))
        self.engine.start(self.host)
        self.clients: list[Client] = []

    def connect(self) -> Client:
        self.clients.append(Client(self))
        return self.clients[-1]


def _front_end(engine: BrokerEngine) -> FrontEnd:
    return make_front_end(engine, StompListenerOptions(address="127.0.0.1:0"))


class Client:
    """A client that is logged in."""

    def __init__(self, broker: Broker) -> None:
        self._host = broker.host
        self.wire, theirs = socket.socketpair()
        for each in (self.wire, theirs):
            each.setblocking(False)
        listener = broker.engine.front_ends[0]
        assert isinstance(listener, StreamFrontEnd)
        listener.begin(Accepted(PlainWire(theirs), "client", loopback=True, certified=None))
        hosted = list(broker.engine.clients)[-1]
        assert isinstance(hosted, StompClient)
        self.hosted = hosted
        self.say(frame("CONNECT", accept_version="1.2", login="guest", passcode="guest", host="/"))
        assert self.heard().startswith(b"CONNECTED\n")

    def say(self, data: bytes) -> None:
        """Send; the broker reads it, unless it holds the client back."""
        for start in range(0, len(data), 65536):
            # What the broker does not read fills the socket.
            with suppress(BlockingIOError):
                self.wire.sendall(data[start : start + 65536])
            self._host.process()

    def heard(self) -> bytes:
        """What has come; empty at the end of the connection, and if nothing has."""
        try:
            return self.wire.recv(65536)
        except BlockingIOError:
            return b""


class HalfFrame:
    """A SEND whose body is twice as long as what comes first."""

    def begin(self, client: Client, part: bytes) -> None:
        head = frame("SEND", destination="/queue/q", content_length=2 * len(part))
        client.say(head.removesuffix(b"\0") + part)

    def finish(self, client: Client, part: bytes) -> None:
        client.say(part + b"\0")


class Transaction:
    """A message in a transaction that is not committed."""

    def begin(self, client: Client, part: bytes) -> None:
        client.say(frame("BEGIN", transaction="t"))
        client.say(frame("SEND", part, destination="/queue/q", transaction="t"))

    def finish(self, client: Client, part: bytes) -> None:
        client.say(frame("COMMIT", transaction="t"))


UNPUBLISHED = pytest.mark.parametrize(
    "way", [HalfFrame(), Transaction()], ids=["half a frame", "transaction"]
)


@pytest.fixture
def broker() -> Iterator[Broker]:
    made = Broker()
    yield made
    for client in made.clients:
        client.wire.close()
    made.engine.stop()
    made.host.process()
    made.host.release()


@UNPUBLISHED
def test_what_is_not_finished_counts_until_it_is(broker: Broker, way: HalfFrame | Transaction) -> None:
    client = broker.connect()
    way.begin(client, b"x" * 1000)
    assert 1000 <= client.hosted.unpublished_bytes < 2000
    way.finish(client, b"x" * 1000)
    assert client.hosted.unpublished_bytes == 0
    assert broker.engine.broker.vhost("/").queues["q"].backlog.count == 1


def test_what_is_aborted_does_not_count_any_more(broker: Broker) -> None:
    client = broker.connect()
    Transaction().begin(client, b"x" * 1000)
    client.say(frame("ABORT", transaction="t"))
    assert client.hosted.unpublished_bytes == 0


@UNPUBLISHED
def test_who_holds_memory_is_blocked_and_then_closed(broker: Broker, way: HalfFrame | Transaction) -> None:
    """It cannot finish what it has begun, since it is not read, and nobody else can free the memory."""
    culprit, victim = broker.connect(), broker.connect()
    way.begin(culprit, MEGABYTE)
    HalfFrame().begin(victim, b"x" * 1000)
    broker.host.pass_time(PERIOD)
    victim.say(b"x")
    assert broker.engine.alarm_watch.alarms.raised == ("memory",)
    broker.host.pass_time(MEMORY_SECONDS - PERIOD)
    assert (culprit.hosted.is_open, victim.hosted.is_open) == (True, True)
    broker.host.pass_time(2 * PERIOD)
    assert (culprit.hosted.is_open, victim.hosted.is_open) == (False, True)
    assert b"low on memory: 1,000," in culprit.heard()
    victim.say(b"x" * 999 + b"\0")
    assert broker.engine.broker.vhost("/").queues["q"].backlog.count == 1
