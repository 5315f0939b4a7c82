"""What clients met on our broker and not on RabbitMQ: the same program runs against both."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pika
import pika.exceptions
import pytest

from tests.interop.conftest import Connect

pytestmark = pytest.mark.peer("pika")

REPLY_TO = "amq.rabbitmq.reply-to"


def test_a_product_and_a_version_that_clients_decide_by(connect: Connect) -> None:
    """kombu shares a prefetch among consumers only if the product is this one; Java's client compares the version."""
    properties = connect()._impl.server_properties
    assert properties["product"] == "RabbitMQ"
    assert [int(part) for part in properties["version"].split(".")][:2] >= [3, 10]


def test_a_shared_prefetch_starves_no_queue(connect: Connect, name: str) -> None:
    """One message at a time for all consumers of a channel: each queue has its turn."""
    channel = connect().channel()
    names = [f"{name}.{number}" for number in range(3)]
    channel.basic_qos(prefetch_count=1, global_qos=True)
    for each in names:
        channel.queue_declare(each)
        for number in range(100):
            channel.basic_publish("", each, b"%d" % number)
    taken: Counter[str] = Counter()

    def take(_: Any, method: Any, properties: Any, body: bytes) -> None:
        taken[method.routing_key] += 1
        channel.basic_ack(method.delivery_tag)
        if taken.total() == 99:
            channel.stop_consuming()

    for each in names:
        channel.basic_consume(each, take)
    channel.start_consuming()
    assert min(taken[each] for each in names) >= 20, taken


@pytest.mark.parametrize("passive", [True, False])
def test_the_queue_of_direct_replies_may_be_declared(connect: Connect, passive: bool) -> None:
    channel = connect().channel()
    assert channel.queue_declare(REPLY_TO, passive=passive).method.queue == REPLY_TO
    channel.basic_consume(REPLY_TO, lambda *_: None, auto_ack=True)
    assert channel.queue_declare(REPLY_TO, passive=passive).method.queue == REPLY_TO


@pytest.mark.parametrize("argument", ["x-message-ttl", "x-expires"])
@pytest.mark.parametrize("milliseconds, allowed", [(134_217_728_000, True), (315_360_000_001, False)])
def test_times_of_years(connect: Connect, name: str, argument: str, milliseconds: int, allowed: bool) -> None:
    """Celery's delayed delivery declares queues with a time to live of 134,217,728 seconds."""
    channel = connect().channel()
    if allowed:
        channel.queue_declare(name, arguments={argument: milliseconds})
        return
    with pytest.raises(pika.exceptions.ChannelClosedByBroker, match=f"value_too_large,{milliseconds}"):
        channel.queue_declare(name, arguments={argument: milliseconds})


def test_a_message_that_lives_for_years(connect: Connect, name: str) -> None:
    channel = connect().channel()
    channel.queue_declare(name)
    channel.basic_publish("", name, b"x", pika.BasicProperties(expiration="134217728000"))
    assert channel.basic_get(name, auto_ack=True)[2] == b"x"


def test_a_message_that_would_live_longer_is_refused(connect: Connect, name: str) -> None:
    channel = connect().channel()
    channel.confirm_delivery()
    with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="invalid expiration .*value_too_large"):
        channel.basic_publish("", name, b"x", pika.BasicProperties(expiration="315360000001"))


def test_another_secret_is_accepted(connect: Connect, name: str) -> None:
    connection = connect()
    connection.update_secret("another", "it is time")
    connection.channel().queue_declare(name)


@pytest.mark.parametrize("again", ["10", True])
def test_an_argument_of_another_type_is_another_one(connect: Connect, name: str, again: Any) -> None:
    connection = connect()
    connection.channel().queue_declare(name, arguments={"x-max-length": 10})
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as refused:
        connection.channel().queue_declare(name, arguments={"x-max-length": again})
    assert refused.value.reply_code == 406
