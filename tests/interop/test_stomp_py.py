"""Everyday life with stomp.py in all three versions, and with pika on the other side of a queue."""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pika
import pytest

from kernel.testing.fixtures import kernel_factory
from tests.interop.brokers import KernelProcess
from tests.peers import optional
from tests.plugins.engines.stomp.conftest import ServeStomp, StompBroker, serve

__all__ = ["kernel_factory", "serve"]

stomp = optional("stomp")
pytestmark = [pytest.mark.peer("stomp-py"), pytest.mark.peer("pika"), pytest.mark.slow]
TIMEOUT = 60.0

VERSIONS = ("1.0", "1.1", "1.2")
TOPOLOGY = """
[engines.broker]
kind = "broker"
{options}

[[engines.broker.listeners]]
protocol = "stomp"
address = "127.0.0.1:{port}"
"""


class Client:
    """A connection of stomp.py, with what has come in a queue."""

    def __init__(self, port: int, version: str, **options: Any) -> None:
        kinds = {"1.0": "Connection10", "1.1": "Connection11", "1.2": "Connection12"}
        if version != "1.0":
            options = {"vhost": "/", **options}
        self.connection = getattr(stomp, kinds[version])([("127.0.0.1", port)], **options)
        self.frames: queue.Queue[tuple[str, Any]] = queue.Queue()
        frames = self.frames
        Base: Any = stomp.ConnectionListener

        class Listener(Base):  # type: ignore[misc]
            def on_message(self, frame: Any) -> None:
                frames.put(("message", frame))

            def on_receipt(self, frame: Any) -> None:
                frames.put(("receipt", frame))

            def on_error(self, frame: Any) -> None:
                frames.put(("error", frame))

        self.connection.set_listener("", Listener())
        self.connection.connect("guest", "guest", wait=True)

    def next(self, kind: str) -> Any:
        found, frame = self.frames.get(timeout=TIMEOUT)
        assert found == kind, frame
        return frame

    def acknowledge(self, message: Any) -> None:
        version = self.connection.version
        if version == "1.2":
            self.connection.ack(message.headers["ack"])
        elif version == "1.1":
            self.connection.ack(message.headers["message-id"], message.headers["subscription"])
        else:
            self.connection.ack(message.headers["message-id"])


@pytest.fixture
def broker(serve: ServeStomp) -> StompBroker:
    return serve()


@pytest.fixture
def connect(broker: StompBroker) -> Iterator[Callable[..., Client]]:
    clients: list[Client] = []

    def make(version: str = "1.2", **options: Any) -> Client:
        clients.append(Client(broker.port, version, **options))
        return clients[-1]

    yield make
    for client in clients:
        if client.connection.is_connected():
            client.connection.disconnect()


@pytest.mark.parametrize("version", VERSIONS)
def test_send_subscribe_and_acknowledge(
    broker: StompBroker, connect: Callable[..., Client], version: str
) -> None:
    client = connect(version)
    client.connection.subscribe("/queue/q", id="1", ack="client-individual")
    for number in range(100):
        client.connection.send("/queue/q", f"message {number}", content_type="text/plain")
    for number in range(100):
        message = client.next("message")
        assert message.body == f"message {number}"
        assert message.headers["destination"] == "/queue/q"
        client.acknowledge(message)
    client.connection.unsubscribe(id="1", receipt="done")
    assert client.next("receipt").headers["receipt-id"] == "done"
    assert broker.queue("q")["messages"] == 0


@pytest.mark.parametrize("version", VERSIONS)
def test_pika_gets_what_stomp_py_sends(
    broker: StompBroker, connect: Callable[..., Client], version: str
) -> None:
    client, channel = connect(version), broker.channel()
    headers = {"persistent": "true", "correlation-id": "7", "own": "value", "receipt": "1"}
    client.connection.send("/queue/q", "hello", content_type="text/plain", headers=headers)
    client.next("receipt")
    _, properties, body = channel.basic_get("q", auto_ack=True)
    assert body == b"hello"
    assert (properties.content_type, properties.delivery_mode) == ("text/plain", 2)
    assert (properties.correlation_id, properties.headers) == ("7", {"own": "value"})


