"""What our broker refuses, RabbitMQ refuses in the same words: level, code, text, and the method that was at fault."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial

import pytest

from plugins.protocols.amqp091.events import ChannelClosed, ConnectionClosed, Delivered
from plugins.protocols.amqp091.methods import basic, exchange, queue
from plugins.protocols.amqp091.methods.method import Method
from tests.interop.brokers import KernelProcess
from tests.interop.until import until
from tests.plugins.engines.amqp.raw_client import RawClient
from tests.plugins.engines.amqp.test_refusals import ACTIONS, ONE_METHOD, stage
from tests.plugins.engines.amqp_client.rabbitmq import VERSION, RabbitMq

pytestmark = [pytest.mark.peer("rabbitmq"), pytest.mark.slow]


@pytest.fixture
def both(kernel_process: KernelProcess, rabbitmq: RabbitMq) -> Iterator[list[RawClient]]:
    """The same stage on our broker and on RabbitMQ."""
    ports = [kernel_process.broker.port, rabbitmq.port]
    with ExitStack() as stack:
        yield [stack.enter_context(stage(port)) for port in ports]
    for port in ports:
        with RawClient(port) as client:
            for name in ("plain", "consumed", "new"):
                client.ask(queue.Delete(queue=name), queue.DeleteOk)
            for name in ("x", "new", "int"):
                client.ask(exchange.Delete(exchange=name), exchange.DeleteOk)
        until(partial(_is_gone, port, "exclusive"))


def _is_gone(port: int, name: str) -> bool:
    """Whether there is no such queue any more; one that is exclusive goes when its connection has been cleared away."""
    with RawClient(port) as client:
        client.send(queue.Declare(queue=name, passive=True))
        return client.refusal()[1] == 404


def refusal(client: RawClient) -> ChannelClosed | ConnectionClosed:
    event = client.next_of(ChannelClosed, ConnectionClosed)
    assert isinstance(event, ChannelClosed | ConnectionClosed)
    return event


CHANGED: dict[str, tuple[tuple[int, int], ChannelClosed | None]] = {
    "unknown exchange type": (
        (4, 0),
        ChannelClosed(
            channel=1,
            reply_code=406,
            reply_text="PRECONDITION_FAILED - unknown exchange type 'ZZ'",
            class_id=40,
            method_id=10,
            by_peer=True,
        ),
    ),
    "delivery mode 0": ((4, 0), None),
    "delivery mode 3": ((4, 0), None),
    "unknown x-queue-mode": ((4, 3), None),
}
"""What RabbitMQ says to it in this version and later ones, where we say what 3.10 does; it refuses nothing if there is nothing."""


def _compare(both: list[RawClient], what: str) -> None:
    """See that RabbitMQ refuses what ours has just refused, or what else it does."""
    ours, theirs = both
    since, instead = CHANGED.get(what, ((0, 0), None))
    if what not in CHANGED or since > VERSION:
        assert refusal(ours) == refusal(theirs)
        return
    refusal(ours)
    theirs.send(queue.Purge(queue="none"))
    said = refusal(theirs)
    assert (said == instead) if instead else (said.reply_code, said.method_id) == (404, 30)


@pytest.mark.parametrize("what, method", [row[:2] for row in ONE_METHOD], ids=[row[0] for row in ONE_METHOD])
def test_a_wrong_method(both: list[RawClient], what: str, method: Method) -> None:
    for client in both:
        client.send(method)
    _compare(both, what)


@pytest.mark.parametrize("what, act", [row[:2] for row in ACTIONS], ids=[row[0] for row in ACTIONS])
def test_a_wrong_action(both: list[RawClient], what: str, act: Callable[[RawClient], None]) -> None:
    for client in both:
        act(client)
    _compare(both, what)


ACKNOWLEDGEMENTS = [
    *(
        basic.Ack(delivery_tag=tag, multiple=multiple)
        for tag in (0, 1, 2, 3, 9)
        for multiple in (False, True)
    ),
    *(
        basic.Nack(delivery_tag=tag, multiple=multiple)
        for tag in (0, 1, 2, 3, 9)
        for multiple in (False, True)
    ),
    *(basic.Reject(delivery_tag=tag) for tag in (0, 1, 2, 3, 9)),
]


@pytest.mark.parametrize("acknowledgement", ACKNOWLEDGEMENTS, ids=str)
def test_an_acknowledgement_of_anything(both: list[RawClient], acknowledgement: Method) -> None:
    """Of three deliveries the second is acknowledged already; then a missing queue closes what is still open."""
    for client in both:
        for _ in range(2):
            client.publish(b"more", "plain")
        client.ask(basic.Consume(queue="plain"), basic.ConsumeOk)
        came = 0
        while came < 3:
            came += len(client.wait_for(Delivered).batch)
        client.send(basic.Ack(delivery_tag=2))
        client.send(acknowledgement)
        client.send(queue.Purge(queue="none"))
    ours, theirs = map(refusal, both)
    assert ours == theirs
