"""pika's connections: logging in, heartbeats, what goes wrong and how it is told; and features beyond the tutorials."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pika
import pika.exceptions
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from tests.interop.brokers import Broker, KernelProcess
from tests.interop.conftest import Connect
from tests.interop.until import until

pytestmark = pytest.mark.peer("pika")


def test_a_wrong_password_is_told(connect: Connect) -> None:
    with pytest.raises(pika.exceptions.ProbableAuthenticationError, match="ACCESS_REFUSED"):
        connect(password="wrong")


def test_a_virtual_host_that_is_not_there_is_told(connect: Connect) -> None:
    with pytest.raises(pika.exceptions.ProbableAccessDeniedError, match="vhost nope not found"):
        connect(virtual_host="nope")


def test_what_the_server_says_of_itself(broker: Broker, connect: Connect) -> None:
    impl = connect()._impl
    capabilities = impl.server_capabilities
    for name in ("basic.nack", "connection.blocked", "consumer_cancel_notify", "publisher_confirms",
                 "exchange_exchange_bindings", "consumer_priorities", "per_consumer_qos", "direct_reply_to",
                 "authentication_failure_close"):  # fmt: skip
        assert capabilities[name], name
    assert (impl.params.frame_max, impl.params.channel_max) == (131072, 2047)


@pytest.mark.slow
def test_heartbeats_go_both_ways(connect: Connect, name: str) -> None:
    connection = connect(heartbeat=2)
    connection.sleep(6)
    connection.channel().queue_declare(name)


def test_a_small_frame_size_is_kept_to(broker: Broker, connect: Connect, name: str) -> None:
    # The least that the specification has, and that of RabbitMQ since 4.1, which hangs up if a client wants less.
    channel = connect(frame_max=8192 if broker.is_rabbitmq(4, 1) else 4096).channel()
    channel.queue_declare(name)
    body = bytes(range(256)) * 100
    channel.basic_publish("", name, body, pika.BasicProperties(headers={"x": "y" * 3000}))
    assert channel.basic_get(name)[2] == body


def test_a_secret_is_renewed(connect: Connect, name: str) -> None:
    connection = connect()
    connection.update_secret("guest", "it is time")
    connection.channel().queue_declare(name)


def test_many_channels(connect: Connect, name: str) -> None:
    connection = connect()
    channels = [connection.channel() for _ in range(200)]
    channels[0].queue_declare(name)
    for number, channel in enumerate(channels):
        channel.basic_publish("", name, b"%d" % number)
        channel.close()
    channel = connection.channel(200)
    assert len({channel.basic_get(name, auto_ack=True)[2] for _ in range(200)}) == 200


def test_tens_of_megabytes(channel: BlockingChannel, name: str) -> None:
    channel.queue_declare(name)
    body = bytes(range(256)) * 4096 * 40
    channel.basic_publish("", name, body)
    assert channel.basic_get(name, auto_ack=True)[2] == body


def test_names_in_any_script(channel: BlockingChannel, name: str) -> None:
    queue, exchange = f"{name} очередь 队列", f"{name} біржа"
    channel.exchange_declare(exchange, "direct")
    channel.queue_declare(queue)
    channel.queue_bind(queue, exchange, "ключ 🔑")
    channel.basic_publish(exchange, "ключ 🔑", "тіло".encode(), pika.BasicProperties(type="тип"))
    method, properties, body = channel.basic_get(queue)
    assert (method.exchange, method.routing_key, properties.type) == (exchange, "ключ 🔑", "тип")
    assert body.decode() == "тіло"


def test_headers_of_all_types(channel: BlockingChannel, name: str) -> None:
    channel.queue_declare(name)
    headers = {
        "text": "Grüße", "bytes": b"\x00\xff", "yes": True, "no": False, "none": None, "small": -1,
        "int": 2**31 - 1, "long": -(2**62), "decimal": Decimal("12.5"), "when": datetime(2026, 11, 21, 12, 0, tzinfo=UTC), "list": [1, "a", [True, None], {"b": 2}],
        "table": {"a": {"b": {"c": [1]}}}, "": "an empty name",
    }  # fmt: skip
    channel.basic_publish("", name, b"", pika.BasicProperties(headers=headers))
    got = channel.basic_get(name)[1].headers
    when = got.pop("when")
    assert when.replace(tzinfo=UTC) == headers.pop("when")
    assert got == headers


def test_a_queue_nobody_uses_expires(connect: Connect, name: str) -> None:
    connect().channel().queue_declare(name, arguments={"x-expires": 50})

    def is_gone() -> bool:
        try:
            connect().channel().queue_declare(name, passive=True)
        except pika.exceptions.ChannelClosedByBroker as closed:
            return bool(closed.reply_code == 404)
        return False

    until(is_gone, every=0.2)


def consumers(
    channel: BlockingChannel, name: str, tags: list[str], **arguments: Any
) -> list[tuple[str, bytes]]:
    got: list[tuple[str, bytes]] = []
    for tag in tags:
        priority = {"x-priority": int(arguments[tag])} if tag in arguments else None

        def on_message(_: Any, __: Any, ___: Any, body: bytes, tag: str = tag) -> None:
            got.append((tag, body))

        channel.basic_consume(name, on_message, auto_ack=True, consumer_tag=tag, arguments=priority)
    return got


def test_consumers_of_higher_priority_come_first(channel: BlockingChannel, name: str) -> None:
    channel.queue_declare(name)
    got = consumers(channel, name, ["low", "high"], low=1, high=9)
    for number in range(5):
        channel.basic_publish("", name, b"%d" % number)
    until(lambda: channel.connection.process_data_events(0.01) or len(got) == 5)
    assert {tag for tag, _ in got} == {"high"}


def test_a_single_active_consumer_gets_everything_until_it_goes(channel: BlockingChannel, name: str) -> None:
    channel.queue_declare(name, arguments={"x-single-active-consumer": True})
    got = consumers(channel, name, ["first", "second"])
    for number in range(4):
        channel.basic_publish("", name, b"%d" % number)
    until(lambda: channel.connection.process_data_events(0.01) or len(got) == 4)
    channel.basic_cancel("first")
    channel.basic_publish("", name, b"4")
    until(lambda: channel.connection.process_data_events(0.01) or len(got) == 5)
    assert [tag for tag, _ in got] == ["first"] * 4 + ["second"]


def test_an_exclusive_consumer_is_alone(connect: Connect, name: str) -> None:
    one, other = connect().channel(), connect().channel()
    one.queue_declare(name)
    one.basic_consume(name, lambda *_: None, exclusive=True)
    with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="in exclusive use") as closed:
        other.basic_consume(name, lambda *_: None)
    assert closed.value.reply_code == 403


def test_prefetch_of_a_channel(broker: Broker, channel: BlockingChannel, name: str) -> None:
    channel.queue_declare(name)
    channel.confirm_delivery()
    for number in range(7):
        channel.basic_publish("", name, b"%d" % number)
    channel.basic_qos(prefetch_count=3, global_qos=True)
    tags: list[int] = []
    for _ in range(2):
        channel.basic_consume(name, lambda _, method, *__: tags.append(method.delivery_tag))
    # Since 4.3, RabbitMQ agrees and takes it for the prefetch of each consumer.
    most = 6 if broker.is_rabbitmq(4, 3) else 3
    until(lambda: channel.connection.process_data_events(0.01) or len(tags) == most)
    channel.queue_declare(name, passive=True)
    channel.connection.process_data_events(0.01)
    assert tags == list(range(1, most + 1))
    channel.basic_ack(0, multiple=True)
    until(lambda: channel.connection.process_data_events(0.01) or len(tags) == min(2 * most, 7))


CONNECTION_CLOSING: list[tuple[int, str, Callable[[BlockingChannel, str], object]]] = [
    (540, "requeue=false", lambda channel, name: channel.basic_recover(requeue=False)),
    (540, "prefetch_size", lambda channel, name: channel.basic_qos(prefetch_size=10)),
    (540, "active=false", lambda channel, name: channel.flow(False)),
]


@pytest.mark.parametrize("code, text, misuse", CONNECTION_CLOSING, ids=[row[1] for row in CONNECTION_CLOSING])
def test_misuse_that_closes_the_connection(
    channel: BlockingChannel,
    name: str,
    code: int,
    text: str,
    misuse: Callable[[BlockingChannel, str], object],
) -> None:
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker, match=text) as closed:
        misuse(channel, name)
    assert closed.value.reply_code == code


def test_an_exchange_of_an_unknown_type(broker: Broker, channel: BlockingChannel, name: str) -> None:
    """It closes the connection, as in RabbitMQ 3.10, and since RabbitMQ 4 only the channel."""
    kind: type[Exception] = pika.exceptions.ConnectionClosedByBroker
    code = 503
    if broker.is_rabbitmq(4, 0):
        kind, code = pika.exceptions.ChannelClosedByBroker, 406
    with pytest.raises(kind, match="unknown exchange type 'zz'") as closed:
        channel.exchange_declare(name, "zz")
    assert closed.value.reply_code == code


CHANNEL_CLOSING: list[tuple[int, Callable[[BlockingChannel, str], object]]] = [
    (403, lambda channel, name: channel.exchange_declare("amq.mine")),
    (403, lambda channel, name: channel.queue_bind(name, "", "k")),
    (404, lambda channel, name: channel.queue_purge(name + "none")),
    (404, lambda channel, name: channel.basic_get(name + "none")),
    (404, lambda channel, name: channel.queue_bind(name, name + "none")),
    (406, lambda channel, name: channel.queue_declare(name, durable=True)),
    (406, lambda channel, name: channel.queue_declare(name, arguments={"x-max-length": 3})),
    (406, lambda channel, name: channel.tx_commit()),
    (406, lambda channel, name: channel.queue_delete(name, if_empty=True)),
]


@pytest.mark.parametrize("code, misuse", CHANNEL_CLOSING)
def test_misuse_that_closes_the_channel(
    channel: BlockingChannel, name: str, code: int, misuse: Callable[[BlockingChannel, str], object]
) -> None:
    channel.queue_declare(name)
    channel.confirm_delivery()
    channel.basic_publish("", name, b"x")
    other = channel.connection.channel()
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as closed:
        misuse(other, name)
    assert closed.value.reply_code == code
    assert channel.queue_declare(name, passive=True).method.message_count == 1


def test_a_connection_used_from_two_threads_as_the_manual_shows(connect: Connect, name: str) -> None:
    """The work is done elsewhere; the acknowledgement comes back with ``add_callback_threadsafe``."""
    connection = connect()
    channel = connection.channel()
    channel.queue_declare(name)
    channel.basic_qos(prefetch_count=5)
    done: list[bytes] = []

    def acknowledge(tag: int, body: bytes) -> None:
        channel.basic_ack(tag)
        done.append(body)

    def on_message(_: Any, method: Any, __: Any, body: bytes) -> None:
        work = lambda: connection.add_callback_threadsafe(  # noqa: E731
            lambda: acknowledge(method.delivery_tag, body)
        )
        thread = threading.Thread(target=work)
        thread.start()
        threads.append(thread)

    threads: list[threading.Thread] = []
    for number in range(30):
        channel.basic_publish("", name, b"%d" % number)
    channel.basic_consume(name, on_message)
    until(lambda: connection.process_data_events(0.01) or len(done) == 30)
    for thread in threads:
        thread.join()
    assert sorted(done, key=int) == [b"%d" % number for number in range(30)]


def test_a_broker_that_stops_says_so(tmp_path: Any) -> None:
    with KernelProcess(tmp_path) as process:
        where = pika.ConnectionParameters(process.broker.host, process.broker.port)
        connection = pika.BlockingConnection(where)
        process.stop()
        with pytest.raises(pika.exceptions.ConnectionClosedByBroker, match="CONNECTION_FORCED") as closed:
            connection.process_data_events(60)
        assert closed.value.reply_code == 320
