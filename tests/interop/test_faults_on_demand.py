"""The broker with faults on demand, seen by the clients of others: each fault does what it says, exactly."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import paho.mqtt.client as mqtt
import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import (
    AMQPConnectionError,
    AMQPError,
    AMQPHeartbeatTimeout,
    ConnectionClosedByBroker,
    NackError,
)

from kernel.contracts.errors import KernelError
from kernel.contracts.message import Envelope
from plugins.engines.broker.faults.brokers import FaultyBroker
from tests.interop.until import TIMEOUT, until
from tests.peers import optional

pytestmark = pytest.mark.peer("pika")

PERSISTENT = pika.BasicProperties(delivery_mode=2)
STOMP: Any = optional("stomp")


opened: list[pika.BlockingConnection] = []


@pytest.fixture(autouse=True)
def _closed_connections() -> Iterator[None]:
    """Connections are closed at the end of each test."""
    yield
    while opened:
        with contextlib.suppress(AMQPError):
            opened.pop().close()


def connect(broker: FaultyBroker, name: str = "", **options: Any) -> pika.BlockingConnection:
    parameters = pika.URLParameters(broker.url)
    parameters.heartbeat = options.get("heartbeat", 0)
    parameters.client_properties = {"connection_name": name}
    opened.append(pika.BlockingConnection(parameters))
    return opened[-1]


def channel_of(broker: FaultyBroker, name: str = "", **options: Any) -> BlockingChannel:
    channel = connect(broker, name, **options).channel()
    channel.queue_declare("orders", durable=True)
    return channel


def publish(channel: BlockingChannel, *bodies: bytes) -> None:
    for body in bodies:
        channel.basic_publish("", "orders", body, PERSISTENT)


def received(channel: BlockingChannel) -> list[bytes]:
    """Return what a consumer gets before its connection is lost."""
    bodies: list[bytes] = []
    try:
        for _, _, body in channel.consume("orders"):
            bodies.append(body)
    except AMQPConnectionError:
        return bodies
    raise AssertionError("the connection was not lost")


def everything(broker: FaultyBroker) -> list[tuple[bytes, bool]]:
    """Take all messages out of the queue: their bodies, and whether they were delivered before."""
    channel = channel_of(broker)
    found: list[tuple[bytes, bool]] = []
    while (got := channel.basic_get("orders", auto_ack=True))[0] is not None:
        found.append((got[2], got[0].redelivered))
    channel.connection.close()
    return found


def bodies(rows: list[Any]) -> list[bytes]:
    return [row.body for row in rows]


class Task(threading.Thread):
    """Something that waits for the broker."""

    def __init__(self, function: Callable[[], object]) -> None:
        super().__init__(daemon=True)
        self._function = function
        self.error: BaseException | None = None
        self.start()

    def run(self) -> None:
        try:
            self._function()
        except BaseException as error:
            self.error = error

    def wait(self) -> None:
        self.join(TIMEOUT)
        assert not self.is_alive()
        if self.error is not None:
            raise self.error


# The fixture


@pytest.mark.parametrize("process", [False, True])
def test_every_protocol_is_served_at_once(tmp_path: Path, process: bool) -> None:
    began = time.perf_counter()
    with FaultyBroker(tmp_path, process=process) as broker:
        print(f"ready after {time.perf_counter() - began:.3f} s{' as a process' if process else ''}")
        for protocol in ("amqp", "mqtt", "stomp"):
            socket.create_connection(("127.0.0.1", broker.port(protocol)), timeout=TIMEOUT).close()
        with pytest.raises(KernelError, match="no front end .http.; installed: .*mqtt"):
            broker.port("http")


@pytest.fixture
def faulty_broker_options() -> dict[str, Any]:
    return {"queues": [{"name": "declared"}]}


def test_options_are_those_of_a_broker(faulty_broker: FaultyBroker) -> None:
    channel = connect(faulty_broker).channel()
    assert channel.queue_declare("declared", passive=True).method.message_count == 0


def test_what_passes_is_recorded(faulty_broker: FaultyBroker) -> None:
    channel = channel_of(faulty_broker)
    publish(channel, b"one", b"two")
    channel.basic_publish("amq.fanout", "key", b"nowhere")
    assert bodies(faulty_broker.published(count=3)) == [b"one", b"two", b"nowhere"]
    assert bodies(faulty_broker.published("orders")) == [b"one", b"two"]
    assert faulty_broker.published()[2].queues == ()
    assert (faulty_broker.published()[2].exchange, faulty_broker.published()[2].key) == ("amq.fanout", "key")
    method, _, _ = channel.basic_get("orders")
    assert bodies(faulty_broker.delivered("orders", count=1)) == [b"one"]
    assert faulty_broker.acknowledged("orders") == []
    channel.basic_ack(method.delivery_tag)
    assert bodies(faulty_broker.acknowledged("orders", count=1)) == [b"one"]
    with pytest.raises(TimeoutError, match=r"1 of 2 messages were acknowledged \('orders'\)"):
        faulty_broker.acknowledged("orders", count=2, timeout=0)


# Cuts


@pytest.mark.parametrize("place", ["faulty_broker", "faulty_broker_process"])
def test_a_connection_is_cut_after_deliveries(place: str, request: pytest.FixtureRequest) -> None:
    broker: FaultyBroker = request.getfixturevalue(place)
    publish(channel_of(broker), b"1", b"2", b"3", b"4", b"5")
    channel = channel_of(broker)
    cut = broker.cut(after=3)
    assert received(channel) == [b"1", b"2", b"3"]
    assert cut.wait()
    assert everything(broker) == [(b"1", True), (b"2", True), (b"3", True), (b"4", False), (b"5", False)]


def test_a_connection_is_cut_after_acknowledgements(faulty_broker: FaultyBroker) -> None:
    publish(channel_of(faulty_broker), b"1", b"2", b"3", b"4", b"5")
    channel = channel_of(faulty_broker)
    consumer = channel.consume("orders")
    tags = [next(consumer)[0].delivery_tag for _ in range(5)]
    cut = faulty_broker.cut(after=3, of="acks")
    channel.basic_ack(tags[-1], multiple=True)  # one frame for all five
    cut.wait()
    assert bodies(faulty_broker.acknowledged("orders")) == [b"1", b"2", b"3"]
    assert everything(faulty_broker) == [(b"4", True), (b"5", True)]


def test_a_connection_is_cut_after_publishes(faulty_broker: FaultyBroker) -> None:
    channel = channel_of(faulty_broker)
    cut = faulty_broker.cut(after=3, of="publishes")
    for _ in range(5):
        # The connection may be gone before the last.
        with contextlib.suppress(AMQPError):
            publish(channel, b"x")
    cut.wait()
    assert everything(faulty_broker) == [(b"x", False)] * 3


@pytest.mark.parametrize("after", [0, 2])
def test_a_connection_is_cut_where_a_confirmation_was_due(faulty_broker: FaultyBroker, after: int) -> None:
    """The publisher does not know what the broker has: that is why it publishes again."""
    channel = channel_of(faulty_broker)
    channel.confirm_delivery()
    faulty_broker.cut(after=after, of="confirms")
    publish(channel, *[b"x"] * after)
    with pytest.raises(AMQPConnectionError):
        publish(channel, b"last")
    assert bodies(faulty_broker.published("orders")) in ([b"x"] * after + [b"last"], [b"x"] * after)
    if not after:
        assert everything(faulty_broker) == [(b"last", False)]


def test_only_the_client_with_the_name_is_cut(faulty_broker: FaultyBroker) -> None:
    publish(channel_of(faulty_broker), b"1", b"2")
    one, other = channel_of(faulty_broker, "one"), channel_of(faulty_broker, "other")
    faulty_broker.cut("other", after=1)
    with pytest.raises(KernelError, match=r"called 'nobody'; names: .*one"):
        faulty_broker.cut_now("nobody")
    assert one.basic_get("orders", auto_ack=True)[2] == b"1"
    assert one.connection.is_open
    assert received(other) == [b"2"]
    faulty_broker.cut_now("one")
    with pytest.raises(AMQPConnectionError):
        one.basic_get("orders")


def test_a_cut_that_was_not_needed_ends_with_its_block(faulty_broker: FaultyBroker) -> None:
    channel = channel_of(faulty_broker)
    with faulty_broker.cut(after=1, of="publishes") as cut:
        assert cut.peer == ""
        with pytest.raises(TimeoutError, match="no connection"):
            cut.wait(0)
    publish(channel, b"1")
    assert bodies(faulty_broker.published("orders", count=1)) == [b"1"]
    channel.connection.process_data_events(0)


@pytest.mark.peer("paho-mqtt")
def test_an_mqtt_client_is_cut_by_its_identifier(faulty_broker: FaultyBroker) -> None:
    got: list[bytes] = []
    ended: list[object] = []
    client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, client_id="meter")
    client.on_message = lambda *a: got.append(a[2].payload)
    client.on_disconnect = lambda *a: ended.append(a)
    ready = threading.Event()
    client.on_subscribe = lambda *a: ready.set()
    client.on_connect = lambda *a: print(client.subscribe("t", qos=1))
    client.username_pw_set("guest", "guest")
    client.connect("127.0.0.1", faulty_broker.port("mqtt"))
    client.loop_start()
    assert ready.wait(TIMEOUT)
    client.on_connect = None
    cut = faulty_broker.cut("meter", after=2, of="acks")
    for number in range(4):
        client.publish("t", b"%d" % number, qos=1)
    cut.wait()
    until(lambda: ended)
    client.loop_stop()
    client.disconnect()
    assert bodies(faulty_broker.acknowledged()) == [b"0", b"1"]


@pytest.mark.peer("stomp-py")
def test_a_stomp_client_is_cut(faulty_broker: FaultyBroker) -> None:
    connection = STOMP.Connection12([("127.0.0.1", faulty_broker.port("stomp"))], vhost="/")
    lost = threading.Event()

    class Listener(STOMP.ConnectionListener):  # type: ignore[misc]  # stomp.py has no types
        def on_disconnected(self) -> None:
            lost.set()

    connection.set_listener("", Listener())
    connection.connect("guest", "guest", wait=True)
    faulty_broker.cut("guest", after=2, of="publishes")
    for _ in range(2):
        connection.send("/queue/orders", b"x")
    assert lost.wait(TIMEOUT)
    assert bodies(faulty_broker.published("orders")) == [b"x", b"x"]


# Other faults


@pytest.mark.slow
@pytest.mark.parametrize("place", ["faulty_broker", "faulty_broker_process"])
def test_heartbeats_run_out_while_it_is_frozen(place: str, request: pytest.FixtureRequest) -> None:
    broker: FaultyBroker = request.getfixturevalue(place)
    connection = connect(broker, heartbeat=1)
    with broker.freeze(), pytest.raises(AMQPHeartbeatTimeout):
        connection.process_data_events(TIMEOUT)
    connect(broker).close()


def test_publishes_and_connections_are_refused(faulty_broker: FaultyBroker) -> None:
    channel = channel_of(faulty_broker)
    channel.confirm_delivery()
    with faulty_broker.refuse(), pytest.raises(NackError):
        publish(channel, b"refused")
    with faulty_broker.refuse(publishes=False, connections=True):
        with pytest.raises(AMQPError):
            connect(faulty_broker)
        publish(channel, b"taken")
    assert everything(faulty_broker) == [(b"taken", False)]


def test_what_is_unacknowledged_comes_again_and_both_can_be_acknowledged(faulty_broker: FaultyBroker) -> None:
    channel = channel_of(faulty_broker)
    publish(channel, b"1", b"2")
    consumer = channel.consume("orders")
    first = [next(consumer) for _ in range(2)]
    channel.basic_ack(first[0][0].delivery_tag)
    faulty_broker.acknowledged("orders", count=1)
    assert faulty_broker.redeliver() == 1
    method, _, body = next(consumer)
    assert (body, method.redelivered) == (b"2", True)
    channel.basic_ack(first[1][0].delivery_tag)
    channel.basic_ack(method.delivery_tag)
    assert bodies(faulty_broker.acknowledged("orders", count=3)) == [b"1", b"2", b"2"]
    channel.connection.close()
    assert everything(faulty_broker) == []


def test_the_clock_makes_messages_expire_and_keeps_connections(faulty_broker: FaultyBroker) -> None:
    channel = connect(faulty_broker, heartbeat=60).channel()
    channel.queue_declare("late")
    arguments = {
        "x-message-ttl": 3_600_000,
        "x-dead-letter-exchange": "",
        "x-dead-letter-routing-key": "late",
    }
    channel.queue_declare("delay", arguments=arguments)
    channel.basic_publish("", "delay", b"x")
    faulty_broker.published("delay", count=1)
    faulty_broker.advance(3599)
    assert channel.basic_get("late")[0] is None
    faulty_broker.advance(2)
    assert channel.basic_get("late")[2] == b"x"
    faulty_broker.advance(300, silence=True)
    with pytest.raises((ConnectionClosedByBroker, AMQPConnectionError)):
        channel.basic_get("late")


def test_the_clock_counts_for_clients_without_a_socket(faulty_broker: FaultyBroker) -> None:
    with faulty_broker.open() as client:
        client.declare_queue("q")
        client.publish(b"x", Envelope(key="q", expiration=60_000))
        client.wait_confirmed()
        faulty_broker.advance(61)
        assert client.get("q") is None
    assert bodies(faulty_broker.published("q")) == [b"x"]


# The disk


def test_confirmations_wait_for_a_slow_disk(faulty_broker: FaultyBroker) -> None:
    channel = channel_of(faulty_broker)
    channel.confirm_delivery()
    with faulty_broker.slow_disk(3600):
        task = Task(lambda: publish(channel, b"x"))
        faulty_broker.published("orders", count=1)
        other = channel_of(faulty_broker)
        assert other.basic_get("orders")[2] == b"x", "consumers need not wait"
        assert task.is_alive()
    task.wait()


def test_publishers_are_blocked_while_the_disk_is_full(faulty_broker: FaultyBroker) -> None:
    channel = channel_of(faulty_broker)
    channel.confirm_delivery()
    with faulty_broker.full_disk():
        task = Task(lambda: publish(channel, b"x"))
        until(lambda: [each.state for each in faulty_broker.connections()] == ["blocked"])
        assert task.is_alive()
    task.wait()
    assert everything(faulty_broker) == [(b"x", False)]


# Its end


@pytest.mark.parametrize("place", ["faulty_broker", "faulty_broker_process"])
def test_what_was_confirmed_outlives_a_kill(place: str, request: pytest.FixtureRequest) -> None:
    broker: FaultyBroker = request.getfixturevalue(place)
    channel = channel_of(broker)
    channel.confirm_delivery()
    publish(channel, b"1", b"2")
    channel.basic_publish("", "orders", b"transient")
    assert next(channel.consume("orders"))[2] == b"1"
    url, port = broker.url, broker.port("mqtt")
    broker.kill_and_restart()
    assert (broker.url, broker.port("mqtt")) == (url, port)
    with pytest.raises(AMQPConnectionError):
        channel.basic_get("orders")
    assert [body for body, _ in everything(broker)] == [b"1", b"2"]
    assert bodies(broker.published("orders")) == [b"1", b"2", b"transient"]
