"""Sinks: a binding may lead to what takes messages and keeps none."""

from __future__ import annotations

import pytest

from kernel.contracts.message import Batch
from plugins.engines.broker.binding import Binding
from plugins.engines.broker.virtual_host import VirtualHost
from tests.plugins.engines.broker.client import make_vhost, run


class LiveFeed:
    """A sink that keeps what it is given, for the test."""

    durable = False
    name = "live"

    def __init__(self) -> None:
        self.incoming: dict[tuple[int, int, str, str], Binding] = {}
        self.bodies: list[object] = []
        self.wanted = True

    def publish(self, batch: Batch, now: float) -> bool:
        self.bodies += batch.bodies
        return self.wanted


@pytest.fixture
def vhost() -> VirtualHost:
    return make_vhost()


@pytest.fixture
def feed(vhost: VirtualHost) -> LiveFeed:
    feed = LiveFeed()
    vhost.bind("amq.topic", feed, "a.#")
    return feed


def test_a_sink_is_given_what_its_binding_fits(vhost: VirtualHost, feed: LiveFeed) -> None:
    assert vhost.publish(run(b"1", b"2", exchange="amq.topic", key="a.b"), 0.0) == 2
    assert vhost.publish(run(b"3", exchange="amq.topic", key="b"), 0.0) is None
    assert feed.bodies == [b"1", b"2"]


def test_a_message_that_no_sink_wanted_was_wanted_by_nobody(vhost: VirtualHost, feed: LiveFeed) -> None:
    feed.wanted = False
    assert vhost.publish(run(b"1", exchange="amq.topic", key="a"), 0.0) is None


def test_every_sink_is_given_a_message_whoever_wants_it(vhost: VirtualHost, feed: LiveFeed) -> None:
    other = LiveFeed()
    vhost.bind("amq.topic", other, "#")
    vhost.publish(run(b"1", exchange="amq.topic", key="a"), 0.0)
    assert feed.bodies == other.bodies == [b"1"]


def test_a_full_queue_refuses_beside_a_sink(vhost: VirtualHost, feed: LiveFeed) -> None:
    limits = {"x-max-length": 1, "x-overflow": "reject-publish"}
    vhost.bind("amq.topic", vhost.declare_queue("q", None, 0.0, arguments=limits), "a")
    assert vhost.publish(run(b"1", b"2", exchange="amq.topic", key="a"), 0.0) == 1


def test_a_dead_letter_reaches_a_sink(vhost: VirtualHost, feed: LiveFeed) -> None:
    limits = {"x-max-length": 1, "x-dead-letter-exchange": "amq.topic", "x-dead-letter-routing-key": "a.dead"}
    queue = vhost.declare_queue("q", None, 0.0, arguments=limits)
    vhost.publish(run(b"1", b"2", key="q"), 0.0)
    queue.process(0.0)
    assert feed.bodies == [b"1"]


def test_a_sink_that_is_removed_hears_nothing_more(vhost: VirtualHost, feed: LiveFeed) -> None:
    vhost.bind("amq.fanout", feed)
    vhost.remove_sink(feed)
    vhost.publish(run(b"1", exchange="amq.topic", key="a"), 0.0)
    vhost.publish(run(b"2", exchange="amq.fanout"), 0.0)
    assert feed.bodies == []
    assert feed.incoming == {}


def test_the_last_binding_to_a_sink_takes_an_auto_delete_exchange_with_it(
    vhost: VirtualHost, feed: LiveFeed
) -> None:
    vhost.declare_exchange("x", "fanout", auto_delete=True)
    vhost.bind("x", feed)
    vhost.remove_sink(feed)
    assert "x" not in vhost.exchanges
