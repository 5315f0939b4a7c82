"""A client that has gone without a word: its heartbeats stop, and what it held is freed.  The clock is in hand."""

from __future__ import annotations

import pytest

from kernel.contracts.message import Envelope, batch_of
from plugins.engines.amqp.session import Session
from plugins.engines.broker.broker import Broker
from plugins.engines.broker.host.feed import Feed
from plugins.engines.broker.host.options import User
from plugins.engines.broker.host.users import Users
from plugins.protocols.amqp091.connection import ClientConnection, ServerConnection
from plugins.protocols.amqp091.events import Delivered, Event
from plugins.protocols.amqp091.methods import basic
from plugins.protocols.amqp091.options import ClientOptions, ServerOptions
from tests.plugins.engines.amqp.fake_host import FakePort
from tests.plugins.engines.amqp.lone_client import LoneClient

INTERVAL = 10


class HalfOpen:
    """A client with an unacknowledged message, and its session."""

    def __init__(self) -> None:
        self.broker = Broker()
        feed = Feed(self.broker.vhost("/"), "")
        feed.open(FakePort("feed", None))
        self.server = ServerConnection(ServerOptions(heartbeat=INTERVAL), 0.0)
        users = Users({"guest": User(password="guest")})
        self.session = Session(self.server, LoneClient(), self.broker, users, feed, loopback=True)
        self.client = ClientConnection(ClientOptions(heartbeat=INTERVAL), 0.0)
        self.queue = self.broker.vhost("/").declare_queue("q", None, 0.0)
        self.talk(0.0)
        self.client.open_channel(1)
        self.talk(0.0)
        self.client.send_method(1, basic.Consume(queue="q"))
        self.talk(0.0)
        self.broker.vhost("/").publish(batch_of([b"x"], Envelope(key="q")), 0.0)
        assert Delivered in [type(event) for event in self.talk(0.0)]

    def talk(self, now: float) -> list[Event]:
        """Let both sides say all that there is to say."""
        events: list[Event] = []
        for _ in range(4):
            octets = b"".join(map(bytes, self.client.data_to_send()))
            self.session.handle(self.server.receive_data(octets, now), now)
            self.let_the_server_work(now)
            events += self.client.receive_data(b"".join(map(bytes, self.server.data_to_send())), now)
        return events

    def let_the_server_work(self, now: float) -> None:
        deadline = self.server.next_deadline()
        if deadline is not None and deadline <= now:
            self.session.handle(self.server.handle_timeout(now), now)
        self.broker.process(now)
        self.session.finish(0.0)


def test_three_intervals_of_silence_free_what_was_held() -> None:
    half = HalfOpen()
    for now in (5.0, 10.0, 20.0, 29.9):
        half.let_the_server_work(now)
        assert (half.queue.backlog.count, half.queue.outstanding) == (0, 1)
    half.let_the_server_work(3.0 * INTERVAL)
    assert half.session.ended
    assert (half.queue.backlog.count, half.queue.outstanding, half.queue.consumer_count) == (1, 0, 0)


@pytest.mark.parametrize("step", [1.0, 4.9, 9.9])
def test_who_is_heard_of_keeps_what_it_holds(step: float) -> None:
    half = HalfOpen()
    now = 0.0
    while now < 10 * INTERVAL:
        now += step
        if (deadline := half.client.next_deadline()) is not None and deadline <= now:
            half.client.handle_timeout(now)
        half.talk(now)
    assert not half.session.ended
    assert half.queue.outstanding == 1