@pytest.mark.parametrize("version", VERSIONS)
def test_stomp_py_gets_what_pika_publishes(
    broker: StompBroker, connect: Callable[..., Client], version: str
) -> None:
    client, channel = connect(version), broker.channel()
    client.connection.subscribe("/queue/q", id="1", ack="auto", receipt="1")
    client.next("receipt")
    properties = pika.BasicProperties(
        content_type="text/plain", headers={"number": 5}, delivery_mode=2, reply_to="r"
    )
    channel.basic_publish("", "q", b"hello", properties)
    message = client.next("message")
    assert message.body == "hello"
    wanted = {"content-type": "text/plain", "number": "5", "persistent": "true", "reply-to": "/reply-queue/r"}
    assert wanted.items() <= message.headers.items()


def test_one_queue_with_consumers_of_both(broker: StompBroker, connect: Callable[..., Client]) -> None:
    client, channel = connect(), broker.channel()
    channel.queue_declare("q", durable=True)
    channel.basic_qos(prefetch_count=1)
    client.connection.subscribe("/queue/q", id="1", ack="client-individual", headers={"prefetch-count": 1})
    got: list[bytes] = []

    def on_message(_: Any, method: Any, __: Any, body: bytes) -> None:
        got.append(body)

    channel.basic_consume("q", on_message)
    client.connection.send("/queue/q", "one")
    client.connection.send("/queue/q", "two")
    theirs = client.next("message").body
    while not got:
        channel.connection.process_data_events(time_limit=1)
    assert {theirs, got[0].decode()} == {"one", "two"}


@pytest.mark.parametrize("version", VERSIONS)
def test_a_transaction(broker: StompBroker, connect: Callable[..., Client], version: str) -> None:
    client = connect(version)
    client.connection.subscribe("/queue/q", id="1")
    dropped = client.connection.begin()
    client.connection.send("/queue/q", "dropped", transaction=dropped)
    client.connection.abort(dropped)
    kept = client.connection.begin()
    client.connection.send("/queue/q", "kept", transaction=kept)
    client.connection.commit(kept)
    assert client.next("message").body == "kept"


def test_names_and_values_with_all_that_is_escaped(connect: Callable[..., Client]) -> None:
    client = connect()
    client.connection.subscribe("/topic/t", id="1", receipt="1")
    client.next("receipt")
    value = "a:b\nc\\d\re"
    client.connection.send("/topic/t", "x", headers={"own": value})
    assert client.next("message").headers["own"] == value


def test_heart_beats(connect: Callable[..., Client]) -> None:
    client = connect(heartbeats=(1000, 1000))
    client.connection.subscribe("/queue/q", id="1")
    with pytest.raises(queue.Empty):  # nothing but heart-beats for some intervals
        client.frames.get(timeout=4)
    client.connection.send("/queue/q", "alive")
    assert client.next("message").body == "alive"


def test_a_destination_that_is_none(connect: Callable[..., Client]) -> None:
    client = connect()
    client.connection.send("/nowhere/q", "x", receipt="7")
    error = client.next("error")
    assert error.headers["message"] == "Unknown destination"
    assert error.headers["receipt-id"] == "7"


def test_a_request_and_its_reply(connect: Callable[..., Client]) -> None:
    server, client = connect(), connect()
    server.connection.subscribe("/queue/questions", id="1", receipt="1")
    server.next("receipt")
    client.connection.send("/queue/questions", "question", headers={"reply-to": "/temp-queue/mine"})
    question = server.next("message")
    server.connection.send(question.headers["reply-to"], "answer")
    answer = client.next("message")
    assert (answer.headers["subscription"], answer.body) == ("/temp-queue/mine", "answer")


def test_what_has_a_receipt_survives_a_kill(tmp_path: Path) -> None:
    """``kill -9`` of the broker, as soon as the receipt of the last persistent message has come."""
    options = f'data_dir = "{tmp_path / "data"}"'
    with KernelProcess(tmp_path, options, topology=TOPOLOGY) as process:
        client = Client(process.broker.port, "1.2")
        for number in range(200):
            client.connection.send(
                "/queue/q", str(number), headers={"persistent": "true", "receipt": str(number)}
            )
        assert [client.next("receipt").headers["receipt-id"] for _ in range(200)] == [
            str(number) for number in range(200)
        ]
        process.kill()
        process.start()
        other = Client(process.broker.port, "1.2")
        other.connection.subscribe("/queue/q", id="1")
        assert [other.next("message").body for _ in range(200)] == [str(number) for number in range(200)]
        other.connection.disconnect()
