"""Transactions: the same conversations with RabbitMQ and with us end in the same way."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from plugins.protocols.amqp091.events import Delivered, Got, Returned
from plugins.protocols.amqp091.methods import basic, exchange, queue, tx
from tests.plugins.engines.amqp.conftest import Server
from tests.plugins.engines.amqp.raw_client import RawClient
from tests.plugins.engines.amqp_client.rabbitmq import VERSION


@pytest.fixture(
    params=["ours", pytest.param("rabbitmq", marks=[pytest.mark.peer("rabbitmq"), pytest.mark.slow])]
)
def client(request: pytest.FixtureRequest) -> Iterator[RawClient]:
    """A connection whose first channel has a transaction, and an empty queue ``tx.q``, bound to ``tx.e`` with ``k``."""
    broker: Server = request.getfixturevalue("server" if request.param == "ours" else "rabbitmq")
    with RawClient(broker.port) as client:
        client.ask(queue.Declare(queue="tx.q"), queue.DeclareOk)
        client.ask(exchange.Declare(exchange="tx.e"), exchange.DeclareOk)
        client.ask(queue.Bind(queue="tx.q", exchange="tx.e", routing_key="k"), queue.BindOk)
        client.ask(tx.Select(), tx.SelectOk)
        yield client
    with RawClient(broker.port) as cleaner:
        cleaner.ask(queue.Delete(queue="tx.q"), queue.DeleteOk)
        cleaner.ask(exchange.Delete(exchange="tx.e"), exchange.DeleteOk)


def _fill(client: RawClient, *bodies: bytes) -> None:
    for body in bodies:
        client.publish(body, "tx.q")
    client.ask(tx.Commit(), tx.CommitOk)


def _get(client: RawClient) -> int:
    client.send(basic.Get(queue="tx.q"))
    return client.wait_for(Got).delivery_tag


def _ready(client: RawClient, channel: int = 1) -> int:
    return client.ask(queue.Declare(queue="tx.q", passive=True), queue.DeclareOk, channel).message_count


@pytest.mark.parametrize(
    "key, sent_to, properties, code",
    [
        ("k", "tx.none", None, 404),
        ("tx.q", "", {"expiration": "abc"}, 406),
        ("k", "tx.e", {"user_id": "eve"}, 406),
    ],
    ids=["missing exchange", "expiration", "user id"],
)
def test_a_publication_is_checked_when_it_comes(
    client: RawClient, key: str, sent_to: str, properties: dict[str, str] | None, code: int
) -> None:
    client.publish(b"x", key, sent_to, properties)
    assert client.refusal()[:2] == ("channel", code)


def test_the_exchange_may_be_deleted_before_the_commit(client: RawClient) -> None:
    client.publish(b"through the exchange", "k", "tx.e")
    client.publish(b"by the default exchange", "tx.q")
    client.ask(exchange.Delete(exchange="tx.e"), exchange.DeleteOk)
    client.ask(tx.Commit(), tx.CommitOk)
    assert _ready(client) == 2


def test_a_binding_made_after_the_publication_does_not_count(client: RawClient) -> None:
    client.publish(b"too early", "other", "tx.e")
    client.ask(queue.Bind(queue="tx.q", exchange="tx.e", routing_key="other"), queue.BindOk)
    client.ask(tx.Commit(), tx.CommitOk)
    assert _ready(client) == 0


def test_the_queue_of_that_name_at_the_commit_gets_it(
    request: pytest.FixtureRequest, client: RawClient
) -> None:
    client.publish(b"x", "tx.q")
    client.ask(queue.Delete(queue="tx.q"), queue.DeleteOk)
    client.ask(queue.Declare(queue="tx.q"), queue.DeclareOk)
    if "rabbitmq" in request.node.callspec.id and VERSION >= (4, 0):  # the one of before is missing
        client.send(tx.Commit())
        assert client.refusal() == ("channel", 406, "PRECONDITION_FAILED - partial tx completion")
        return
    client.ask(tx.Commit(), tx.CommitOk)
    assert _ready(client) == 1


def test_what_cannot_be_routed_is_returned_at_the_commit(client: RawClient) -> None:
    client.publish(b"x", "tx.nowhere", mandatory=True)
    assert _ready(client) == 0
    client.send(tx.Commit())
    assert client.wait_for(Returned).reply_text == "NO_ROUTE"
    client.answer(tx.CommitOk)


def test_an_unknown_tag_is_refused_when_it_comes(client: RawClient) -> None:
    client.send(basic.Ack(delivery_tag=77))
    assert client.refusal() == ("channel", 406, "PRECONDITION_FAILED - unknown delivery tag 77")


def test_a_tag_can_be_acknowledged_once(client: RawClient) -> None:
    _fill(client, b"x")
    tag = _get(client)
    client.send(basic.Ack(delivery_tag=tag))
    client.send(basic.Ack(delivery_tag=tag))
    assert client.refusal() == ("channel", 406, f"PRECONDITION_FAILED - unknown delivery tag {tag}")


def test_a_rollback_makes_it_unacknowledged_again(client: RawClient) -> None:
    _fill(client, b"a", b"b", b"c")
    tags = [_get(client) for _ in range(3)]
    client.send(basic.Ack(delivery_tag=tags[1]))
    client.send(basic.Nack(delivery_tag=tags[0], requeue=False))
    client.ask(tx.Rollback(), tx.RollbackOk)
    client.send(basic.Ack(delivery_tag=tags[1], multiple=True))
    client.ask(tx.Commit(), tx.CommitOk)
    client.send(basic.Nack(delivery_tag=tags[2], requeue=True))
    client.ask(tx.Commit(), tx.CommitOk)
    assert _ready(client) == 1


def test_a_channel_that_closes_before_its_commit_gives_back_what_it_acknowledged(client: RawClient) -> None:
    _fill(client, b"x")
    client.send(basic.Ack(delivery_tag=_get(client)))
    client.send(basic.Ack(delivery_tag=99))
    assert client.refusal()[:2] == ("channel", 406)
    client.open_channel(2)
    assert _ready(client, 2) == 1


def test_credit_comes_back_at_the_commit(client: RawClient) -> None:
    _fill(client, b"1", b"2", b"3", b"4")
    client.ask(basic.Qos(prefetch_count=2), basic.QosOk)
    client.send(basic.Consume(queue="tx.q", consumer_tag="c"))
    client.answer(basic.ConsumeOk)
    got = 0
    while got < 2:
        got += len(client.wait_for(Delivered).batch)
    client.send(basic.Ack(delivery_tag=2, multiple=True))
    assert _ready(client) == 2
    client.send(tx.Commit())
    while got < 4:
        got += len(client.wait_for(Delivered).batch)
    assert _ready(client) == 0
