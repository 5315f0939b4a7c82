"""A first acquaintance with the other Python clients: publish, confirm, get, consume, acknowledge."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import pytest

from tests.plugins.engines.amqp.conftest import Server


@pytest.mark.peer("amqp")
def test_py_amqp(server: Server) -> None:
    amqp: Any = import_module("amqp")

    received: list[str] = []
    with amqp.Connection(server.address, confirm_publish=True) as connection:
        channel = connection.channel()
        channel.queue_declare("q")
        channel.basic_publish_confirm(amqp.Message("one"), routing_key="q")
        channel.basic_publish_confirm(amqp.Message("two"), routing_key="q")
        message = channel.basic_get("q")
        channel.basic_reject(message.delivery_tag, requeue=True)
        channel.basic_qos(0, 1, False)

        def on_message(message: Any) -> None:
            received.append(message.body)
            message.channel.basic_ack(message.delivery_tag)

        channel.basic_consume("q", callback=on_message)
        while len(received) < 2:
            connection.drain_events(timeout=5)
    assert received == ["one", "two"]


@pytest.mark.peer("kombu")
def test_kombu(server: Server) -> None:
    kombu: Any = import_module("kombu")

    exchange = kombu.Exchange("media", "direct", durable=True)
    queue = kombu.Queue("video", exchange=exchange, routing_key="video")
    received: list[object] = []

    def on_message(body: object, message: Any) -> None:
        received.append(body)
        message.ack()

    with kombu.Connection(server.url) as connection:
        with connection.Producer(serializer="json") as producer:
            producer.publish({"name": "a.avi"}, exchange=exchange, routing_key="video", declare=[queue])
        with connection.Consumer([queue], callbacks=[on_message]):
            connection.drain_events(timeout=5)
        simple = connection.SimpleQueue("simple")
        simple.put("hello")
        simple.get(timeout=5).ack()
        simple.close()
    assert received == [{"name": "a.avi"}]


@pytest.mark.peer("amqpstorm")
def test_amqpstorm(server: Server) -> None:
    amqpstorm: Any = import_module("amqpstorm")

    with (
        amqpstorm.Connection("127.0.0.1", "guest", "guest", port=server.port) as connection,
        connection.channel() as channel,
    ):
        channel.confirm_deliveries()
        channel.queue.declare("q")
        assert channel.basic.publish("one", "q", mandatory=True)
        channel.basic.get("q").nack(requeue=True)
        again = channel.basic.get("q")
        assert (again.body, again.redelivered) == ("one", True)
        again.ack()
        with pytest.raises(amqpstorm.AMQPChannelError, match="NOT_FOUND"):
            channel.queue.declare("none", passive=True)
