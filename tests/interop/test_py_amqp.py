"""Everyday life with py-amqp, on which kombu and Celery stand."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.interop.brokers import Broker
from tests.peers import optional

amqp: Any = optional("amqp")

pytestmark = pytest.mark.peer("amqp")


@pytest.fixture
def connection(broker: Broker) -> Iterator[Any]:
    with amqp.Connection(broker.address) as made:
        yield made


@pytest.fixture
def channel(connection: Any) -> Any:
    return connection.channel()


def drain(connection: Any, there: Any) -> None:
    while not there():
        connection.drain_events(timeout=60)


def test_confirms_get_reject_and_consume(broker: Broker, name: str) -> None:
    received: list[str] = []
    with amqp.Connection(broker.address, confirm_publish=True) as connection:
        channel = connection.channel()
        channel.queue_declare(name)
        channel.basic_publish_confirm(amqp.Message("one"), routing_key=name)
        channel.basic_publish_confirm(amqp.Message("two"), routing_key=name)
        message = channel.basic_get(name)
        channel.basic_reject(message.delivery_tag, requeue=True)
        channel.basic_qos(0, 1, False)

        def on_message(message: Any) -> None:
            received.append(message.body)
            message.channel.basic_ack(message.delivery_tag)

        channel.basic_consume(name, callback=on_message)
        drain(connection, lambda: len(received) == 2)
    assert received == ["one", "two"]


def test_declare_bind_unbind_and_delete(channel: Any, name: str) -> None:
    channel.exchange_declare(name, "topic", auto_delete=False)
    channel.exchange_declare(f"{name}.inner", "fanout", auto_delete=False)
    channel.exchange_bind(f"{name}.inner", name, "a.*")
    assert channel.queue_declare(name).queue == name
    channel.queue_bind(name, f"{name}.inner")
    channel.confirm_select()
    for key in ("a.b", "b.a"):
        channel.basic_publish_confirm(amqp.Message(key), name, key)
    assert channel.queue_declare(name, passive=True).message_count == 1
    channel.exchange_unbind(f"{name}.inner", name, "a.*")
    channel.basic_publish_confirm(amqp.Message("late"), name, "a.b")
    assert channel.queue_purge(name) == 1
    channel.queue_unbind(name, f"{name}.inner")
    assert channel.queue_delete(name) == 0
    channel.exchange_delete(name)
    with pytest.raises(amqp.NotFound, match="no exchange"):
        channel.exchange_declare(name, "topic", passive=True)


def test_headers_of_all_types_and_large_bodies(channel: Any, name: str) -> None:
    channel.queue_declare(name)
    headers = {
        "text": "Grüße", "small": -7, "large": 1 << 40, "yes": True, "none": None, "number": 1.5,
        "when": datetime(2026, 11, 21, 12, 0, 0, tzinfo=UTC), "list": [1, "two", [3]], "table": {"in": {"in": 1}},
    }  # fmt: skip
    body = bytes(range(256)) * 4096 * 20
    channel.basic_publish(amqp.Message(body, application_headers=headers, priority=3), routing_key=name)
    message = channel.basic_get(name, no_ack=True)
    assert message.body == body
    got = message.headers
    assert {key: value for key, value in got.items() if key != "when"} == {
        key: value for key, value in headers.items() if key != "when"
    }
    assert got["when"].replace(tzinfo=UTC) == headers["when"]
    assert message.properties["priority"] == 3


def test_a_mandatory_message_without_a_queue_comes_back(connection: Any, channel: Any, name: str) -> None:
    returned: list[tuple[int, str]] = []
    channel.events["basic_return"].add(
        lambda exception, exchange, key, message: returned.append((exception.reply_code, key))
    )
    channel.basic_publish(amqp.Message("x"), routing_key=name, mandatory=True)
    drain(connection, lambda: returned)
    assert returned == [(312, name)]


def test_a_transaction(channel: Any, name: str) -> None:
    channel.queue_declare(name)
    channel.tx_select()
    channel.basic_publish(amqp.Message("no"), routing_key=name)
    channel.tx_rollback()
    channel.basic_publish(amqp.Message("yes"), routing_key=name)
    channel.tx_commit()
    assert channel.basic_get(name).body == "yes"


def test_a_consumer_is_told_that_its_queue_is_gone(connection: Any, channel: Any, name: str) -> None:
    gone: list[str] = []
    channel.queue_declare(name)
    tag = channel.basic_consume(name, on_cancel=gone.append)
    connection.channel().queue_delete(name)
    drain(connection, lambda: gone)
    assert gone == [tag]


@pytest.mark.parametrize(
    "misuse, error",
    [
        (lambda channel, name: channel.queue_declare(name, passive=True), "NotFound"),
        (lambda channel, name: channel.queue_declare("amq.mine"), "AccessRefused"),
        (lambda channel, name: channel.queue_declare(name, arguments={"x-max-length": -1}), "PreconditionFailed"),
        (lambda channel, name: channel.tx_commit(), "PreconditionFailed"),
    ],
)  # fmt: skip
def test_misuse_is_told_by_its_name(channel: Any, name: str, misuse: Any, error: str) -> None:
    with pytest.raises(getattr(amqp, error)):
        misuse(channel, name)


def test_a_wrong_password_and_a_virtual_host_that_is_not_there(broker: Broker) -> None:
    with pytest.raises(amqp.AccessRefused, match="Login was refused"):
        amqp.Connection(broker.address, password="wrong").connect()
    with pytest.raises(amqp.NotAllowed, match="vhost nope not found"):
        amqp.Connection(broker.address, virtual_host="nope").connect()


@pytest.mark.slow
def test_heartbeats_keep_a_connection(broker: Broker, name: str) -> None:
    with amqp.Connection(broker.address, heartbeat=3) as connection:
        assert connection.heartbeat == 3
        channel = connection.channel()
        for _ in range(16):
            with pytest.raises(socket.timeout):
                connection.drain_events(timeout=0.5)
            connection.heartbeat_tick()
        channel.queue_declare(name)
