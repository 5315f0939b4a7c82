"""What clients met on our broker and not on RabbitMQ: the same program runs against both."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from struct import pack
from typing import Any

import pika
import pika.exceptions
import pytest

from plugins.protocols.amqp091.content import ContentProperties
from plugins.protocols.amqp091.events import Got
from plugins.protocols.amqp091.methods import basic, confirm, queue
from tests.interop.brokers import Broker
from tests.interop.conftest import Connect
from tests.plugins.engines.amqp.raw_client import RawClient

pytestmark = pytest.mark.peer("pika")

REPLY_TO = "amq.rabbitmq.reply-to"


@pytest.fixture
def raw(broker: Broker) -> Iterator[RawClient]:
    """A client that sends octets of its own choice."""
    with RawClient(broker.port) as client:
        yield client


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


def _long_string(text: bytes) -> bytes:
    return b"S" + pack(">I", len(text)) + text


NUMBERS = {
    "long": b"l" + pack(">q", 5),
    "short": b"s" + pack(">h", 7),
    "byte": b"b" + pack(">b", -1),
    "unsigned byte": b"B" + pack(">B", 255),
    "unsigned short": b"u" + pack(">H", 65535),
    "unsigned": b"i" + pack(">I", 4_000_000_000),
    "float": b"f" + pack(">f", 1.1),
    "in a table": b"F" + pack(">I", 5) + b"\1xs" + pack(">h", 1),
    "in an array": b"A" + pack(">I", 5) + b"f" + pack(">f", 2.5),
}
"""Headers of the types of numbers that Python does not tell apart, as octets."""


def _fields(values: dict[str, bytes]) -> list[bytes]:
    return [bytes((len(name),)) + name.encode() + value for name, value in values.items()]


def _properties(headers: dict[str, bytes], *, reply_to: str = "") -> bytes:
    """Return property flags and list with these headers and nothing else."""
    table = b"".join(_fields(headers))
    flags = 0x2000 | (0x0200 if reply_to else 0)
    return (
        pack(">HI", flags, len(table))
        + table
        + (bytes((len(reply_to),)) + reply_to.encode() if reply_to else b"")
    )


def _raw(message: Got) -> bytes:
    properties = message.batch.envelope.properties
    assert isinstance(properties, ContentProperties)
    return properties.raw


def _lost(message: Got) -> list[bytes]:
    """Return the headers of numbers that have changed on the way."""
    return [field for field in _fields(NUMBERS) if field not in _raw(message)]


def _dead_lettering(raw: RawClient, name: str, target: str) -> None:
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": target}
    raw.ask(queue.Declare(queue=name, arguments=arguments), queue.DeclareOk)


def test_headers_keep_their_types_when_messages_die(raw: RawClient, name: str) -> None:
    """Clients in typed languages cast them: a count of deaths, for example, to a long of 64 bits."""
    _dead_lettering(raw, name, f"{name}.dead")
    _dead_lettering(raw, f"{name}.dead", name)
    raw.ask(confirm.Select(), confirm.SelectOk)
    raw.publish_raw(b"x", name, "", _properties(NUMBERS))
    for number, here in enumerate((name, f"{name}.dead", name)):
        message = raw.get(here)
        assert not _lost(message)
        assert _raw(message).count(b"\5countl" + pack(">q", 1)) == number
        raw.send(basic.Reject(delivery_tag=message.delivery_tag, requeue=False))
    assert b"\5countl" + pack(">q", 2) in _raw(raw.get(f"{name}.dead"))


def test_headers_keep_their_types_beside_hidden_copies(raw: RawClient, name: str) -> None:
    raw.ask(queue.Declare(queue=name), queue.DeclareOk)
    copy = _long_string(b"nobody")
    raw.publish_raw(b"x", name, "", _properties(NUMBERS | {"BCC": b"A" + pack(">I", len(copy)) + copy}))
    message = raw.get(name)
    assert b"BCC" not in _raw(message)
    assert not _lost(message)


def test_headers_keep_their_types_beside_a_direct_reply(raw: RawClient, name: str) -> None:
    raw.ask(queue.Declare(queue=name), queue.DeclareOk)
    raw.ask(basic.Consume(queue=REPLY_TO, no_ack=True), basic.ConsumeOk)
    raw.publish_raw(b"x", name, "", _properties(NUMBERS, reply_to=REPLY_TO))
    message = raw.get(name)
    assert message.batch.envelope.reply_to.startswith(f"{REPLY_TO}.")
    assert not _lost(message)
