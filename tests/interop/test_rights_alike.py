"""Who may do what: each operation with each right that it needs, and without it, here and on RabbitMQ.

In the names, ``c``, ``w`` and ``r`` stand for what the user may do there: configure, write, read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from plugins.protocols.amqp091.events import ChannelClosed, ConnectionClosed, MethodReceived
from plugins.protocols.amqp091.methods import basic, exchange, queue
from plugins.protocols.amqp091.methods.method import Method
from tests.interop.brokers import KernelProcess
from tests.interop.conftest import KINDS
from tests.plugins.engines.amqp.raw_client import RawClient
from tests.plugins.engines.amqp_client.rabbitmq import RabbitMq

EVE = """
users.guest = {password = "guest", from_anywhere = false}
users.eve = {password = "eve", configure = "c", write = "w", read = "r"}
"""
QUEUES = ("q.c", "q.w", "q.r", "q.cw", "q.cr", "q.wr")
EXCHANGES = ("x.c", "x.w", "x.r", "x.cw", "x.cr", "x.wr")


def _publish(name: str) -> Callable[[RawClient], None]:
    def act(client: RawClient) -> None:
        client.publish(b"", "nowhere", name)
        client.send(basic.Qos())

    return act


def _send(method: Method) -> Callable[[RawClient], None]:
    return lambda client: client.send(method)


def _queue_to(name: str, target: str) -> Method:
    return queue.Declare(queue=name, arguments={"x-dead-letter-exchange": target})


def _exchange_to(name: str, target: str) -> Method:
    return exchange.Declare(exchange=name, arguments={"alternate-exchange": target})


ALLOWED: dict[str, Method] = {
    "declare a queue": queue.Declare(queue="n.c"),
    "declare a queue again": queue.Declare(queue="q.c"),
    "look for a queue": queue.Declare(queue="q.w", passive=True),
    "delete a queue": queue.Delete(queue="q.c"),
    "declare an exchange": exchange.Declare(exchange="y.c"),
    "look for an exchange": exchange.Declare(exchange="x.w", passive=True),
    "delete an exchange": exchange.Delete(exchange="x.c"),
    "bind a queue": queue.Bind(queue="q.w", exchange="x.r"),
    "unbind a queue": queue.Unbind(queue="q.w", exchange="x.r"),
    "bind an exchange": exchange.Bind(destination="x.w", source="x.r"),
    "unbind an exchange": exchange.Unbind(destination="x.w", source="x.r"),
    "consume": basic.Consume(queue="q.r"),
    "get": basic.Get(queue="q.r"),
    "purge": queue.Purge(queue="q.r"),
    "dead letters": _queue_to("n.cr", "x.w"),
    "an alternate": _exchange_to("y.cr", "x.w"),
}
REFUSED: dict[str, Callable[[RawClient], None]] = {
    "declare a queue": _send(queue.Declare(queue="n.wr")),
    "declare a queue again": _send(queue.Declare(queue="q.wr")),
    "delete a queue": _send(queue.Delete(queue="q.wr")),
    "declare an exchange": _send(exchange.Declare(exchange="y.wr")),
    "delete an exchange": _send(exchange.Delete(exchange="x.wr")),
    "bind a queue without write": _send(queue.Bind(queue="q.cr", exchange="x.r")),
    "bind a queue without read": _send(queue.Bind(queue="q.w", exchange="x.cw")),
    "unbind a queue without write": _send(queue.Unbind(queue="q.cr", exchange="x.r")),
    "unbind a queue without read": _send(queue.Unbind(queue="q.w", exchange="x.cw")),
    "bind an exchange without write": _send(exchange.Bind(destination="x.cr", source="x.r")),
    "bind an exchange without read": _send(exchange.Bind(destination="x.w", source="x.cw")),
    "unbind an exchange without write": _send(exchange.Unbind(destination="x.cr", source="x.r")),
    "unbind an exchange without read": _send(exchange.Unbind(destination="x.w", source="x.cw")),
    "publish": _publish("x.cr"),
    "publish to the default exchange": _publish(""),
    "consume": _send(basic.Consume(queue="q.cw")),
    "get": _send(basic.Get(queue="q.cw")),
    "purge": _send(queue.Purge(queue="q.cw")),
    "dead letters without read": _send(_queue_to("n.c", "x.w")),
    "dead letters without write": _send(_queue_to("n.cr", "x.cr")),
    "an alternate without read": _send(_exchange_to("y.c", "x.w")),
    "an alternate without write": _send(_exchange_to("y.cr", "x.cr")),
}


@pytest.fixture(scope="module")
def kernel_port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with KernelProcess(tmp_path_factory.mktemp("rights"), EVE) as process:
        yield process.broker.port


@pytest.fixture(scope="module")
def rabbitmq_port(rabbitmq: RabbitMq) -> Iterator[int]:
    rabbitmq.control("add_user", "eve", "eve")
    rabbitmq.control("set_permissions", "eve", "c", "w", "r")
    yield rabbitmq.port
    rabbitmq.control("delete_user", "eve")


@pytest.fixture(params=KINDS)
def port(request: pytest.FixtureRequest) -> Iterator[int]:
    port: int = request.getfixturevalue(f"{request.param}_port")
    with RawClient(port) as guest:
        for name in QUEUES:
            guest.ask(queue.Declare(queue=name), queue.DeclareOk)
        for name in EXCHANGES:
            guest.ask(exchange.Declare(exchange=name), exchange.DeclareOk)
        yield port
        for name in (*QUEUES, "n.c", "n.cr"):
            guest.ask(queue.Delete(queue=name), queue.DeleteOk)
        for name in (*EXCHANGES, "y.c", "y.cr"):
            guest.ask(exchange.Delete(exchange=name), exchange.DeleteOk)


@pytest.fixture
def eve(port: int) -> Iterator[RawClient]:
    with RawClient(port, response=b"\0eve\0eve") as client:
        yield client


@pytest.mark.parametrize("what", ALLOWED)
def test_with_the_right(eve: RawClient, what: str) -> None:
    eve.send(ALLOWED[what])
    eve.wait_for(MethodReceived)


def test_publish_with_the_right(eve: RawClient) -> None:
    _publish("x.w")(eve)
    eve.answer(basic.QosOk)


@pytest.mark.parametrize("what", REFUSED)
def test_without_the_right(eve: RawClient, what: str) -> None:
    REFUSED[what](eve)
    event = eve.next_of(ChannelClosed, ConnectionClosed, MethodReceived)
    assert isinstance(event, ChannelClosed), event
    assert event.reply_code == 403
    assert event.reply_text.startswith("ACCESS_REFUSED - access to ")


@pytest.mark.slow
@pytest.mark.peer("rabbitmq")
@pytest.mark.parametrize("what", REFUSED)
def test_in_the_same_words(kernel_port: int, rabbitmq_port: int, what: str) -> None:
    events = []
    for port in (kernel_port, rabbitmq_port):
        with RawClient(port) as guest, RawClient(port, response=b"\0eve\0eve") as client:
            for name in QUEUES:
                guest.ask(queue.Declare(queue=name), queue.DeclareOk)
            for name in EXCHANGES:
                guest.ask(exchange.Declare(exchange=name), exchange.DeclareOk)
            REFUSED[what](client)
            events.append(client.next_of(ChannelClosed, ConnectionClosed))
    assert events[0] == events[1]


@pytest.mark.slow
@pytest.mark.parametrize("pattern, allowed", [(r"^amq\.gen-.+$", True), ("^orders", False)])
def test_a_name_of_the_servers_counts_as_its_name(tmp_path: Path, pattern: str, allowed: bool) -> None:
    """RabbitMQ's manual has such a pattern for users who may have queues that the server names, and no others."""
    options = f"users.eve = {{password = 'eve', configure = '{pattern}'}}"
    with (
        KernelProcess(tmp_path, options) as process,
        RawClient(process.broker.port, response=b"\0eve\0eve") as client,
    ):
        client.send(queue.Declare())
        event = client.next_of(ChannelClosed, MethodReceived)
        assert isinstance(event, MethodReceived) == allowed
