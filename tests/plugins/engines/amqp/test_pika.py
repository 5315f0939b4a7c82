"""Everyday life with pika, as its tutorials and manual show it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pika
import pika.exceptions
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from tests.plugins.engines.amqp.conftest import Server

pytestmark = pytest.mark.peer("pika")


def get_all(channel: BlockingChannel, queue: str) -> list[bytes]:
    bodies = []
    while (got := channel.basic_get(queue, auto_ack=True))[0] is not None:
        bodies.append(got[2])
    return bodies


def consume(
    channel: BlockingChannel, queue: str, count: int, **arguments: Any
) -> list[tuple[Any, Any, bytes]]:
    """Consume just so many."""
    got: list[tuple[Any, Any, bytes]] = []
    for item in channel.consume(queue, inactivity_timeout=5, **arguments):
        assert item[0] is not None, f"only {len(got)} of {count} came"
        got.append(item)
        if len(got) == count:
            break
    return got


def test_hello_world(channel: BlockingChannel) -> None:
    channel.queue_declare(queue="hello")
    received: list[bytes] = []

    def callback(ch: Any, method: Any, properties: Any, body: bytes) -> None:
        received.append(body)
        ch.stop_consuming()

    channel.basic_consume(queue="hello", on_message_callback=callback, auto_ack=True)
    channel.basic_publish(exchange="", routing_key="hello", body=b"Hello World!")
    channel.start_consuming()
    assert received == [b"Hello World!"]


def test_work_queue_deals_messages_in_turn(server: Server) -> None:
    """The second tutorial: two workers get every other task."""
    publisher = server.channel()
    publisher.queue_declare("tasks", durable=True)
    workers = [server.channel() for _ in range(2)]
    received: list[list[bytes]] = [[], []]
    for number, worker in enumerate(workers):
        worker.basic_qos(prefetch_count=3)
        worker.basic_consume("tasks", lambda c, m, p, b, n=number: received[n].append(b))
    for number in range(6):
        publisher.basic_publish("", "tasks", b"%d" % number, pika.BasicProperties(delivery_mode=2))
    while sum(map(len, received)) < 6:
        for worker in workers:
            worker.connection.process_data_events(time_limit=0.01)
    assert received == [[b"0", b"2", b"4"], [b"1", b"3", b"5"]]


def test_fanout_reaches_every_queue(channel: BlockingChannel) -> None:
    channel.exchange_declare("logs", "fanout")
    queues = [channel.queue_declare("", exclusive=True).method.queue for _ in range(3)]
    assert all(name.startswith("amq.gen-") for name in queues)
    for name in queues:
        channel.queue_bind(exchange="logs", queue=name)
    channel.basic_publish("logs", "", b"info")
    assert [get_all(channel, name) for name in queues] == [[b"info"]] * 3


def test_direct_goes_by_key(channel: BlockingChannel) -> None:
    channel.exchange_declare("direct_logs", "direct")
    channel.queue_declare("errors")
    for key in ("error", "warning"):
        channel.queue_bind("errors", "direct_logs", key)
    for key in ("info", "warning", "error"):
        channel.basic_publish("direct_logs", key, key.encode())
    assert get_all(channel, "errors") == [b"warning", b"error"]


def test_topic_goes_by_pattern(channel: BlockingChannel) -> None:
    channel.exchange_declare("topic_logs", "topic")
    for queue, pattern in (("all", "#"), ("kernel", "kern.*"), ("critical", "*.critical")):
        channel.queue_declare(queue)
        channel.queue_bind(queue, "topic_logs", pattern)
    for key in ("kern.critical", "kern.info", "cron.critical", "kern"):
        channel.basic_publish("topic_logs", key, key.encode())
    assert len(get_all(channel, "all")) == 4
    assert get_all(channel, "kernel") == [b"kern.critical", b"kern.info"]
    assert get_all(channel, "critical") == [b"kern.critical", b"cron.critical"]


def test_headers_go_by_headers(channel: BlockingChannel) -> None:
    channel.queue_declare("pdf")
    channel.queue_bind("pdf", "amq.headers", arguments={"x-match": "all", "format": "pdf", "type": "report"})
    for kind in ("pdf", "zip"):
        properties = pika.BasicProperties(headers={"format": kind, "type": "report"})
        channel.basic_publish("amq.headers", "", kind.encode(), properties)
    assert get_all(channel, "pdf") == [b"pdf"]


def test_properties_arrive_as_they_were_sent(channel: BlockingChannel) -> None:
    channel.queue_declare("q")
    sent = pika.BasicProperties(
        content_type="text/plain",
        content_encoding="utf-8",
        headers={"a": 1, "nested": {"b": [1, "two", None]}},
        delivery_mode=2,
        priority=3,
        correlation_id="c",
        reply_to="r",
        expiration="60000",
        message_id="m",
        timestamp=1_700_000_000,
        type="t",
        user_id="guest",
        app_id="app",
    )
    channel.basic_publish("", "q", b"", sent)
    method, properties, body = channel.basic_get("q")
    assert method is not None
    assert (properties, body) == (sent, b"")


def test_large_bodies_pass_whole(channel: BlockingChannel) -> None:
    channel.queue_declare("q")
    body = bytes(range(256)) * 4096 * 3
    channel.basic_publish("", "q", body)
    assert channel.basic_get("q")[2] == body


def test_prefetch_bounds_what_is_outstanding(channel: BlockingChannel) -> None:
    channel.queue_declare("q")
    channel.confirm_delivery()
    for number in range(5):
        channel.basic_publish("", "q", b"%d" % number)
    channel.basic_qos(prefetch_count=2)
    tags: list[int] = []
    channel.basic_consume("q", lambda c, m, p, b: tags.append(m.delivery_tag))
    channel.queue_declare("q", passive=True)  # a round trip: what was to come has come
    channel.connection.process_data_events()
    assert tags == [1, 2]
    channel.basic_ack(1)
    channel.queue_declare("q", passive=True)
    channel.connection.process_data_events()
    assert tags == [1, 2, 3]
    channel.basic_ack(3, multiple=True)
    channel.queue_declare("q", passive=True)
    channel.connection.process_data_events()
    assert tags == [1, 2, 3, 4, 5]


def test_a_requeued_message_comes_back_in_its_place_and_marked(channel: BlockingChannel) -> None:
    channel.queue_declare("q")
    for number in range(4):
        channel.basic_publish("", "q", b"%d" % number)
    first = channel.basic_get("q")
    second = channel.basic_get("q")
    channel.basic_nack(first[0].delivery_tag)
    channel.basic_reject(second[0].delivery_tag)
    got = [channel.basic_get("q", auto_ack=True) for _ in range(4)]
    assert [(body, method.redelivered) for method, _, body in got] == [
        (b"0", True),
        (b"1", True),
        (b"2", False),
        (b"3", False),
    ]


def test_recover_requeues_all(channel: BlockingChannel) -> None:
    channel.queue_declare("q")
    channel.basic_publish("", "q", b"one")
    channel.basic_get("q")
    channel.basic_recover(requeue=True)
    method, _, body = channel.basic_get("q")
    assert (method.redelivered, body) == (True, b"one")


def test_what_a_lost_connection_held_goes_to_others(server: Server) -> None:
    worker = server.channel()
    worker.queue_declare("q")
    worker.basic_publish("", "q", b"task")
    assert consume(worker, "q", 1)[0][2] == b"task"
    worker.connection.close()
    other = server.channel()
    method, _, body = consume(other, "q", 1)[0]
    assert (method.redelivered, body) == (True, b"task")


def test_an_unroutable_mandatory_message_is_returned(channel: BlockingChannel) -> None:
    channel.confirm_delivery()
    with pytest.raises(pika.exceptions.UnroutableError) as returned:
        channel.basic_publish("", "nowhere", b"lost?", mandatory=True)
    (message,) = returned.value.messages
    assert (message.method.reply_code, message.method.reply_text) == (312, "NO_ROUTE")
    assert (message.method.routing_key, message.body) == ("nowhere", b"lost?")
    channel.basic_publish("", "nowhere", b"nobody minds")


def test_a_full_queue_that_rejects_refuses_the_publisher(channel: BlockingChannel) -> None:
    channel.queue_declare("q", arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
    channel.confirm_delivery()
    channel.basic_publish("", "q", b"fits")
    with pytest.raises(pika.exceptions.NackError):
        channel.basic_publish("", "q", b"does not")
    assert get_all(channel, "q") == [b"fits"]


def test_a_full_queue_drops_its_head(channel: BlockingChannel) -> None:
    channel.queue_declare("q", arguments={"x-max-length": 2})
    for number in range(4):
        channel.basic_publish("", "q", b"%d" % number)
    assert get_all(channel, "q") == [b"2", b"3"]


def test_a_rejected_message_goes_to_the_dead_letter_exchange(channel: BlockingChannel) -> None:
    channel.queue_declare("dead")
    channel.queue_declare("q", arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"})
    channel.basic_publish("", "q", b"bad")
    channel.basic_reject(channel.basic_get("q")[0].delivery_tag, requeue=False)
    method, properties, body = channel.basic_get("dead")
    assert (method.routing_key, body) == ("dead", b"bad")
    (death,) = properties.headers["x-death"]
    assert {name: death[name] for name in ("count", "reason", "queue", "exchange", "routing-keys")} == {
        "count": 1,
        "reason": "rejected",
        "queue": "q",
        "exchange": "",
        "routing-keys": ["q"],
    }
    assert properties.headers["x-first-death-queue"] == "q"


def test_an_expired_message_goes_to_the_dead_letter_exchange_by_itself(channel: BlockingChannel) -> None:
    """The usual delay queue: nobody reads it, its messages expire into the work queue."""
    channel.queue_declare("work")
    channel.queue_declare(
        "delay", arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "work"}
    )
    channel.basic_publish("", "delay", b"later", pika.BasicProperties(expiration="20"))
    _, properties, body = consume(channel, "work", 1)[0]
    assert body == b"later"
    assert properties.expiration is None
    assert properties.headers["x-death"][0]["reason"] == "expired"
    assert properties.headers["x-death"][0]["original-expiration"] == "20"


def test_higher_priorities_come_first(channel: BlockingChannel) -> None:
    channel.queue_declare("q", arguments={"x-max-priority": 5})
    for number, priority in enumerate((1, 5, 0, 9, 1)):
        channel.basic_publish("", "q", b"%d" % number, pika.BasicProperties(priority=priority))
    assert get_all(channel, "q") == [b"1", b"3", b"0", b"4", b"2"]


def test_purge_and_delete_tell_how_many(channel: BlockingChannel) -> None:
    channel.queue_declare("q")
    for _ in range(3):
        channel.basic_publish("", "q", b"")
    assert channel.queue_purge("q").method.message_count == 3
    channel.basic_publish("", "q", b"")
    assert channel.queue_delete("q").method.message_count == 1


def test_an_exclusive_queue_goes_with_its_connection(server: Server) -> None:
    owner = server.channel()
    owner.queue_declare("mine", exclusive=True)
    other = server.channel()
    with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="RESOURCE_LOCKED"):
        other.queue_declare("mine", passive=True)
    owner.connection.close()
    with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="NOT_FOUND"):
        server.channel().queue_declare("mine", passive=True)


def test_an_auto_delete_queue_goes_with_its_last_consumer(channel: BlockingChannel) -> None:
    channel.queue_declare("q", auto_delete=True)
    tag = channel.basic_consume("q", lambda *_: None)
    channel.basic_cancel(tag)
    with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="NOT_FOUND"):
        channel.queue_declare("q", passive=True)


def test_an_auto_delete_exchange_goes_with_its_last_binding(channel: BlockingChannel) -> None:
    channel.exchange_declare("x", auto_delete=True)
    channel.queue_declare("q")
    channel.queue_bind("q", "x", "k")
    channel.queue_unbind("q", "x", "k")
    with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="NOT_FOUND"):
        channel.exchange_declare("x", passive=True)


def test_exchanges_lead_to_exchanges(channel: BlockingChannel) -> None:
    channel.exchange_declare("in", "topic")
    channel.exchange_declare("out", "fanout")
    channel.exchange_bind("out", "in", "a.#")
    channel.queue_declare("q")
    channel.queue_bind("q", "out")
    channel.basic_publish("in", "a.b", b"1")
    channel.basic_publish("in", "b", b"2")
    channel.exchange_unbind("out", "in", "a.#")
    channel.basic_publish("in", "a.b", b"3")
    assert get_all(channel, "q") == [b"1"]


def test_an_alternate_exchange_gets_what_has_no_route(channel: BlockingChannel) -> None:
    channel.exchange_declare("rest", "fanout")
    channel.exchange_declare("x", "direct", arguments={"alternate-exchange": "rest"})
    channel.queue_declare("q")
    channel.queue_bind("q", "rest")
    channel.basic_publish("x", "anything", b"found")
    assert get_all(channel, "q") == [b"found"]


def test_a_consumer_is_told_that_its_queue_is_gone(server: Server) -> None:
    consumer, other = server.channel(), server.channel()
    consumer.queue_declare("q")
    gone: list[str] = []
    consumer.add_on_cancel_callback(lambda frame: gone.append(frame.method.consumer_tag))
    consumer.basic_consume("q", lambda *_: None, consumer_tag="me")
    other.queue_delete("q")
    while not gone:
        consumer.connection.process_data_events(time_limit=5)
    assert gone == ["me"]


def test_a_transaction_publishes_at_its_commit(channel: BlockingChannel) -> None:
    channel.queue_declare("q")
    channel.tx_select()
    channel.basic_publish("", "q", b"no")
    channel.tx_rollback()
    channel.basic_publish("", "q", b"yes")
    assert channel.queue_declare("q", passive=True).method.message_count == 0
    channel.tx_commit()
    assert channel.queue_declare("q", passive=True).method.message_count == 1
    assert get_all(channel, "q") == [b"yes"]


def test_direct_reply_to(server: Server) -> None:
    """The manual's example: a request and its answer without a reply queue."""
    caller, worker = server.channel(), server.channel()
    worker.queue_declare("rpc")
    answers: list[bytes] = []
    caller.basic_consume("amq.rabbitmq.reply-to", lambda c, m, p, b: answers.append(b), auto_ack=True)
    request = pika.BasicProperties(reply_to="amq.rabbitmq.reply-to", correlation_id="1")
    caller.basic_publish("", "rpc", b"6*7", request)
    _, properties, body = consume(worker, "rpc", 1)[0]
    assert body == b"6*7"
    assert properties.reply_to.startswith("amq.rabbitmq.reply-to.")
    worker.basic_publish("", properties.reply_to, b"42")
    while not answers:
        caller.connection.process_data_events(time_limit=5)
    assert answers == [b"42"]


