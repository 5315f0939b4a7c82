"""What clients met on our broker and not on RabbitMQ: the same program runs against both."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from struct import pack
from typing import Any

import pika
import pika.exceptions
import pytest

from plugins.protocols.amqp091.content import ContentProperties
from plugins.protocols.amqp091.events import Acknowledged, Delivered, Got, Returned
from plugins.protocols.amqp091.frames import HEARTBEAT_FRAME
from plugins.protocols.amqp091.methods import access, basic, channel, confirm, exchange, queue
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


def test_a_fraction_is_no_integer_though_they_are_equal(raw: RawClient, name: str) -> None:
    """Not with pika, which sends no fractions."""
    raw.ask(queue.Declare(queue=name, arguments={"x-max-length": 10}), queue.DeclareOk)
    raw.send(queue.Declare(queue=name, arguments={"x-max-length": 10.0}))
    assert raw.refusal()[:2] == ("channel", 406)


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


def test_deaths_of_old_brokers_are_counted_together(broker: Broker, raw: RawClient, name: str) -> None:
    """They wrote an entry for each death, without a count."""
    _dead_lettering(raw, name, f"{name}.dead")
    raw.ask(queue.Declare(queue=f"{name}.dead"), queue.DeclareOk)
    old = {"queue": name, "reason": "rejected"}
    elsewhere = {"queue": "elsewhere", "reason": "expired"}
    raw.publish(b"x", name, properties={"headers": {"x-death": [old, old, elsewhere]}})
    raw.send(basic.Reject(delivery_tag=raw.get(name).delivery_tag, requeue=False))
    headers = raw.get(f"{name}.dead").batch.envelope.properties["headers"]
    if broker.is_rabbitmq(4, 0):  # it does not believe what a client says of deaths
        assert [(death["queue"], death["count"]) for death in headers["x-death"]] == [(name, 1)]
    else:
        assert headers == {"x-death": [old | {"count": 3}, elsewhere | {"count": 1}]}


def test_copies_go_by_all_keys_at_each_exchange(raw: RawClient, name: str) -> None:
    """A key of the CC header need not be bound at the exchange that leads to the one where it is."""
    names = [f"{name}.{part}" for part in ("first", "second", "alternate")]
    first, second, alternate = names
    raw.ask(exchange.Declare(exchange=second), exchange.DeclareOk)
    raw.ask(exchange.Declare(exchange=alternate), exchange.DeclareOk)
    instead = {"alternate-exchange": alternate}
    raw.ask(exchange.Declare(exchange=first, arguments=instead), exchange.DeclareOk)
    raw.ask(exchange.Bind(source=first, destination=second, routing_key="key"), exchange.BindOk)
    for each in names:
        raw.ask(queue.Declare(queue=each), queue.DeclareOk)
    raw.ask(queue.Bind(queue=second, exchange=second, routing_key="copy"), queue.BindOk)
    raw.ask(queue.Bind(queue=alternate, exchange=alternate, routing_key="copy"), queue.BindOk)
    for header in ("CC", "BCC"):
        raw.publish(header.encode(), "key", first, {"headers": {header: ["copy"]}})
        assert bytes(raw.get(second).batch.bodies[0]) == header.encode()
    # One of the keys has led on, so that the alternate exchange gets nothing.
    assert raw.ask(queue.Declare(queue=alternate, passive=True), queue.DeclareOk).message_count == 0


@pytest.mark.parametrize(
    "one, other, same, changed",
    [
        ("text", bytearray(b"text"), True, set()),
        (1, 1.0, True, {0, 1}),
        (datetime.fromtimestamp(7, UTC), 7, True, {1}),
        (1, True, False, set()),
        ("1", 1, False, set()),
        (1, Decimal(1), False, set()),
        (1.5, Decimal("1.5"), False, set()),
    ],
    ids=str,
)
def test_headers_of_different_types(
    broker: Broker, raw: RawClient, name: str, one: Any, other: Any, same: bool, changed: set[int]
) -> None:
    """Text equals octets, and a number any number; a truth value or a decimal is neither.

    ``changed``: in which ways RabbitMQ 4 says something else, the first with ``one`` in the binding.
    """
    raw.ask(confirm.Select(), confirm.SelectOk)
    for number, (bound, sent) in enumerate(((one, other), (other, one))):
        here = f"{name}.{number}"
        raw.ask(queue.Declare(queue=here, exclusive=True), queue.DeclareOk)
        raw.ask(queue.Bind(queue=here, exchange="amq.headers", arguments={here: bound}), queue.BindOk)
        raw.publish(b"x", "", "amq.headers", {"headers": {here: sent}}, mandatory=True)
        goes = same != (number in changed and broker.is_rabbitmq(4, 0))
        assert isinstance(raw.next_of(Acknowledged, Returned), Acknowledged if goes else Returned)


def test_names_without_their_line_ends(raw: RawClient, name: str) -> None:
    """Names that were read from a file, with the end of their line."""
    assert raw.ask(queue.Declare(queue=f"{name}\r\n"), queue.DeclareOk).queue == name
    raw.ask(exchange.Declare(exchange=f"{name}\n"), exchange.DeclareOk)
    raw.ask(queue.Bind(queue=f"{name}\n", exchange=f"{name}\n", routing_key="k"), queue.BindOk)
    raw.publish(b"x", "k", name)
    raw.get(name)
    raw.ask(queue.Unbind(queue=f"{name}\n", exchange=f"{name}\n", routing_key="k"), queue.UnbindOk)
    raw.ask(exchange.Delete(exchange=f"{name}\n", if_unused=True), exchange.DeleteOk)
    raw.ask(queue.Delete(queue=f"{name}\n"), queue.DeleteOk)
    raw.send(queue.Declare(queue=name, passive=True))
    assert raw.refusal()[1] == 404


def test_a_queue_without_a_type_is_a_classic_one(raw: RawClient, name: str) -> None:
    kind = {"x-queue-type": "classic"}
    for number, (before, after) in enumerate((({}, kind), (kind, {}))):
        raw.ask(queue.Declare(queue=f"{name}.{number}", arguments=before), queue.DeclareOk)
        raw.ask(queue.Declare(queue=f"{name}.{number}", arguments=after), queue.DeclareOk)


@pytest.mark.parametrize("before, after", [(True, False), (False, True)])
def test_an_exclusive_queue_is_as_durable_as_its_connection(
    raw: RawClient, name: str, before: bool, after: bool
) -> None:
    """Whatever a client says, it ends with its connection; so one library may say so and another not."""
    for durable in (before, after):
        raw.ask(queue.Declare(queue=name, exclusive=True, durable=durable), queue.DeclareOk)


def test_a_ticket_is_given_to_whoever_asks(raw: RawClient) -> None:
    """Clients of AMQP 0-8 and 0-9 ask for one before they do anything else."""
    assert raw.ask(access.Request(), access.RequestOk).ticket == 1


def test_the_limit_is_for_the_number_of_channels(broker: Broker) -> None:
    """amqp-client.js and others count their channels and do not care what the numbers are."""
    with RawClient(broker.port, channel_max=2) as client:
        client.open_channel(9)
        client.send(channel.Open(), channel=3)
        assert client.refusal() == (
            "connection", 530, "NOT_ALLOWED - number of channels opened (2) has reached the negotiated channel_max (2)"
        )  # fmt: skip


def _quorum(raw: RawClient, name: str, **arguments: Any) -> None:
    arguments = {
        "x-queue-type": "quorum",
        **{f"x-{key}".replace("_", "-"): value for key, value in arguments.items()},
    }
    raw.ask(queue.Declare(queue=name, durable=True, arguments=arguments), queue.DeclareOk)


def test_a_quorum_queue_counts_deliveries(broker: Broker, raw: RawClient, name: str) -> None:
    """A message that ends its consumer each time must not do so for ever."""
    raw.ask(queue.Declare(queue=f"{name}.dead"), queue.DeclareOk)
    _quorum(raw, name, delivery_limit=2, dead_letter_exchange="", dead_letter_routing_key=f"{name}.dead")
    raw.publish_raw(b"x", name, "", _properties(NUMBERS))
    for count in range(3):
        message = raw.get(name)
        assert message.redelivered == (count > 0)
        if count or not broker.is_rabbitmq(4, 0):
            assert b"\x10x-delivery-countl" + pack(">q", count) in _raw(message)
        assert not _lost(message)
        raw.send(basic.Reject(delivery_tag=message.delivery_tag, requeue=True))
    dead = raw.get(f"{name}.dead")
    (death,) = dead.batch.envelope.properties["headers"]["x-death"]
    assert (death["reason"], death["count"]) == ("delivery_limit", 1)
    assert b"x-delivery-count" not in _raw(dead)
    assert not _lost(dead)


def test_a_quorum_queue_counts_lost_consumers(broker: Broker, name: str) -> None:
    for count in range(3):
        with RawClient(broker.port) as client:
            _quorum(client, name)
            if not count:
                client.ask(confirm.Select(), confirm.SelectOk)
                client.publish(b"x", name)
                client.wait_for(Acknowledged)
            client.ask(basic.Consume(queue=name), basic.ConsumeOk)
            headers = client.wait_for(Delivered).batch.envelope.properties.get("headers", {})
            assert headers.get("x-delivery-count", 0) == count


def test_a_silent_client_hears_two_heartbeats_in_each_of_three_intervals(broker: Broker) -> None:
    """amqp-client.js and others give up a server of which they hear a little less than once in an interval."""
    with RawClient(broker.port, heartbeat=1) as client:
        came = b""
        # RabbitMQ hangs up with a reset.
        with contextlib.suppress(ConnectionResetError):
            while octets := client._socket.recv(64):
                came += octets
    # The first one is later if something else was sent in its place.
    assert came in (4 * HEARTBEAT_FRAME, 5 * HEARTBEAT_FRAME)
