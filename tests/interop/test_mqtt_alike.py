"""The same MQTT conversations with our broker, with mosquitto and with RabbitMQ's plugin: the same answers, but for lists."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from plugins.protocols.mqtt.packets import Pingreq, Pingresp, Suback, Subscribe
from tests.interop.mqtt_brokers import MOSQUITTO_VERSION, Mosquitto, MqttBroker, MqttKernel
from tests.interop.mqtt_conversations import BOTH, ONLY_5, Lines
from tests.plugins.engines.amqp_client.rabbitmq import VERSION, RabbitMq
from tests.plugins.engines.mqtt.raw_client import TIMEOUT, Message, RawClient, publish, subscription

MOSQUITTO: dict[str, str] = {
    "a wrong password": "says that it is not authorized, where there is a code for user name and password",
    "another topic with a dollar sign": "serves them, except $SYS",
}
MOSQUITTO_5: dict[str, str] = {
    **MOSQUITTO,
    "a second connect": "closes without a reason",
    "overlapping subscriptions": "sends a copy for each subscription",
    "identifiers of subscriptions": "sends a copy for each subscription",
    "release of what is unknown": "says success",
    "acknowledgements of what is unknown": "says success",
    "subscribe to no filter": "has another reason code",
    "subscribe with QoS 3": "has another reason code",
    "a packet of type 0": "has another reason code",
    "a topic alias of zero": "has another reason code",
    "nobody has subscribed": "does not say so with QoS 2",
}
if MOSQUITTO_VERSION >= (2, 1):
    MOSQUITTO["overlapping subscriptions"] = "sends a copy for each subscription"
    MOSQUITTO_5["publish to an empty topic"] = "has another reason code"
else:
    MOSQUITTO_5 |= {
        "a packet of a server": "closes without a reason",
        "the same identifier again": "closes without a reason",
        "a receive maximum of zero": "closes without a reason",
        "publish to a wildcard": "has another reason code",
        "a shared subscription without own messages": "allows what the specification calls an error",
        "a shared subscription gets no retained message": "sends it, although the specification says no",
    }
RABBITMQ: dict[str, str] = {
    "each qos is granted": "grants QoS 1 in place of QoS 2",
    "a session and its end": "has a session from the first subscription with QoS 1 on",
    "a dot is no slash": "takes a dot for a slash",
    "subscribe to a wildcard beside text": "accepts it",
    "subscribe to an empty filter": "accepts it",
}
"""What is different there, by the name of the conversation."""
WITH_RABBITMQ = [
    "a wrong password",
    "no identifier",
    "no identifier and no clean start",
    "publish before connect",
    "a session and its end",
    "the same identifier again",
    "each qos is granted",
    "unsubscribe what was not subscribed",
    "a dot is no slash",
    "a will",
    "publish with QoS 3",
    "subscribe with wrong flags",
    "subscribe with QoS 3",
    "subscribe to a wildcard beside text",
    "subscribe to an empty filter",
]
"""RabbitMQ answers PINGREQ before what was asked for earlier.  These conversations do not need the order."""


def _have(conversation: str, broker: MqttBroker, version: int, name: str) -> Lines:
    clients: list[RawClient] = []

    def open_client() -> RawClient:
        wire = socket.create_connection((broker.host, broker.port), timeout=TIMEOUT)
        wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        clients.append(RawClient(wire, version))
        return clients[-1]

    try:
        return {**BOTH, **ONLY_5}[conversation](open_client, name)
    finally:
        for client in clients:
            client.close()


@pytest.mark.peer("mosquitto")
@pytest.mark.parametrize(
    "version, conversation", [*((4, each) for each in BOTH), *((5, each) for each in (*BOTH, *ONLY_5))]
)
def test_as_with_mosquitto(
    mqtt_kernel: MqttKernel, mosquitto: Mosquitto, name: str, version: int, conversation: str
) -> None:
    brokers = (mqtt_kernel.mqtt, mosquitto.mqtt)
    ours, theirs = (_have(conversation, broker, version, name) for broker in brokers)
    differences = MOSQUITTO if version == 4 else MOSQUITTO_5
    if conversation in differences:
        assert ours != theirs
    else:
        assert ours == theirs


_LATE = ("clients/total", "clients/disconnected", "store/messages/count", "shared_subscriptions/count")
"""Topics with which mosquitto begins and ends what it tells every ten seconds."""


def _status(broker: MqttBroker, name: str) -> set[str]:
    """Return the topics under ``$SYS`` that have a value when somebody subscribes."""
    with _connection(broker) as away:
        # One more session without a connection.  Mosquitto tells only what has changed, begins with -1 sessions
        # without one, and counts a connection without CONNECT as minus one: it may never have told their number.
        away.connect(client_id=f"{name}-away", clean_start=False)
        away.disconnect()
    with _connection(broker) as client:
        client.connect(client_id=name)
        client.send(Subscribe(1, (subscription("$SYS/#"),)))
        found: set[str] = set()
        # A mosquitto that has just started tells most of it only after ten seconds, and then not all at once.
        while not {f"$SYS/broker/{name}" for name in _LATE} <= found:
            if isinstance(came := client.next(), Message):
                found.add(came.topic)
        # Twice: what does not fit into one turn follows the first answer.
        for _ in range(2):
            client.send(Pingreq())
            while not isinstance(came := client.next(), Pingresp):
                if isinstance(came, Message):
                    found.add(came.topic)
    return found


def _connection(broker: MqttBroker) -> RawClient:
    return RawClient(socket.create_connection((broker.host, broker.port), timeout=TIMEOUT), 4)


@pytest.mark.peer("mosquitto")
def test_the_status_has_names_of_mosquitto(mqtt_kernel: MqttKernel, tmp_path: Path, name: str) -> None:
    # Other tests have bridges, whose states are kept.
    ours = {topic for topic in _status(mqtt_kernel.mqtt, name) if "/connection/" not in topic}
    # One that nobody has used: of what has become again what it was, it tells nothing.
    mosquitto = Mosquitto(tmp_path)
    try:
        theirs = _status(mosquitto.mqtt, name)
    finally:
        mosquitto.stop()
    assert len(ours) > 10
    assert ours <= theirs


@pytest.mark.slow
@pytest.mark.peer("rabbitmq")
@pytest.mark.parametrize("conversation", WITH_RABBITMQ)
def test_as_with_rabbitmq(
    mqtt_kernel: MqttKernel, rabbitmq_with_mqtt: MqttBroker, name: str, conversation: str
) -> None:
    brokers = (mqtt_kernel.mqtt, rabbitmq_with_mqtt)
    ours, theirs = (_have(conversation, broker, 4, name) for broker in brokers)
    if conversation in RABBITMQ:
        assert ours != theirs
    else:
        assert ours == theirs


_EVE = """
users.guest.password = "guest"
users.eve.password = "eve"
users.eve.topics."amq.topic".write = '^of[.]{username}[.]{client_id}$'
users.eve.topics."amq.topic".read = '^of[.]{username}[.]{client_id}$'
"""


@pytest.fixture
def limited(
    tmp_path: Path, rabbitmq: RabbitMq, rabbitmq_with_mqtt: MqttBroker
) -> Iterator[tuple[MqttBroker, MqttBroker]]:
    """Both brokers, each with a user whose topics are limited."""
    pattern = "^of[.]{username}[.]{client_id}$"
    rabbitmq.control("add_user", "eve", "eve")
    rabbitmq.control("set_permissions", "eve", ".*", ".*", ".*")
    rabbitmq.control("set_topic_permissions", "eve", "amq.topic", pattern, pattern)
    with MqttKernel(tmp_path, _EVE) as kernel:
        yield kernel.mqtt, rabbitmq_with_mqtt
    rabbitmq.control("delete_user", "eve")


@pytest.mark.slow
@pytest.mark.peer("rabbitmq")
def test_topics_that_are_not_for_a_client_as_with_rabbitmq(limited: tuple[MqttBroker, MqttBroker]) -> None:
    login = {"user_name": "eve", "password": b"eve"}
    for broker in limited:
        with _connection(broker) as client:
            client.connect(client_id="c1", **login)
            assert client.subscribe("of/eve/c1") == (0,)
            client.send(publish("of/eve/c1"))
            client.expect_message("of/eve/c1")
            client.send(publish("of/eve/c2", qos=1))
            client.expect_close()
        with _connection(broker) as client:
            client.connect(client_id="c1", **login)
            client.send(Subscribe(1, (subscription("of/eve/c2"),)))
            if broker.kind == "kernel" or VERSION >= (4, 0):
                # The answer that MQTT 3.1.1 has for it.
                assert client.expect(Suback).reason_codes == (0x80,)
            else:
                client.expect_close()