def test_sender_selected_copies_reach_their_queues(channel: BlockingChannel) -> None:
    for name in ("a", "b", "c"):
        channel.queue_declare(name)
    channel.basic_publish("", "a", b"x", pika.BasicProperties(headers={"CC": ["b"], "BCC": ["c"]}))
    for name in ("a", "b", "c"):
        _, properties, body = channel.basic_get(name)
        assert (properties.headers, body) == ({"CC": ["b"]}, b"x")


def test_many_messages_come_through_in_order(server: Server) -> None:
    channel = server.channel()
    channel.queue_declare("q")
    bodies = [b"%d" % number for number in range(5000)]
    for body in bodies:
        channel.basic_publish("", "q", body)
    assert [body for _, _, body in consume(channel, "q", 5000, auto_ack=True)] == bodies


def test_options_declare_what_is_there_from_the_start(serve: Callable[..., Server]) -> None:
    from plugins.engines.amqp.options import BindingOptions, ExchangeOptions, QueueOptions

    server = serve(
        exchanges=(ExchangeOptions(name="feed", type="topic"),),
        queues=(QueueOptions(name="all"),),
        bindings=(BindingOptions(exchange="feed", queue="all", key="#"),),
    )
    channel = server.channel()
    channel.queue_declare("all", durable=True)
    channel.basic_publish("feed", "a.b", b"x")
    assert get_all(channel, "all") == [b"x"]
