"""Federation with RabbitMQ, each side once; and RabbitMQ's shovel between itself and our broker."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from plugins.protocols.amqp091.events import Delivered
from plugins.protocols.amqp091.methods import exchange, queue
from tests.plugins.engines.amqp.raw_client import RawClient
from tests.plugins.engines.amqp_client.rabbitmq import RabbitMq
from tests.plugins.engines.federation.conftest import Site, numbered, until

pytestmark = [
    pytest.mark.peer("rabbitmq"),
    pytest.mark.slow,
    pytest.mark.xdist_group("rabbitmq-federation"),  # one with other plugins, for all tests here
]

Make = Callable[..., Site]
RABBIT = "rabbit"
"""What the node is called as a cluster."""


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RabbitMq]:
    """A RabbitMQ that federates and shovels."""
    made = RabbitMq(tmp_path_factory.mktemp("federating"), ("rabbitmq_federation", "rabbitmq_shovel"))
    try:
        made.start()
        made.control("set_cluster_name", RABBIT)
        yield made
    finally:
        made.close()


@pytest.fixture
def rabbit(node: RabbitMq) -> Iterator[RawClient]:
    """A client of it, which has the exchange ``feed`` with the queue ``q`` and the queue ``jobs``."""
    with RawClient(node.port) as client:
        client.ask(exchange.Declare(exchange="feed", type="topic", durable=True), exchange.DeclareOk)
        for name in ("q", "jobs"):
            client.ask(queue.Declare(queue=name), queue.DeclareOk)
            client.ask(queue.Purge(queue=name), queue.PurgeOk)
        yield client


def _parameter(node: RabbitMq, kind: str, **options: Any) -> None:
    node.control("set_parameter", kind, "ours", json.dumps(options))


def _bodies(events: list[Delivered]) -> list[bytes]:
    return [bytes(body) for event in events for body in event.batch.bodies]


def test_an_exchange_with_rabbitmq_upstream(site: Make, node: RabbitMq, rabbit: RawClient) -> None:
    down = site("down")
    down.wants("k")
    down.follow(node.address)
    down.events.wait("connected", "link")
    rabbit.publish(b"not wanted", "other", "feed")
    for key, body in numbered(0, 500):
        rabbit.publish(body, key, "feed", {"delivery_mode": 2})
    events = down.take(500)
    assert _bodies(events) == [body for _, body in numbered(0, 500)]
    (step,) = events[0].batch.envelope.properties["headers"]["x-received-from"]
    assert (step["cluster-name"], step["vhost"], step["exchange"]) == (RABBIT, "/", "feed")
    assert down.figures()["messages_in"] == 500


def test_an_exchange_with_rabbitmq_downstream(site: Make, node: RabbitMq, rabbit: RawClient) -> None:
    up = site("up")
    rabbit.ask(queue.Bind(queue="q", exchange="feed", routing_key="a.#"), queue.BindOk)
    _parameter(node, "federation-upstream", uri=f"amqp://{up.address}", **{"max-hops": 2})
    node.control("set_policy", "--apply-to", "exchanges", "ours", "^feed$", '{"federation-upstream":"ours"}')
    try:
        until(lambda: up.bound(RABBIT) == {"a.#"})
        up.publish(("a.1", b"1"), ("b.1", b"nobody's"), ("a.2", b"2"))
        events = rabbit.take("q", 2)
        assert _bodies(events) == [b"1", b"2"]
        (step,) = events[0].batch.envelope.properties["headers"]["x-received-from"]
        assert (step["cluster-name"], step["exchange"]) == ("up", "feed")
        rabbit.ask(queue.Unbind(queue="q", exchange="feed", routing_key="a.#"), queue.UnbindOk)
        until(lambda: up.bound(RABBIT) == set())
    finally:
        node.control("clear_policy", "ours")
        node.control("clear_parameter", "federation-upstream", "ours")


def test_both_ways_nothing_goes_in_circles(site: Make, node: RabbitMq, rabbit: RawClient) -> None:
    ours = site("ours")
    ours.wants("k")
    rabbit.ask(queue.Bind(queue="q", exchange="feed", routing_key="k"), queue.BindOk)
    _parameter(node, "federation-upstream", uri=f"amqp://{ours.address}", **{"max-hops": 5})
    node.control("set_policy", "--apply-to", "exchanges", "ours", "^feed$", '{"federation-upstream":"ours"}')
    try:
        ours.follow(node.address, max_hops=5)
        ours.events.wait("connected", "link")
        until(lambda: ours.bound(RABBIT) == {"k"})
        ours.publish(("k", b"of ours"))
        assert _bodies(rabbit.take("q", 1)) == [b"of ours"]
        rabbit.publish(b"of rabbit", "k", "feed")
        assert ours.bodies(2) == [b"of ours", b"of rabbit"]
        assert _bodies(rabbit.take("q", 1)) == [b"of rabbit"]
        until(lambda: ours.figures()["messages_in"] + ours.figures()["messages_stopped"] >= 2)
        assert ours.count() == 0
    finally:
        node.control("clear_policy", "ours")
        node.control("clear_parameter", "federation-upstream", "ours")


def test_a_queue_with_rabbitmq_upstream(site: Make, node: RabbitMq, rabbit: RawClient) -> None:
    down = site("down")
    down.wants(name="jobs")
    for number in range(200):
        rabbit.publish(b"%d" % number, "jobs")
    down.follow(node.address, queues=["jobs"])
    down.events.wait("connected", "link")
    assert down.bodies(200, "jobs") == [b"%d" % number for number in range(200)]


def test_a_queue_with_rabbitmq_downstream(site: Make, node: RabbitMq, rabbit: RawClient) -> None:
    up = site("up")
    up.wants(name="jobs")
    for number in range(200):
        up.client.publish(b"%d" % number, "jobs")
    _parameter(node, "federation-upstream", uri=f"amqp://{up.address}")
    node.control("set_policy", "--apply-to", "queues", "ours", "^jobs$", '{"federation-upstream":"ours"}')
    try:
        assert _bodies(rabbit.take("jobs", 200)) == [b"%d" % number for number in range(200)]
    finally:
        node.control("clear_policy", "ours")
        node.control("clear_parameter", "federation-upstream", "ours")


@pytest.mark.parametrize("to_us", [True, False])
def test_rabbitmqs_shovel(site: Make, node: RabbitMq, rabbit: RawClient, to_us: bool) -> None:
    ours = site("ours")
    ours.wants(name="jobs")
    source = rabbit if to_us else ours.client
    uris = ["amqp://", f"amqp://{ours.address}"]
    if not to_us:
        uris.reverse()
    options = {"src-uri": uris[0], "src-queue": "jobs", "dest-uri": uris[1], "dest-queue": "jobs"}
    protocols = {"src-protocol": "amqp091", "dest-protocol": "amqp091"}
    _parameter(node, "shovel", **options, **protocols, **{"ack-mode": "on-confirm"})
    try:
        for number in range(200):
            source.publish(b"%d" % number, "jobs", "", {"headers": {"n": number}})
        events = ours.take(200, "jobs") if to_us else rabbit.take("jobs", 200)
        assert _bodies(events) == [b"%d" % number for number in range(200)]
    finally:
        node.control("clear_parameter", "shovel", "ours")
