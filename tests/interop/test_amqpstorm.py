"""Everyday life with amqpstorm."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tests.interop.brokers import Broker
from tests.interop.until import until
from tests.peers import optional

amqpstorm: Any = optional("amqpstorm")

pytestmark = pytest.mark.peer("amqpstorm")


@pytest.fixture
def connection(broker: Broker) -> Iterator[Any]:
    with amqpstorm.Connection(broker.host, "guest", "guest", port=broker.port) as made:
        yield made


@pytest.fixture
def channel(connection: Any) -> Iterator[Any]:
    with connection.channel() as made:
        yield made


def test_confirms_get_nack_and_a_closed_channel(channel: Any, name: str) -> None:
    channel.confirm_deliveries()
    channel.queue.declare(name)
    assert channel.basic.publish("one", name, mandatory=True)
    channel.basic.get(name).nack(requeue=True)
    again = channel.basic.get(name)
    assert (again.body, again.redelivered) == ("one", True)
    again.ack()
    assert channel.basic.get(name) is None
    with pytest.raises(amqpstorm.AMQPMessageError, match="NO_ROUTE"):
        channel.basic.publish("nowhere", f"{name}.none", mandatory=True)
    with pytest.raises(amqpstorm.AMQPChannelError, match="NOT_FOUND") as closed:
        channel.queue.declare(f"{name}.none", passive=True)
    assert closed.value.error_code == 404


def test_topology(channel: Any, name: str) -> None:
    channel.confirm_deliveries()
    channel.exchange.declare(name, "headers")
    channel.exchange.declare(f"{name}.all", "fanout")
    channel.exchange.bind(f"{name}.all", name, arguments={"x-match": "any", "a": 1, "b": 2})
    channel.queue.declare(name)
    channel.queue.bind(name, f"{name}.all")
    for headers in ({"a": 1}, {"b": 2, "c": 3}, {"a": 2}):
        channel.basic.publish("x", "", name, {"headers": headers})
    assert channel.queue.declare(name, passive=True)["message_count"] == 2
    assert channel.queue.purge(name)["message_count"] == 2
    channel.exchange.unbind(f"{name}.all", name, arguments={"x-match": "any", "a": 1, "b": 2})
    channel.queue.unbind(name, f"{name}.all")
    channel.queue.delete(name)
    channel.exchange.delete(name)


def test_a_consumer_acknowledges_as_the_manual_shows(connection: Any, channel: Any, name: str) -> None:
    channel.queue.declare(name)
    for number in range(100):
        channel.basic.publish(f"Nachricht № {number}", name, properties={"correlation_id": str(number)})
    received: list[tuple[str, str]] = []
    with connection.channel() as consuming:
        consuming.basic.qos(7)
        consuming.basic.consume(queue=name, no_ack=False)
        for message in consuming.build_inbound_messages(break_on_empty=False):
            received.append((message.body, message.correlation_id))
            message.ack()
            if len(received) == 100:
                break
    assert received == [(f"Nachricht № {number}", str(number)) for number in range(100)]
    assert channel.queue.declare(name, passive=True)["message_count"] == 0


def test_transactions(channel: Any, name: str) -> None:
    channel.queue.declare(name)
    with channel.tx:
        channel.basic.publish("yes", name)
    channel.tx.select()
    channel.basic.publish("no", name)
    channel.tx.rollback()
    assert [channel.basic.get(name, no_ack=True).body, channel.basic.get(name)] == ["yes", None]


def test_threads_share_a_connection(connection: Any, channel: Any, name: str) -> None:
    channel.queue.declare(name)

    def publish(number: int) -> None:
        with connection.channel() as own:
            own.confirm_deliveries()
            for at in range(20):
                assert own.basic.publish(f"{number}.{at}", name)

    threads = [threading.Thread(target=publish, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    bodies = [channel.basic.get(name, no_ack=True).body for _ in range(80)]
    assert sorted(bodies) == sorted(f"{number}.{at}" for number in range(4) for at in range(20))
    for number in range(4):
        assert [body for body in bodies if body.startswith(f"{number}.")] == [
            f"{number}.{at}" for at in range(20)
        ]


def test_a_large_message(channel: Any, name: str) -> None:
    channel.queue.declare(name)
    body = "ä" * 5_000_000
    channel.basic.publish(body, name)
    assert channel.basic.get(name, no_ack=True).body == body


def test_a_consumer_is_told_that_its_queue_is_gone(connection: Any, channel: Any, name: str) -> None:
    channel.queue.declare(name)
    tag = channel.basic.consume(queue=name)
    with connection.channel() as other:
        other.queue.delete(name)
    until(lambda: tag not in channel.consumer_tags)


def test_a_wrong_password(broker: Broker) -> None:
    with pytest.raises(amqpstorm.AMQPConnectionError, match="Login was refused"):
        amqpstorm.Connection(broker.host, "guest", "wrong", port=broker.port)
