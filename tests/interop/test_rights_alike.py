"""Who may do what: each operation with each right that it needs, and without it, here and on RabbitMQ.

In the names, ``c``, ``w`` and ``r`` stand for what the user may do there: configure, write, read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from plugins.protocols.amqp091.events import ChannelClosed, ConnectionClosed, MethodReceived
from plugins.protocols.amqp091.methods import basic, exchange, queue
from plugins.protocols.amqp091.methods.method import Method
from tests.interop.brokers import KernelProcess, in_words_of_3_10
from tests.interop.conftest import KINDS
from tests.plugins.engines.amqp.raw_client import RawClient
from tests.plugins.engines.amqp_client.rabbitmq import RabbitMq

EVE = """
users.guest = {password = "guest", from_anywhere = false}
users.eve.password = "eve"
users.eve.configure = "c"
users.eve.write = "w"
users.eve.read = "r"
users.eve.topics."t.wr".write = '^{username}[.]{vhost}[.]'
users.eve.topics."t.wr".read = '^open[.]{client_id}$'
"""
QUEUES = ("q.c", "q.w", "q.r", "q.cw", "q.cr", "q.wr")
TOPICS = ("t.wr", "u.wr")
"""Topic exchanges.  Of the first, some keys are for eve: those that begin with her name and her virtual host."""
MINE, OPEN = "eve./.x", "open.{client_id}"
"""The key with which she may publish, and the one with which she may bind: she is no MQTT client."""
EXCHANGES = ("x.c", "x.w", "x.r", "x.cw", "x.cr", "x.wr")


def _publish(name: str) -> Callable[[RawClient], None]:
    def act(client: RawClient) -> None:
        client.publish(b"", "nowhere", name)
        client.send(basic.Qos())

    return act


def _publish_under(*keys: str, name: str = "t.wr") -> Callable[[RawClient], None]:
    """Publish with several keys: those after the first are in CC."""

    def act(client: RawClient) -> None:
        properties: dict[str, Any] = {"headers": {"CC": list(keys[1:])}} if keys[1:] else {}
        client.publish(b"", keys[0], name, properties)
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
    "bind with the right key": queue.Bind(queue="q.w", exchange="t.wr", routing_key=OPEN),
    "unbind with the right key": queue.Unbind(queue="q.w", exchange="t.wr", routing_key=OPEN),
    "bind an exchange with the right key": exchange.Bind(destination="x.w", source="t.wr", routing_key=OPEN),
    "bind with any key": queue.Bind(queue="q.w", exchange="u.wr", routing_key="#"),
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
    "publish with a wrong key": _publish_under("adam./.x"),
    "publish with no key": _publish_under(""),
    "bind with a wrong key": _send(queue.Bind(queue="q.w", exchange="t.wr", routing_key="#")),
    "unbind with a wrong key": _send(queue.Unbind(queue="q.w", exchange="t.wr", routing_key="#")),
    "bind an exchange with a wrong key": _send(
        exchange.Bind(destination="x.w", source="t.wr", routing_key="#")
    ),
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
        _declare_exchanges(guest)
        if request.param == "rabbitmq":
            _limit_topics(request.getfixturevalue("rabbitmq"))
        yield port
        for name in (*QUEUES, "n.c", "n.cr"):
            guest.ask(queue.Delete(queue=name), queue.DeleteOk)
        for name in (*EXCHANGES, *TOPICS, "y.c", "y.cr"):
            guest.ask(exchange.Delete(exchange=name), exchange.DeleteOk)


def _declare_exchanges(guest: RawClient) -> None:
    for name in EXCHANGES:
        guest.ask(exchange.Declare(exchange=name), exchange.DeclareOk)
    for name in TOPICS:
        guest.ask(exchange.Declare(exchange=name, type="topic"), exchange.DeclareOk)


def _limit_topics(rabbitmq: RabbitMq) -> None:
    """RabbitMQ 4.3 wants the exchange to be there, and forgets this with it."""
    read, write = "^open[.]{client_id}$", "^{username}[.]{vhost}[.]"
    rabbitmq.control("set_topic_permissions", "eve", "t.wr", write, read)


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


@pytest.mark.parametrize("keys, name", [([MINE], "t.wr"), ([MINE, MINE + "y"], "t.wr"), (["any"], "u.wr")])
def test_publish_with_the_right_keys(eve: RawClient, keys: list[str], name: str) -> None:
    _publish_under(*keys, name=name)(eve)
    eve.answer(basic.QosOk)


@pytest.mark.parametrize("what", REFUSED)
def test_without_the_right(eve: RawClient, what: str) -> None:
    REFUSED[what](eve)
    event = eve.next_of(ChannelClosed, ConnectionClosed, MethodReceived)
    assert isinstance(event, ChannelClosed), event
    assert event.reply_code == 403
    assert in_words_of_3_10(event.reply_text).startswith("ACCESS_REFUSED - access to ")


def test_a_wrong_key_in_cc_is_refused(kernel_port: int) -> None:
    """As in RabbitMQ 4; 3.10 looks at the first key alone, so that CC leads past the permissions."""
    with RawClient(kernel_port) as guest, RawClient(kernel_port, response=b"\0eve\0eve") as client:
        guest.ask(exchange.Declare(exchange="t.wr", type="topic"), exchange.DeclareOk)
        _publish_under(MINE, "adam")(client)
        event = client.next_of(ChannelClosed, MethodReceived)
        assert isinstance(event, ChannelClosed)
        assert "access to topic 'adam' in exchange 't.wr'" in event.reply_text


@pytest.mark.slow
@pytest.mark.peer("rabbitmq")
@pytest.mark.parametrize("what", REFUSED)
def test_in_the_same_words(kernel_port: int, rabbitmq: RabbitMq, rabbitmq_port: int, what: str) -> None:
    events = []
    for port in (kernel_port, rabbitmq_port):
        with RawClient(port) as guest, RawClient(port, response=b"\0eve\0eve") as client:
            for name in QUEUES:
                guest.ask(queue.Declare(queue=name), queue.DeclareOk)
            _declare_exchanges(guest)
            if port == rabbitmq_port:
                _limit_topics(rabbitmq)
            REFUSED[what](client)
            event = client.next_of(ChannelClosed, ConnectionClosed)
            assert isinstance(event, ChannelClosed | ConnectionClosed)
            events.append(msgspec.structs.replace(event, reply_text=in_words_of_3_10(event.reply_text)))
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
