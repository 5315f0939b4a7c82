"""Sinks: a binding may lead to what takes messages and keeps none."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from kernel.contracts.message import Batch, Envelope
from kernel.contracts.mixed_batch import KeyedBatch
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


class KeyedFeed(LiveFeed):
    """A sink that takes messages together that differ in their keys."""

    def __init__(self) -> None:
        super().__init__()
        self.answer: Sequence[bool] | None = None
        self.batches: list[KeyedBatch] = []

    def publish_keyed(self, batch: KeyedBatch, now: float) -> Sequence[bool]:
        self.batches.append(batch)
        self.bodies += batch.bodies
        return self.answer or [self.wanted] * len(batch.bodies)


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


# Messages that differ in their keys


def under(*keys: bytes) -> KeyedBatch:
    """Messages under these keys, each with its key as its body."""
    envelopes: dict[str, Envelope] = {}

    def envelope_of(key: str) -> Envelope:
        return envelopes.setdefault(key, Envelope(key=key, exchange="amq.topic"))

    size = sum(map(len, keys))
    return KeyedBatch([*keys], size, Envelope(exchange="amq.topic"), keys=keys, envelope_of=envelope_of)


def counts(vhost: VirtualHost) -> tuple[int, int]:
    return vhost.messages_in, vhost.messages_unrouted


def test_a_sink_is_given_them_one_after_the_other(vhost: VirtualHost, feed: LiveFeed) -> None:
    assert vhost.publish_keyed(under(b"a.1", b"b.1", b"a.2", b"a.2"), 0.0, mandatory=False)
    assert feed.bodies == [b"a.1", b"a.2", b"a.2"]
    assert counts(vhost) == (4, 1)
    feed.wanted = False
    assert vhost.publish_keyed(under(b"a.1", b"b.1", b"a.2", b"a.2"), 0.0, mandatory=False)
    assert counts(vhost) == (8, 5)


def test_a_sink_that_takes_them_together_is_given_its_own(vhost: VirtualHost) -> None:
    feed, all_of_it = KeyedFeed(), KeyedFeed()
    vhost.bind("amq.topic", feed, "a.#")
    vhost.bind("amq.topic", feed, "a.1")
    assert vhost.publish_keyed(under(b"a.1", b"b.1", b"a.2"), 0.0, mandatory=False)
    (batch,) = feed.batches
    assert (batch.keys, batch.bodies, batch.size) == ([b"a.1", b"a.2"], [b"a.1", b"a.2"], 6)
    assert counts(vhost) == (3, 1)
    vhost.bind("amq.topic", all_of_it, "#")
    whole = under(b"b.1", b"c.1")
    assert vhost.publish_keyed(whole, 0.0, mandatory=False)
    assert all_of_it.batches == [whole]
    assert all_of_it.batches[0] is whole


def test_what_neither_a_queue_nor_a_sink_has_used_is_counted(vhost: VirtualHost) -> None:
    """Whatever the others answer: a message is used if one of them has used it."""
    feed, other = KeyedFeed(), KeyedFeed()
    vhost.bind("amq.topic", feed, "#")
    vhost.bind("amq.topic", other, "a.*")
    queue = vhost.declare_queue("q", None, 0.0)
    vhost.bind("amq.topic", queue, "*.1")
    feed.answer = [False, False, True, False]
    other.answer = [False, False, True]
    batch = under(b"a.1", b"a.2", b"b.2", b"a.3")
    assert vhost.publish_keyed(batch, 0.0, mandatory=False)
    # a.1 is in the queue, and the sinks have used b.2 and a.3.
    assert counts(vhost) == (4, 1)
    assert (feed.bodies, other.bodies) == ([b"a.1", b"a.2", b"b.2", b"a.3"], [b"a.1", b"a.2", b"a.3"])
    queue.process(0.0)
    assert [span.envelope.key for span in queue.backlog.levels[0]] == ["a.1"]


def test_mandatory_messages_that_only_a_sink_may_want_are_published_one_by_one(vhost: VirtualHost) -> None:
    feed = KeyedFeed()
    vhost.bind("amq.topic", feed, "#")
    vhost.bind("amq.topic", vhost.declare_queue("q", None, 0.0), "a.#")
    assert not vhost.publish_keyed(under(b"a.1", b"b.1"), 0.0, mandatory=True)
    assert counts(vhost) == (0, 0)
    assert not feed.bodies
    assert vhost.publish_keyed(under(b"a.1", b"a.2"), 0.0, mandatory=True)
    assert feed.bodies == [b"a.1", b"a.2"]


def test_nobody_gets_them_together_where_one_decides_on_single_messages(vhost: VirtualHost) -> None:
    feed = KeyedFeed()
    vhost.bind("amq.topic", feed, "#")
    limits = {"x-max-length": 1, "x-overflow": "reject-publish"}
    vhost.bind("amq.topic", vhost.declare_queue("q", None, 0.0, arguments=limits), "a.2")
    assert not vhost.publish_keyed(under(b"a.1", b"a.2"), 0.0, mandatory=False)
    assert not feed.bodies
    assert vhost.publish_keyed(under(b"a.1", b"a.3"), 0.0, mandatory=False)
