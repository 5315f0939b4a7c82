"""Clients of others against our broker; and the same tests against RabbitMQ, which proves the tests."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from tests.interop.brokers import Broker, KernelProcess
from tests.interop.managed_brokers import Managed, managed_rabbitmq, watched_broker
from tests.interop.mqtt_brokers import Mosquitto, MqttBroker, MqttKernel
from tests.plugins.engines.amqp_client.rabbitmq import RabbitMq

Connect = Callable[..., pika.BlockingConnection]

KINDS = ["kernel", pytest.param("rabbitmq", marks=[pytest.mark.peer("rabbitmq"), pytest.mark.slow])]


@pytest.fixture(scope="session")
def kernel_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KernelProcess]:
    """One broker of ours for all tests."""
    with KernelProcess(tmp_path_factory.mktemp("kernel")) as process:
        yield process


@pytest.fixture(params=KINDS)
def broker(request: pytest.FixtureRequest) -> Broker:
    """Our broker, then RabbitMQ."""
    if request.param == "kernel":
        process: KernelProcess = request.getfixturevalue("kernel_process")
        return process.broker
    return Broker("rabbitmq", request.getfixturevalue("rabbitmq").port)


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A name for queues and exchanges that no other test uses: brokers are shared."""
    return re.sub(r"\W+", "-", f"{request.node.path.stem}-{request.node.name}").strip("-")


@pytest.fixture
def connect_to() -> Iterator[Connect]:
    """Make connections with pika, to a port, that are closed at the end."""
    made: list[pika.BlockingConnection] = []

    def make(
        port: int, user: str = "guest", password: str = "guest", **parameters: Any
    ) -> pika.BlockingConnection:
        login = pika.PlainCredentials(user, password)
        where = pika.ConnectionParameters("127.0.0.1", port, credentials=login, **parameters)
        made.append(pika.BlockingConnection(where))
        return made[-1]

    yield make
    for connection in made:
        # The broker may have closed it, which pika would notice when it reads.
        with contextlib.suppress(pika.exceptions.AMQPError):
            connection.close()


@pytest.fixture
def connect(broker: Broker, connect_to: Connect) -> Connect:
    """Make connections with pika that are closed at the end."""
    return partial(connect_to, broker.port)


@pytest.fixture
def channel(connect: Connect) -> BlockingChannel:
    """A channel of a pika connection."""
    return connect().channel()


@pytest.fixture(scope="session")
def mqtt_kernel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MqttKernel]:
    """One broker of ours with listeners for MQTT, for all tests."""
    with MqttKernel(tmp_path_factory.mktemp("mqtt")) as process:
        yield process


@pytest.fixture(scope="session")
def mosquitto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mosquitto]:
    """One mosquitto for all tests."""
    process = Mosquitto(tmp_path_factory.mktemp("mosquitto"))
    yield process
    process.stop()


@pytest.fixture
def rabbitmq_with_mqtt(rabbitmq: RabbitMq) -> MqttBroker:
    """RabbitMQ with its plugin for MQTT."""
    return MqttBroker("rabbitmq", rabbitmq.mqtt_port, amqp_port=rabbitmq.port)


@pytest.fixture(params=["kernel", pytest.param("mosquitto", marks=pytest.mark.peer("mosquitto"))])
def mqtt_broker(request: pytest.FixtureRequest) -> MqttBroker:
    """Our broker, then mosquitto."""
    fixture = "mqtt_kernel" if request.param == "kernel" else "mosquitto"
    found: MqttBroker = request.getfixturevalue(fixture).mqtt
    return found


@pytest.fixture(scope="session")
def managed_by_kernel() -> Iterator[Managed]:
    """One broker of ours with the management API, for all tests."""
    with watched_broker() as managed:
        yield managed


@pytest.fixture(scope="session")
def managed_by_rabbitmq(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Managed]:
    """One RabbitMQ with its management plugin, for all tests."""
    with managed_rabbitmq(tmp_path_factory.mktemp("rabbitmq-management")) as managed:
        yield managed


@pytest.fixture(params=KINDS)
def managed(request: pytest.FixtureRequest) -> Managed:
    """Our broker with the management API, then RabbitMQ's."""
    found: Managed = request.getfixturevalue(f"managed_by_{request.param}")
    return found
