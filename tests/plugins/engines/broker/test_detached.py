"""A session that outlives its connection: its receiver is detached, and attached to the next one."""

from __future__ import annotations

import pytest

from plugins.engines.broker.queue import Queue
from plugins.engines.broker.receiver import Window
from plugins.engines.broker.virtual_host import VirtualHost
from tests.plugins.engines.broker.client import PLENTY, Client, make_vhost, run


@pytest.fixture
def vhost() -> VirtualHost:
    return make_vhost()


@pytest.fixture
def client(vhost: VirtualHost) -> Client:
    client = Client(vhost)
    client.consume(vhost.declare_queue("q", None, 0.0))
    return client


def publish(vhost: VirtualHost, *bodies: bytes) -> None:
    vhost.publish(run(*bodies, key="q"), 0.0)
    vhost.process(0.0)


def attach(client: Client) -> list[str]:
    """Attach the receiver to a new connection; return what that one is told."""
    told: list[str] = []
    client.receiver.attach(
        Window(PLENTY), lambda: told.append("deliveries"), lambda consumer: told.append(f"no {consumer.tag}")
    )
    client.vhost.process(0.0)
    return told


def test_a_detached_receiver_is_handed_nothing(vhost: VirtualHost, client: Client) -> None:
    client.receiver.detach()
    publish(vhost, b"1")
    assert client.receiver.deliveries == []
    assert vhost.queues["q"].backlog.count == 1
    assert attach(client) == ["deliveries"]
    assert client.received() == [(1, b"1")]


def test_what_is_outstanding_stays_so_and_can_be_looked_at(vhost: VirtualHost, client: Client) -> None:
    publish(vhost, b"1", b"2", b"3")
    assert len(client.received()) == 3
    client.receiver.acknowledge(2, 2, multiple=False)
    client.receiver.detach()
    attach(client)
    outstanding = [
        (handed.first_tag + offset, body)
        for handed in client.receiver.unacked
        for offset, body in enumerate(handed.span.as_batch().bodies)
    ]
    assert outstanding == [(1, b"1"), (3, b"3")]
    client.receiver.acknowledge(1, 1, multiple=False)
    client.receiver.acknowledge(3, 3, multiple=False)
    assert vhost.queues["q"].outstanding == 0


def test_what_was_handed_over_and_not_encoded_waits_for_the_next_connection(
    vhost: VirtualHost, client: Client
) -> None:
    publish(vhost, b"1")
    client.receiver.detach()
    assert attach(client) == ["deliveries"]
    assert client.received() == [(1, b"1")]


def test_others_get_what_comes_while_one_is_detached(vhost: VirtualHost, client: Client) -> None:
    other = Client(vhost)
    other.consume(vhost.queues["q"], "other")
    client.receiver.detach()
    publish(vhost, b"1", b"2")
    assert [body for _, body in other.received()] == [b"1", b"2"]


def test_the_end_of_a_queue_is_told_to_the_next_connection(vhost: VirtualHost, client: Client) -> None:
    client.receiver.detach()
    vhost.delete_queue("q", None, 0.0)
    assert client.cancelled == []
    assert attach(client) == ["no c"]


def test_a_detached_receiver_leaves_nothing_with_the_window_that_it_had(
    vhost: VirtualHost, client: Client
) -> None:
    client.receiver.detach()
    publish(vhost, b"1")
    assert client.window.starved == {}


@pytest.fixture
def single(vhost: VirtualHost) -> Queue:
    return vhost.declare_queue("q", None, 0.0, arguments={"x-single-active-consumer": True})


def test_another_becomes_the_active_consumer_when_the_first_is_detached(
    vhost: VirtualHost, single: Queue
) -> None:
    first, second = Client(vhost), Client(vhost)
    first.consume(single)
    second.consume(single)
    publish(vhost, b"1")
    assert first.received() == [(1, b"1")]
    first.receiver.acknowledge(1, 1, multiple=False)
    first.receiver.detach()
    publish(vhost, b"2")
    assert second.bodies() == [b"2"]
    assert attach(first) == []
    publish(vhost, b"3")
    assert (first.bodies(), second.bodies()) == ([], [b"3"])


def test_who_follows_a_detached_consumer_waits_for_what_that_one_held(
    vhost: VirtualHost, single: Queue
) -> None:
    first, second = Client(vhost), Client(vhost)
    active = first.consume(single, prefetch=1)
    second.consume(single)
    publish(vhost, b"1", b"2")
    assert first.bodies() == [b"1"]
    first.receiver.detach()
    assert second.bodies() == []
    vhost.unsubscribe(active, 0.0)
    first.receiver.recover()
    assert second.bodies() == [b"1", b"2"]


def test_messages_wait_while_all_consumers_are_detached(vhost: VirtualHost, single: Queue) -> None:
    first, second = Client(vhost), Client(vhost)
    for client in (first, second):
        client.consume(single)
        client.receiver.detach()
    publish(vhost, b"1")
    assert attach(second) == ["deliveries"]
    assert second.bodies() == [b"1"]


def test_the_active_consumer_is_detached_while_messages_wait_for_it(
    vhost: VirtualHost, single: Queue
) -> None:
    first, second = Client(vhost), Client(vhost)
    first.consume(single)
    second.consume(single)
    first.receiver.active = False  # paused by its client
    publish(vhost, b"1")
    assert second.bodies() == []
    first.receiver.detach()
    assert second.bodies() == [b"1"]
