"""What arguments of queues and exchanges lead to in corners that everyday life seldom sees."""

from __future__ import annotations

from typing import Any

import pika
import pika.exceptions
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from tests.interop.brokers import Broker
from tests.interop.conftest import Connect
from tests.interop.test_pika import consume, get_all
from tests.interop.until import until

pytestmark = pytest.mark.peer("pika")

MARK = b"the last one"


def dead_lettering(queue: str, **arguments: Any) -> dict[str, Any]:
    return {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": queue, **arguments}


def deaths(properties: pika.BasicProperties) -> list[tuple[str, str, int]]:
    return [(one["queue"], one["reason"], one["count"]) for one in properties.headers["x-death"]]


def test_a_full_queue_rejects_and_lays_aside(channel: BlockingChannel, name: str) -> None:
    dead = f"{name}.dead"
    channel.queue_declare(dead)
    arguments = dead_lettering(dead, **{"x-max-length": 1, "x-overflow": "reject-publish-dlx"})
    channel.queue_declare(name, arguments=arguments)
    channel.confirm_delivery()
    channel.basic_publish("", name, b"kept")
    with pytest.raises(pika.exceptions.NackError):
        channel.basic_publish("", name, b"too much")
    ((_, properties, body),) = consume(channel, dead, 1, auto_ack=True)
    assert (body, deaths(properties)) == (b"too much", [(name, "maxlen", 1)])
    assert get_all(channel, name) == [b"kept"]


def test_what_a_full_queue_drops_is_laid_aside(channel: BlockingChannel, name: str) -> None:
    dead = f"{name}.dead"
    channel.queue_declare(dead)
    channel.queue_declare(name, arguments=dead_lettering(dead, **{"x-max-length-bytes": 10}))
    for body in (b"1" * 6, b"2" * 6, b"3" * 11):
        channel.basic_publish("", name, body)
    dropped = consume(channel, dead, 3, auto_ack=True)
    assert [body[:1] for _, _, body in dropped] == [b"1", b"2", b"3"]
    assert all(deaths(properties) == [(name, "maxlen", 1)] for _, properties, _ in dropped)
    assert get_all(channel, name) == []


def test_alternate_exchanges_in_a_circle_lead_nowhere(channel: BlockingChannel, name: str) -> None:
    one, other = f"{name}.one", f"{name}.other"
    channel.exchange_declare(one, "direct", arguments={"alternate-exchange": other})
    channel.exchange_declare(other, "direct", arguments={"alternate-exchange": one})
    channel.confirm_delivery()
    with pytest.raises(pika.exceptions.UnroutableError):
        channel.basic_publish(one, "k", b"lost", mandatory=True)
    channel.queue_declare(name)
    channel.queue_bind(name, other, "k")
    channel.basic_publish(one, "k", b"found", mandatory=True)
    assert get_all(channel, name) == [b"found"]


def test_an_alternate_exchange_that_is_missing_is_no_route(channel: BlockingChannel, name: str) -> None:
    channel.exchange_declare(name, "fanout", arguments={"alternate-exchange": f"{name}.missing"})
    channel.confirm_delivery()
    with pytest.raises(pika.exceptions.UnroutableError):
        channel.basic_publish(name, "k", b"lost", mandatory=True)


def test_exchanges_bound_in_a_circle_reach_a_queue_once(channel: BlockingChannel, name: str) -> None:
    one, other = f"{name}.one", f"{name}.other"
    for exchange in (one, other):
        channel.exchange_declare(exchange, "fanout")
    channel.exchange_bind(one, other)
    channel.exchange_bind(other, one)
    channel.queue_declare(name)
    channel.queue_bind(name, one)
    channel.queue_bind(name, other)
    channel.confirm_delivery()
    channel.basic_publish(one, "", b"once")
    assert get_all(channel, name) == [b"once"]


def test_messages_that_expire_do_not_go_in_circles(channel: BlockingChannel, name: str) -> None:
    channel.queue_declare(name, arguments=dead_lettering(f"{name}.other", **{"x-message-ttl": 1}))
    channel.queue_declare(f"{name}.other", arguments=dead_lettering(name, **{"x-message-ttl": 1}))
    channel.queue_declare(
        f"{name}.itself", arguments=dead_lettering(f"{name}.itself", **{"x-message-ttl": 1})
    )
    queues = (name, f"{name}.other", f"{name}.itself")
    for queue in queues:
        channel.basic_publish("", queue, b"round")
    # Whoever waits behind has left, too, when all is over.
    channel.queue_declare(f"{name}.end")
    channel.queue_declare(f"{name}.after", arguments=dead_lettering(f"{name}.end", **{"x-message-ttl": 100}))
    channel.basic_publish("", f"{name}.after", MARK)
    assert consume(channel, f"{name}.end", 1)[0][2] == MARK
    until(lambda: not any(_waiting(channel, queue) for queue in queues))  # unless the broker was held up
    assert [get_all(channel, queue) for queue in queues] == [[], [], []]


def _waiting(channel: BlockingChannel, queue: str) -> int:
    count: int = channel.queue_declare(queue, passive=True).method.message_count
    return count


def test_a_message_that_is_rejected_may_go_in_circles_and_is_counted(
    channel: BlockingChannel, name: str
) -> None:
    """The usual way to try again later: rejected into a queue that nobody reads, and back when it expires."""
    channel.queue_declare(name, arguments=dead_lettering(f"{name}.later"))
    channel.queue_declare(f"{name}.later", arguments=dead_lettering(name, **{"x-message-ttl": 1}))
    channel.basic_publish("", name, b"again")
    for attempt in range(3):
        ((method, properties, _),) = consume(channel, name, 1)
        if attempt:
            expected = [(f"{name}.later", "expired", attempt), (name, "rejected", attempt)]
            assert deaths(properties) == expected
            assert properties.headers["x-first-death-reason"] == "rejected"
        channel.basic_reject(method.delivery_tag, requeue=False)
        channel.cancel()


def test_a_dead_letter_exchange_that_is_missing_costs_the_message_alone(
    channel: BlockingChannel, name: str
) -> None:
    channel.queue_declare(name, arguments={"x-dead-letter-exchange": f"{name}.missing"})
    for body in (b"bad", b"good"):
        channel.basic_publish("", name, body)
    channel.basic_reject(channel.basic_get(name)[0].delivery_tag, requeue=False)
    assert get_all(channel, name) == [b"good"]


def test_a_single_active_consumer_that_is_lost_is_followed_with_what_it_held(
    broker: Broker, connect: Connect, name: str
) -> None:
    first, second = connect(), connect()
    publisher = connect().channel()
    publisher.queue_declare(name, arguments={"x-single-active-consumer": True})
    channel = first.channel()
    channel.basic_qos(prefetch_count=2)
    held: list[bytes] = []
    channel.basic_consume(name, lambda *item: held.append(item[-1]))
    followed: list[tuple[bytes, bool]] = []
    follower = second.channel()
    follower.basic_consume(name, lambda _, method, __, body: followed.append((body, method.redelivered)))
    for body in (b"1", b"2", b"3"):
        publisher.basic_publish("", name, body)
    while len(held) < 2:
        first.process_data_events(0.1)
    second.process_data_events(0)
    assert followed == [], "though the first has no credit left"
    first.close()
    while len(followed) < 3:
        second.process_data_events(0.1)
    if broker.is_rabbitmq(4, 0):  # it may hand out the last one first
        followed.sort()
    assert followed == [(b"1", True), (b"2", True), (b"3", False)]


def test_a_higher_priority_does_not_oust_the_active_consumer(connect: Connect, name: str) -> None:
    connection = connect()
    channel = connection.channel()
    channel.queue_declare(name, arguments={"x-single-active-consumer": True})
    got: list[tuple[str, bytes]] = []

    def consume_as(who: str, priority: int) -> None:
        channel.basic_consume(
            name,
            lambda *item: got.append((who, item[-1])),
            auto_ack=True,
            consumer_tag=who,
            arguments={"x-priority": priority},
        )

    def publish(body: bytes) -> None:
        before = len(got)
        channel.basic_publish("", name, body)
        while len(got) == before:
            connection.process_data_events(0.1)

    consume_as("first", 0)
    publish(b"1")
    consume_as("low", 0)
    consume_as("high", 10)
    publish(b"2")
    channel.basic_cancel("first")
    publish(b"3")
    assert got == [("first", b"1"), ("first", b"2"), ("high", b"3")]


def test_the_shorter_of_two_times_to_live_counts(channel: BlockingChannel, name: str) -> None:
    dead = f"{name}.dead"
    channel.queue_declare(dead)
    channel.queue_declare(name, arguments=dead_lettering(dead, **{"x-message-ttl": 60_000}))
    channel.basic_publish("", name, b"short", pika.BasicProperties(expiration="1"))
    ((_, properties, _),) = consume(channel, dead, 1)
    assert deaths(properties) == [(name, "expired", 1)]


def test_what_has_expired_behind_a_living_head_is_not_delivered(channel: BlockingChannel, name: str) -> None:
    channel.queue_declare(name)
    short = pika.BasicProperties(expiration="1")
    for body, properties in (
        (b"head", None),
        (b"1", short),
        (b"between", None),
        (b"2", short),
        (b"3", short),
    ):
        channel.basic_publish("", name, body, properties)
    # Whoever waits longer has expired: so have they.
    dead = f"{name}.dead"
    channel.queue_declare(dead)
    channel.queue_declare(f"{name}.later", arguments=dead_lettering(dead, **{"x-message-ttl": 20}))
    channel.basic_publish("", f"{name}.later", b"clock")
    until(lambda: _waiting(channel, dead))
    channel.basic_publish("", name, MARK)
    assert [body for *_, body in consume(channel, name, 3, auto_ack=True)] == [b"head", b"between", MARK]
    assert get_all(channel, name) == []


def test_a_queue_that_is_declared_passively_in_time_does_not_expire(connect: Connect, name: str) -> None:
    channel = connect().channel()
    for queue in (name, f"{name}.unused"):
        channel.queue_declare(queue, arguments={"x-expires": 3000})
    # Goes with the queue that nobody uses. To ask for that queue itself would be a use.
    channel.exchange_declare(name, "fanout", auto_delete=True)
    channel.queue_bind(f"{name}.unused", name)

    def is_gone() -> bool:
        channel.queue_declare(name, passive=True)
        try:
            connect().channel().exchange_declare(name, passive=True)
        except pika.exceptions.ChannelClosedByBroker as closed:
            return bool(closed.reply_code == 404)
        return False

    until(is_gone, every=0.2)
    channel.queue_declare(name, passive=True)


def test_a_priority_above_the_highest_counts_as_the_highest(channel: BlockingChannel, name: str) -> None:
    channel.queue_declare(name, arguments={"x-max-priority": 3})
    for body, priority in ((b"none", None), (b"3", 3), (b"9", 9), (b"1", 1), (b"0", 0)):
        channel.basic_publish("", name, body, pika.BasicProperties(priority=priority))
    assert get_all(channel, name) == [b"3", b"9", b"1", b"none", b"0"]


HEADERS = [
    ({"x-match": "all", "a": 1, "b": "x"}, [{"a": 1, "b": "x"}, {"a": 1, "b": "x", "c": 2}]),
    ({"x-match": "any", "a": 1, "b": "x"}, [{"a": 1}, {"b": "x"}, {"a": 1, "b": "x"}, {"a": 1, "b": "x", "c": 2}]),
    ({"a": 1}, [{"a": 1}, {"a": 1, "b": "x"}, {"a": 1, "b": "x", "c": 2}]),
    ({"x-match": "all", "x-a": 1}, [{}, {"a": 1}, {"b": "x"}, {"a": 1, "b": "x"}, {"a": 1, "b": "x", "c": 2}, {"x-a": 1}, {"a": "1"}]),
    ({"x-match": "all-with-x", "x-a": 1}, [{"x-a": 1}]),
    ({"x-match": "any", "x-a": 1}, []),
    ({"x-match": "any-with-x", "x-a": 1, "c": 2}, [{"a": 1, "b": "x", "c": 2}, {"x-a": 1}]),
    ({"x-match": "all", "a": None}, [{"a": 1}, {"a": 1, "b": "x"}, {"a": 1, "b": "x", "c": 2}, {"a": "1"}]),
]  # fmt: skip
SENT: list[dict[str, Any]] = [
    {}, {"a": 1}, {"b": "x"}, {"a": 1, "b": "x"}, {"a": 1, "b": "x", "c": 2}, {"x-a": 1}, {"a": "1"},
]  # fmt: skip


@pytest.mark.parametrize("pattern, matching", HEADERS, ids=lambda value: str(value)[:40])
def test_headers_match_as_the_binding_says(
    channel: BlockingChannel, name: str, pattern: dict[str, Any], matching: list[dict[str, Any]]
) -> None:
    channel.queue_declare(name)
    channel.queue_bind(name, "amq.headers", arguments=pattern)
    channel.confirm_delivery()
    for headers in SENT:
        channel.basic_publish(
            "amq.headers", "", repr(headers).encode(), pika.BasicProperties(headers=headers)
        )
    assert get_all(channel, name) == [repr(headers).encode() for headers in matching]
    channel.queue_delete(name)
