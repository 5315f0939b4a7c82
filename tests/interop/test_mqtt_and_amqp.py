"""MQTT and AMQP clients of the same broker: paho-mqtt and pika exchange messages, requests and answers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from tests.interop.mqtt_brokers import MqttKernel
from tests.interop.paho_client import Paho
from tests.interop.until import until

pytestmark = [pytest.mark.peer("paho-mqtt"), pytest.mark.peer("pika")]


@pytest.fixture
def amqp(mqtt_kernel: MqttKernel) -> Iterator[BlockingChannel]:
    """A channel of an AMQP client of the same broker."""
    where = pika.ConnectionParameters("127.0.0.1", mqtt_kernel.mqtt.amqp_port)
    with pika.BlockingConnection(where) as connection:
        yield connection.channel()


def get(channel: BlockingChannel, queue: str) -> tuple[Any, Any, bytes]:
    """Return the next message of a queue."""

    def there() -> Any:
        method, properties, body = channel.basic_get(queue, auto_ack=True)
        return method and (method, properties, body)

    found: tuple[Any, Any, bytes] = until(there)
    return found


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_queue_bound_to_amq_topic(
    mqtt_kernel: MqttKernel, amqp: BlockingChannel, name: str, qos: int
) -> None:
    amqp.queue_declare(name, exclusive=True)
    amqp.queue_bind(name, "amq.topic", f"{name}.*.temperature")
    with Paho(mqtt_kernel.mqtt, name) as sensor:
        sensor.publish(f"{name}/kitchen/temperature", b"21.5", qos)
        sensor.publish(f"{name}/kitchen/humidity", b"50", qos)
        sensor.publish(f"{name}/cellar/temperature", b"12", qos)
    for room, value in (("kitchen", b"21.5"), ("cellar", b"12")):
        method, properties, body = get(amqp, name)
        assert (method.exchange, method.routing_key) == ("amq.topic", f"{name}.{room}.temperature")
        assert (body, properties.delivery_mode) == (value, 2 if qos else None)


@pytest.mark.parametrize("qos", [0, 1])
def test_from_amqp_to_mqtt(mqtt_kernel: MqttKernel, amqp: BlockingChannel, name: str, qos: int) -> None:
    amqp.confirm_delivery()
    with Paho(mqtt_kernel.mqtt, name) as subscriber:
        subscriber.subscribe(f"{name}/+/set", qos)
        amqp.basic_publish("amq.topic", f"{name}.lamp.set", b"on", pika.BasicProperties(delivery_mode=2))
        amqp.basic_publish("amq.topic", f"{name}.lamp.set", b"off")
        persistent, transient = subscriber.next(), subscriber.next()
    assert (persistent.topic, bytes(persistent.payload), persistent.qos) == (f"{name}/lamp/set", b"on", qos)
    assert (bytes(transient.payload), transient.qos) == (b"off", 0)


def test_dots_and_slashes_change_places(mqtt_kernel: MqttKernel, amqp: BlockingChannel, name: str) -> None:
    amqp.queue_declare(name, exclusive=True)
    amqp.queue_bind(name, "amq.topic", f"{name}.#")
    with Paho(mqtt_kernel.mqtt, name) as client:
        client.publish(f"{name}/v1.2/a", b"up")
        assert get(amqp, name)[0].routing_key == f"{name}.v1/2.a"
        client.subscribe(f"{name}/v1.2/+", 1)
        amqp.basic_publish("amq.topic", f"{name}.v1/2.b", b"down")
        assert client.next().topic == f"{name}/v1.2/b"


def test_properties_to_amqp(mqtt_kernel: MqttKernel, amqp: BlockingChannel, name: str) -> None:
    amqp.queue_declare(name, exclusive=True)
    amqp.queue_bind(name, "amq.topic", name)
    with Paho(mqtt_kernel.mqtt, name, version=5) as client:
        client.publish(
            name,
            b"body",
            ContentType="application/json",
            CorrelationData=b"request 7",
            ResponseTopic="answers/here",
            MessageExpiryInterval=600,
            PayloadFormatIndicator=1,
            UserProperty=[("a", "1"), ("b", "2"), ("a", "3")],
        )
    _, properties, body = get(amqp, name)
    assert body == b"body"
    assert properties.content_type == "application/json"
    assert properties.correlation_id == "request 7"
    assert properties.reply_to == "answers.here"
    assert properties.headers == {"a": "3", "b": "2"}
    assert properties.delivery_mode == 2
    assert properties.expiration == "600000"


def test_properties_to_mqtt(mqtt_kernel: MqttKernel, amqp: BlockingChannel, name: str) -> None:
    given = pika.BasicProperties(
        content_type="application/json",
        correlation_id="request 7",
        reply_to="answers.here",
        expiration="600000",
        headers={"text": "x", "number": 5, "yes": True, "table": {"no": "text"}},
        delivery_mode=2,
    )
    with Paho(mqtt_kernel.mqtt, name, version=5) as client:
        client.subscribe(name, 1)
        amqp.basic_publish("amq.topic", name, b"body", given)
        message = client.next()
    assert message.qos == 1
    got = message.properties.json()
    assert 590 < got.pop("MessageExpiryInterval") <= 600
    assert got == {
        "ContentType": "application/json",
        "CorrelationData": b"request 7".hex(),
        "ResponseTopic": "answers/here",
        "UserProperty": [("text", "x"), ("number", "5"), ("yes", "true")],
    }


def test_mqtt_asks_and_amqp_answers(mqtt_kernel: MqttKernel, amqp: BlockingChannel, name: str) -> None:
    """The answer goes to ``amq.topic``, with the key in ``reply_to``."""
    amqp.queue_declare(name, exclusive=True)
    amqp.queue_bind(name, "amq.topic", f"{name}.ask")
    with Paho(mqtt_kernel.mqtt, f"{name}-c", version=5) as asker:
        asker.subscribe(f"{name}/answers/me", 1)
        asker.publish(f"{name}/ask", b"6*7", ResponseTopic=f"{name}/answers/me", CorrelationData=b"1")
        _, properties, _ = get(amqp, name)
        answer = pika.BasicProperties(correlation_id=properties.correlation_id)
        amqp.basic_publish("amq.topic", properties.reply_to, b"42", answer)
        message = asker.next()
    assert (bytes(message.payload), message.properties.CorrelationData) == (b"42", b"1")


def test_amqp_asks_and_mqtt_answers(mqtt_kernel: MqttKernel, amqp: BlockingChannel, name: str) -> None:
    """The queue for answers is bound to ``amq.topic`` with its own name."""
    answers = amqp.queue_declare("", exclusive=True).method.queue
    amqp.queue_bind(answers, "amq.topic", answers)
    with Paho(mqtt_kernel.mqtt, f"{name}-c", version=5) as worker:
        worker.subscribe(f"{name}/ask", 1)
        asked = pika.BasicProperties(reply_to=answers, correlation_id="1")
        amqp.basic_publish("amq.topic", f"{name}.ask", b"6*7", asked)
        request = worker.next()
        correlation = request.properties.CorrelationData
        worker.publish(request.properties.ResponseTopic, b"42", CorrelationData=correlation)
        _, properties, body = get(amqp, answers)
    assert (body, properties.correlation_id) == (b"42", "1")


def test_members_of_a_shared_subscription_and_an_amqp_consumer_compete(
    mqtt_kernel: MqttKernel, amqp: BlockingChannel, name: str
) -> None:
    with Paho(mqtt_kernel.mqtt, f"{name}-w", version=5) as worker:
        worker.subscribe(f"$share/workers/{name}/#", 1)
        taken: list[int] = []
        amqp.basic_qos(prefetch_count=1)

        def take(channel: BlockingChannel, method: Any, _: Any, body: bytes) -> None:
            taken.append(int(body))
            channel.basic_ack(method.delivery_tag)

        amqp.basic_consume(f"mqtt.share.workers.{name}.#", take)
        for number in range(200):
            amqp.basic_publish("amq.topic", f"{name}.{number}", b"%d" % number)
        got: list[int] = []

        def all_there() -> bool:
            amqp.connection.process_data_events(0.01)
            while not worker.got.empty():
                got.append(int(worker.next().payload))
            return len(got) + len(taken) >= 200

        until(all_there)
    assert sorted(got + taken) == list(range(200))
    assert got, "the member has had some"
    assert taken, "the consumer has had some"


def test_a_retained_message_is_an_ordinary_one_for_amqp(
    mqtt_kernel: MqttKernel, amqp: BlockingChannel, name: str
) -> None:
    amqp.queue_declare(name, exclusive=True)
    amqp.queue_bind(name, "amq.topic", name)
    with Paho(mqtt_kernel.mqtt, name) as client:
        client.publish(name, b"kept", retain=True)
        client.publish(name, b"", retain=True)
    assert [get(amqp, name)[2] for _ in range(2)] == [b"kept", b""]


def test_a_key_that_is_no_topic_is_for_others(
    mqtt_kernel: MqttKernel, amqp: BlockingChannel, name: str
) -> None:
    amqp.confirm_delivery()
    with Paho(mqtt_kernel.mqtt, name, version=5) as client:
        client.subscribe("#", 1, options={"retainHandling": 2})
        for key in ("", f"{name}.*", f"{name}.#.x", f"{name}.good"):
            amqp.basic_publish("amq.topic", key, key.encode())
        assert client.next().topic == f"{name}/good"
