"""Everyday life with kombu."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest

from tests.interop.brokers import Broker
from tests.interop.until import until
from tests.peers import optional

kombu: Any = optional("kombu")

pytestmark = pytest.mark.peer("kombu")


def test_producers_consumers_and_simple_queues(broker: Broker, name: str) -> None:
    exchange = kombu.Exchange(f"{name}.media", "direct", durable=True)
    queue = kombu.Queue(f"{name}.video", exchange=exchange, routing_key="video")
    received: list[object] = []

    def on_message(body: object, message: Any) -> None:
        received.append(body)
        message.ack()

    with kombu.Connection(broker.url) as connection:
        with connection.Producer(serializer="json") as producer:
            producer.publish({"name": "a.avi"}, exchange=exchange, routing_key="video", declare=[queue])
        with connection.Consumer([queue], callbacks=[on_message]):
            connection.drain_events(timeout=60)
        simple = connection.SimpleQueue(f"{name}.simple")
        simple.put("hello")
        simple.get(timeout=60).ack()
        simple.close()
    assert received == [{"name": "a.avi"}]


def test_serializers_compression_and_priorities(broker: Broker, name: str) -> None:
    queue = kombu.Queue(name, routing_key=name, durable=False, max_priority=9)
    body = {"text": "Grüße " * 1000, "numbers": list(range(100))}
    with kombu.Connection(broker.url) as connection, connection.channel() as channel:
        queue = queue(channel)
        queue.declare()
        producer = kombu.Producer(channel)
        for priority, serializer in enumerate(("json", "yaml", "pickle")):
            producer.publish(
                body, routing_key=name, serializer=serializer, compression="gzip", priority=priority
            )
        got = [queue.get(accept=["json", "yaml", "pickle"]) for _ in range(3)]
        assert [message.payload for message in got] == [body] * 3
        assert [message.properties["priority"] for message in got] == [2, 1, 0]
        assert [message.delivery_tag for message in got] == [1, 2, 3]
        channel.basic_ack(3, multiple=True)


def test_requeue_reject_and_dead_letters(broker: Broker, name: str) -> None:
    dead = kombu.Queue(f"{name}.dead", durable=False)
    queue = kombu.Queue(
        name, durable=False, queue_arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead.name}
    )  # fmt: skip
    with kombu.Connection(broker.url) as connection, connection.channel() as channel:
        for each in (dead, queue):
            each(channel).declare()
        kombu.Producer(channel).publish("x", routing_key=name)
        queue(channel).get().requeue()
        again = queue(channel).get()
        assert again.delivery_info["redelivered"]
        again.reject()
        assert until(dead(channel).get).headers["x-death"][0]["reason"] == "rejected"


def test_a_consumer_mixin_style_loop_with_prefetch(broker: Broker, name: str) -> None:
    queue = kombu.Queue(name, durable=False)
    outstanding: list[Any] = []
    with kombu.Connection(broker.url, heartbeat=10) as connection, connection.channel() as channel:
        queue(channel).declare()
        producer = kombu.Producer(channel)
        for number in range(50):
            producer.publish(number, routing_key=name)
        consumer = kombu.Consumer(
            channel, [queue], on_message=outstanding.append, prefetch_count=10, accept=["json"]
        )
        with consumer:
            done: list[int] = []
            while len(done) < 50:
                while len(outstanding) < 10:
                    connection.drain_events(timeout=60)
                with contextlib.suppress(TimeoutError):
                    connection.drain_events(timeout=0.05)
                assert len(outstanding) == 10
                done += [message.payload for message in outstanding]
                outstanding[-1].channel.basic_ack(outstanding[-1].delivery_tag, multiple=True)
                outstanding.clear()
    assert done == list(range(50))


def test_broadcast_reaches_every_consumer(broker: Broker, name: str) -> None:
    exchange = kombu.Exchange(name, "fanout", durable=False, auto_delete=True)
    received: list[str] = []
    with kombu.Connection(broker.url) as connection, connection.channel() as channel:
        queues = [kombu.Queue("", exchange, exclusive=True)(channel) for _ in range(3)]
        for queue in queues:
            queue.declare()
        consumers = [
            kombu.Consumer(
                channel, [queue], callbacks=[lambda body, message: received.append(body)], auto_declare=False
            )
            for queue in queues
        ]
        for consumer in consumers:
            consumer.consume(no_ack=True)
        kombu.Producer(channel).publish("all", exchange=name)
        while len(received) < 3:
            connection.drain_events(timeout=60)
    assert received == ["all"] * 3


def test_it_retries_until_the_broker_is_there(broker: Broker) -> None:
    with kombu.Connection(broker.url) as connection:
        connection.ensure_connection(max_retries=3)
        revived = connection.clone()
        revived.ensure_connection(max_retries=3, errback=lambda error, wait: pytest.fail(str(error)))
        revived.release()
