"""The client against RabbitMQ."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kernel.contracts.message import Envelope, Message
from kernel.testing.fixtures import KernelFactory
from plugins.protocols.amqp091.events import Delivered
from plugins.protocols.amqp091.methods import basic, queue
from tests.interop.until import until
from tests.plugins.engines.amqp.raw_client import RawClient
from tests.plugins.engines.amqp_client.conftest import TIMEOUT, Client, receive
from tests.plugins.engines.amqp_client.rabbitmq import RabbitMq

pytestmark = [pytest.mark.peer("rabbitmq"), pytest.mark.slow]


@pytest.fixture
def connect(kernel_factory: KernelFactory, rabbitmq: RabbitMq) -> Callable[..., Client]:
    def make(**options: Any) -> Client:
        client = Client(kernel_factory, rabbitmq.address, **options)
        client.events.wait("connected")
        return client

    return make


def _bodies(first: int, last: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, last)]


def test_both_ways_with_confirms_and_acknowledgements(connect: Callable[..., Client]) -> None:
    client = connect(
        exchange="", key="both", queues=[{"name": "both"}], consume=[{"queue": "both"}], in_flight=100
    )
    out, into = client.kernel.open("out"), client.kernel.open("in")
    bodies = _bodies(0, 5000)
    out.send_many(bodies, timeout=TIMEOUT)
    assert receive(into, bodies) == bodies
    out.wait_confirmed(TIMEOUT)


def test_large_bodies_and_properties(connect: Callable[..., Client]) -> None:
    client = connect(
        exchanges=[{"name": "large", "type": "headers"}],
        queues=[{"name": "large", "exclusive": True}],
        bindings=[{"exchange": "large", "queue": "large", "arguments": {"kind": "a"}}],
        consume=[{"queue": "large", "prefetch": 1}],
    )
    out, into = client.kernel.open("out"), client.kernel.open("in")
    envelope = Envelope(exchange="large", key="k", priority=3, properties={"headers": {"kind": "a", "n": 7}})
    for size in (0, 1, 131_064, 131_065, 1_000_000):
        out.send_message(Message(b"x" * size, envelope))
        message = into.receive_message(timeout=TIMEOUT)
        into.confirm()
        assert (len(bytes(message)), message.key, message.envelope.priority) == (size, "k", 3)
        assert message.envelope.properties["headers"] == {"kind": "a", "n": 7}


def test_a_deleted_queue_is_declared_and_consumed_from_again(
    connect: Callable[..., Client], rabbitmq: RabbitMq
) -> None:
    client = connect(exchange="", key="gone", queues=[{"name": "gone"}], consume=[{"queue": "gone"}])
    with RawClient(rabbitmq.port) as raw:
        look = queue.Declare(queue="gone", passive=True)
        # The client has asked to consume when it says that it is connected; RabbitMQ may be later.
        until(lambda: raw.ask(look, queue.DeclareOk).consumer_count == 1)
        raw.ask(queue.Delete(queue="gone"), queue.DeleteOk)
    client.events.wait("cancelled")
    into, out = client.kernel.open("in"), client.kernel.open("out")
    while not client.statistics()["messages_in"]:
        out.send(
            b"x", timeout=TIMEOUT
        )  # lost until the queue is there again: RabbitMQ confirms it all the same
    assert bytes(into.receive(TIMEOUT)) == b"x"


@pytest.mark.parametrize(
    "options,said",
    [
        ({"password": "wrong"}, ["ACCESS_REFUSED", "check user, password"]),
        ({"vhost": "nowhere"}, ["530", "vhost nowhere"]),
    ],
)
def test_a_login_that_fails_says_why(
    kernel_factory: KernelFactory, rabbitmq: RabbitMq, options: dict[str, str], said: list[str]
) -> None:
    client = Client(kernel_factory, rabbitmq.address, **options)
    detail = client.events.wait("disconnected").detail
    assert [text for text in said if text not in detail] == []


def test_a_refusal_says_what_to_do(connect: Callable[..., Client]) -> None:
    refused = connect(consume=[{"queue": "nowhere"}]).events.wait("refused", times=2)
    assert "404 NOT_FOUND" in refused.detail
    assert "declare it in this engine's options" in refused.detail


def test_a_full_queue_takes_everything_in_the_end(connect: Callable[..., Client], rabbitmq: RabbitMq) -> None:
    full = {"x-max-length": 5, "x-overflow": "reject-publish"}
    client = connect(exchange="", key="small", queues=[{"name": "small", "arguments": full}])
    out = client.kernel.open("out")
    out.send_many(_bodies(0, 30))
    client.events.wait("retrying")
    got: set[bytes] = set()
    with RawClient(rabbitmq.port) as raw:
        raw.send(basic.Consume(queue="small", no_ack=True))
        while len(got) < 30:
            got.update(raw.wait_for(Delivered).batch.bodies)
    out.wait_confirmed(TIMEOUT)
    assert client.statistics()["messages_nacked"] > 0


def test_nothing_is_lost_when_the_server_is_killed(
    connect: Callable[..., Client], rabbitmq: RabbitMq
) -> None:
    client = connect(
        exchange="", key="kept", persistent=True, queues=[{"name": "kept"}], consume=[{"queue": "kept"}]
    )
    out, into = client.kernel.open("out"), client.kernel.open("in", auto_confirm=False)
    bodies = _bodies(0, 3000)
    out.send_many(bodies[:2000], timeout=TIMEOUT)
    first = receive(into, bodies[:100])
    rabbitmq.stop()
    client.events.wait("disconnected")
    out.send_many(bodies[2000:], timeout=TIMEOUT)
    rabbitmq.start()
    client.events.wait("connected", times=2)
    into.confirm()
    got = set(first)
    while len(got) < 3000:
        got.update(map(bytes, into.receive_many(timeout=TIMEOUT)))
        into.confirm()
    out.wait_confirmed(TIMEOUT)
    assert got == set(bodies)


def test_a_server_that_is_low_on_memory_stops_the_publisher_and_not_the_consumer(
    connect: Callable[..., Client], rabbitmq: RabbitMq
) -> None:
    client = connect(
        exchange="", key="low", queues=[{"name": "low"}], consume=[{"queue": "low", "prefetch": 1}]
    )
    out, into = client.kernel.open("out"), client.kernel.open("in", auto_confirm=False)
    out.send_many(_bodies(0, 100))
    out.wait_confirmed(TIMEOUT)
    rabbitmq.control("set_vm_memory_high_watermark", "0.000001")
    more = 0

    def is_blocked() -> bool:
        """RabbitMQ blocks who publishes, and only then; it may look at its memory some seconds later."""
        nonlocal more
        if not client.events.count("blocked"):
            out.send(b"too much")
            more += 1
        return client.events.count("blocked") > 0

    try:
        until(is_blocked, every=0.1)
        assert client.statistics()["blocked"] is True
        for body in _bodies(0, 100):
            assert bytes(into.receive(TIMEOUT)) == body
            into.confirm()
    finally:
        rabbitmq.control("set_vm_memory_high_watermark", "0.4")
    client.events.wait("unblocked")
    for _ in range(more):
        assert bytes(into.receive(TIMEOUT)) == b"too much"
        into.confirm()
    out.wait_confirmed(TIMEOUT)
    assert client.statistics()["blocked"] is False


def test_a_queue_that_the_server_names(connect: Callable[..., Client], rabbitmq: RabbitMq) -> None:
    client = connect(
        queues=[{"name": "", "exclusive": True, "durable": False}],
        bindings=[{"exchange": "amq.topic", "queue": "", "key": "named.#"}],
        consume=[{"queue": ""}],
    )
    with RawClient(rabbitmq.port) as raw:
        raw.publish(b"x", "named.x", "amq.topic")
        assert bytes(client.kernel.open("in").receive(TIMEOUT)) == b"x"


def test_amqplain(kernel_factory: KernelFactory, rabbitmq: RabbitMq) -> None:
    Client(kernel_factory, rabbitmq.address, mechanism="AMQPLAIN").events.wait("connected")


def test_a_message_for_an_exchange_that_is_not_there_is_dropped_if_that_is_wanted(
    connect: Callable[..., Client],
) -> None:
    client = connect(when_refused="drop", mandatory=False)
    out = client.kernel.open("out")
    for exchange, body in (("", b"0"), ("nowhere", b"1"), ("", b"2")):
        out.send_message(Message(body, Envelope(exchange=exchange, key="nobody")))
    out.wait_confirmed(TIMEOUT)
    assert client.statistics()["messages_refused"] == 1
    assert "'nowhere'" in client.events.wait("dropped").detail
