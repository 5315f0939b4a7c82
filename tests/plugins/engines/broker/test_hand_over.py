"""A message that comes alone is delivered when it is published; every other one at the end of the turn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kernel.contracts.message import Envelope
from kernel.contracts.mixed_batch import KeyedBatch
from plugins.engines.broker.broker import Broker
from plugins.engines.broker.queue import Queue
from plugins.engines.broker.span import Span
from plugins.engines.broker.store import EmptyStore
from plugins.engines.broker.virtual_host import VirtualHost
from tests.plugins.engines.broker.client import Client, make_vhost, run


@pytest.fixture
def vhost() -> VirtualHost:
    return make_vhost()


def declare(vhost: VirtualHost, **arguments: Any) -> Queue:
    return vhost.declare_queue(
        "q", None, 0.0, arguments={f"x-{key.replace('_', '-')}": value for key, value in arguments.items()}
    )


def handed_over(client: Client) -> list[bytes]:
    """Return what was delivered already, without processing the queue."""
    return [body for _, _, span in client.receiver.deliveries for body in span.as_batch().bodies]


@pytest.mark.parametrize("auto_ack", [False, True])
def test_the_only_consumer_gets_a_lone_message_at_once(vhost: VirtualHost, auto_ack: bool) -> None:
    queue = declare(vhost)
    client = Client(vhost)
    consumer = client.consume(queue, auto_ack=auto_ack)
    vhost.process(0.0)
    assert vhost.publish(run(b"1", b"2"), 0.0) == 2
    assert handed_over(client) == [b"1", b"2"]
    assert vhost.touched == []
    outstanding = 0 if auto_ack else 2
    assert (queue.backlog.count, queue.outstanding, queue.messages_out) == (0, outstanding, 2)
    assert (consumer.outstanding, client.receiver.outstanding) == (outstanding, outstanding)


def test_what_follows_in_the_same_turn_comes_behind_it(vhost: VirtualHost) -> None:
    client = Client(vhost)
    client.consume(declare(vhost))
    for body in (b"1", b"2", b"3"):
        vhost.publish(run(body), 0.0)
    assert handed_over(client) == [b"1"]
    assert client.bodies() == [b"1", b"2", b"3"]


def test_no_message_overtakes_those_that_wait(vhost: VirtualHost) -> None:
    queue = declare(vhost)
    client = Client(vhost)
    vhost.publish(run(b"1"), 0.0)
    client.consume(queue)
    # The queue is touched, and not processed yet.
    vhost.publish(run(b"2"), 0.0)
    assert handed_over(client) == []
    assert client.bodies() == [b"1", b"2"]


def _is_full(client: Client, queue: Queue) -> None:
    client.consume(queue, prefetch=1)
    queue.publish(run(b"before"), 0.0)
    client.receiver.take_deliveries()


def _shares_a_prefetch(client: Client, queue: Queue) -> None:
    client.receiver.prefetch = 1
    client.consume(queue)


def _has_a_closed_window(client: Client, queue: Queue) -> None:
    client.consume(queue)
    client.window.left = 0


def _has_a_small_window(client: Client, queue: Queue) -> None:
    client.consume(queue)
    client.window.left = 70


def _has_paused(client: Client, queue: Queue) -> None:
    client.consume(queue)
    client.receiver.active = False


def _has_company(client: Client, queue: Queue) -> None:
    client.consume(queue)
    Client(client.vhost).consume(queue, "other")


@pytest.mark.parametrize(
    "prepare",
    [_is_full, _shares_a_prefetch, _has_a_closed_window, _has_a_small_window, _has_paused, _has_company],
)
def test_a_consumer_without_room_for_all_gets_nothing_at_once(
    vhost: VirtualHost, prepare: Callable[[Client, Queue], None]
) -> None:
    queue = declare(vhost)
    client = Client(vhost)
    prepare(client, queue)
    vhost.process(0.0)
    vhost.publish(run(b"x" * 100, b"y" * 100), 0.0)
    assert handed_over(client) == []
    assert queue.backlog.count == 2
    assert vhost.touched == [queue]


def test_a_window_without_room_is_remembered(vhost: VirtualHost) -> None:
    client = Client(vhost)
    client.consume(declare(vhost))
    client.window.left = 0
    vhost.publish(run(b"x"), 0.0)
    assert client.bodies() == []
    client.window.refill(100, 0.0)
    assert handed_over(client) == [b"x"]


def test_one_message_may_exceed_the_window(vhost: VirtualHost) -> None:
    client = Client(vhost)
    client.consume(declare(vhost))
    client.window.left = 1
    vhost.publish(run(b"x" * 1000), 0.0)
    assert len(handed_over(client)) == 1
    assert client.window.left < 0


def test_a_higher_priority_is_waited_for(vhost: VirtualHost) -> None:
    client = Client(vhost)
    client.consume(declare(vhost, max_priority=5))
    vhost.publish(run(b"low", priority=1), 0.0)
    vhost.publish(run(b"high", priority=4), 0.0)
    assert client.bodies() == [b"high", b"low"]


def test_the_active_one_of_several_is_remembered(vhost: VirtualHost) -> None:
    """With a hand-over, nobody would be active yet, and the next consumer of a higher priority would be."""
    queue = declare(vhost, single_active_consumer=True)
    first, second = Client(vhost), Client(vhost)
    first.consume(queue, "first")
    vhost.publish(run(b"1"), 0.0)
    vhost.process(0.0)
    second.consume(queue, "second", arguments={"x-priority": 5})
    vhost.publish(run(b"2"), 0.0)
    assert (first.bodies(), second.bodies()) == ([b"1", b"2"], [])


def test_one_of_two_who_is_left_is_the_only_one(vhost: VirtualHost) -> None:
    queue = declare(vhost)
    stays, goes = Client(vhost), Client(vhost)
    stays.consume(queue, "stays")
    leaving = goes.consume(queue, "goes")
    vhost.unsubscribe(leaving, 0.0)
    vhost.process(0.0)
    vhost.publish(run(b"x"), 0.0)
    assert handed_over(stays) == [b"x"]
    (remaining,) = queue.all_consumers()
    vhost.unsubscribe(remaining, 0.0)
    vhost.publish(run(b"y"), 0.0)
    assert queue.backlog.count == 1


def test_a_message_whose_time_is_up_at_once_reaches_who_waits(vhost: VirtualHost) -> None:
    client = Client(vhost)
    client.consume(declare(vhost, message_ttl=0))
    vhost.publish(run(b"x"), 0.0)
    assert client.bodies() == [b"x"]


def test_messages_of_different_keys_are_divided_for_who_does_not_accept_them_together(
    vhost: VirtualHost,
) -> None:
    queue = declare(vhost)
    client = Client(vhost)
    client.consume(queue)
    queue.publish_keyed(KeyedBatch([b"1", b"2"], 2, Envelope(), False, 1, keys=[b"a", b"b"]), 0.0)
    assert client.bodies() == [b"1", b"2"]
    queue.publish_keyed(KeyedBatch([b"3", b"4"], 2, Envelope(), False, 1, keys=[b"a", b"b"]), 0.0)
    vhost.process(0.0)
    deliveries = client.receiver.take_deliveries()
    assert [span.envelope.key for _, _, span in deliveries] == ["a", "b"]


def test_a_deleted_queue_hands_nothing_over(vhost: VirtualHost) -> None:
    """A transaction may have found it before."""
    queue = declare(vhost)
    client = Client(vhost)
    client.consume(queue)
    vhost.delete_queue("q", None, 0.0)
    queue.publish(run(b"x"), 0.0)
    assert client.bodies() == []


class _Noting(EmptyStore):
    """Notes in which order messages are kept and dropped."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def keep_messages(self, queue: Queue, span: Span) -> None:
        span.location = object()
        self.seen.append("keep")

    def drop_messages(self, queue: Queue, item: Any) -> None:
        self.seen.append("drop")


@pytest.mark.parametrize("auto_ack, seen", [(False, ["keep"]), (True, ["keep", "drop"])])
def test_the_store_has_a_message_before_the_consumer(auto_ack: bool, seen: list[str]) -> None:
    store = _Noting()
    vhost = Broker(store=store).vhost("/")
    queue = vhost.declare_queue("q", None, 0.0, durable=True)
    queue.stored = object()
    client = Client(vhost)
    client.receiver.on_deliveries = lambda: store.seen.append("deliver")
    client.consume(queue, auto_ack=auto_ack)
    vhost.process(0.0)
    vhost.publish(run(b"x", persistent=True), 0.0)
    assert store.seen == [*seen, "deliver"]
