"""Everyday life with pika, as its tutorials and manual show it."""

from __future__ import annotations

from typing import Any

import pika
import pika.exceptions
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from tests.interop.conftest import Connect
from tests.interop.until import until

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
    for item in channel.consume(queue, inactivity_timeout=60, **arguments):
        assert item[0] is not None, f"only {len(got)} of {count} came"
        got.append(item)
        if len(got) == count:
            break
    return got


def test_hello_world(channel: BlockingChannel, name: str) -> None:
    channel.queue_declare(queue=f"{name}.hello")
    received: list[bytes] = []

    def callback(ch: Any, method: Any, properties: Any, body: bytes) -> None:
        received.append(body)
        ch.stop_consuming()

    channel.basic_consume(queue=f"{name}.hello", on_message_callback=callback, auto_ack=True)
    channel.basic_publish(exchange="", routing_key=f"{name}.hello", body=b"Hello World!")
    channel.start_consuming()
    assert received == [b"Hello World!"]


def test_work_queue_deals_messages_in_turn(connect: Connect, name: str) -> None:
    """The second tutorial: two workers get every other task."""
    publisher = connect().channel()
    publisher.queue_declare(f"{name}.tasks", durable=True)
    workers = [connect().channel() for _ in range(2)]
    received: list[list[bytes]] = [[], []]
    for number, worker in enumerate(workers):
        worker.basic_qos(prefetch_count=3)
        worker.basic_consume(f"{name}.tasks", lambda c, m, p, b, n=number: received[n].append(b))
    for number in range(6):
        publisher.basic_publish("", f"{name}.tasks", b"%d" % number, pika.BasicProperties(delivery_mode=2))
    while sum(map(len, received)) < 6:
        for worker in workers:
            worker.connection.process_data_events(time_limit=0.01)
    assert received == [[b"0", b"2", b"4"], [b"1", b"3", b"5"]]


def test_fanout_reaches_every_queue(channel: BlockingChannel, name: str) -> None:
    channel.exchange_declare(f"{name}.logs", "fanout")
    queues = [channel.queue_declare("", exclusive=True).method.queue for _ in range(3)]
    assert all(queue.startswith("amq.gen-") for queue in queues)
    for queue in queues:
        channel.queue_bind(exchange=f"{name}.logs", queue=queue)
    channel.basic_publish(f"{name}.logs", "", b"info")
    assert [get_all(channel, queue) for queue in queues] == [[b"info"]] * 3


def test_direct_goes_by_key(channel: BlockingChannel, name: str) -> None:
    channel.exchange_declare(f"{name}.direct_logs", "direct")
    channel.queue_declare(f"{name}.errors")
    for key in ("error", "warning"):
        channel.queue_bind(f"{name}.errors", f"{name}.direct_logs", key)
    for key in ("info", "warning", "error"):
        channel.basic_publish(f"{name}.direct_logs", key, key.encode())
    assert get_all(channel, f"{name}.errors") == [b"warning", b"error"]


def test_topic_goes_by_pattern(channel: BlockingChannel, name: str) -> None:
    channel.exchange_declare(f"{name}.topic_logs", "topic")
    for queue, pattern in (
        (f"{name}.all", "#"),
        (f"{name}.kernel", "kern.*"),
        (f"{name}.critical", "*.critical"),
    ):
        channel.queue_declare(queue)
        channel.queue_bind(queue, f"{name}.topic_logs", pattern)
    for key in ("kern.critical", "kern.info", "cron.critical", "kern"):
        channel.basic_publish(f"{name}.topic_logs", key, key.encode())
    assert len(get_all(channel, f"{name}.all")) == 4
    assert get_all(channel, f"{name}.kernel") == [b"kern.critical", b"kern.info"]
    assert get_all(channel, f"{name}.critical") == [b"kern.critical", b"cron.critical"]


def test_headers_go_by_headers(channel: BlockingChannel, name: str) -> None:
    channel.queue_declare(f"{name}.pdf")
    channel.queue_bind(
        f"{name}.pdf", "amq.headers", arguments={"x-match": "all", "format": "pdf", "type": name}
    )
    for kind in ("pdf", "zip"):
        properties = pika.BasicProperties(headers={"format": kind, "type": name})
        channel.basic_publish("amq.headers", "", kind.encode(), properties)
    assert get_all(channel, f"{name}.pdf") == [b"pdf"]


def test_properties_arrive_as_they_were_sent(channel: BlockingChannel, name: str) -> None:
    channel.queue_declare(name)
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
    channel.basic_publish("", name, b"", sent)
    method, properties, body = channel.basic_get(name)
    assert method is not None
    assert (properties, body) == (sent, b"")


def test_large_bodies_pass_whole(channel: BlockingChannel, name: str) -> None:
    channel.queue_declare(name)
    body = bytes(range(256)) * 4096 * 3
    channel.basic_publish("", name, body)
    assert channel.basic_get(name)[2] == body


def test_prefetch_bounds_what_is_outstanding(channel: BlockingChannel, name: str) -> None:
    channel.queue_declare(name)
    channel.confirm_delivery()
    for number in range(5):
        channel.basic_publish("", name, b"%d" % number)
    channel.basic_qos(prefetch_count=2)
    tags: list[int] = []
    channel.basic_consume(name, lambda c, m, p, b: tags.append(m.delivery_tag))

    def come() -> list[int]:
        channel.queue_declare(name, passive=True)  # a round trip, in which one too many would have come
        channel.connection.process_data_events(0.01)
        return tags

    until(lambda: len(come()) >= 2)
    assert come() == [1, 2]
    channel.basic_ack(1)
    until(lambda: len(come()) >= 3)
    assert come() == [1, 2, 3]
    channel.basic_ack(3, multiple=True)
    until(lambda: len(come()) >= 5)
    assert come() == [1, 2, 3, 4, 5]


def test_a_requeued_message_comes_back_in_its_place_and_marked(channel: BlockingChannel, name: str) -> None:
    channel.queue_declare(name)
    for number in range(4):
        channel.basic_publish("", name, b"%d" % number)
    first = channel.basic_get(name)
    second = channel.basic_get(name)
    channel.basic_nack(first[0].delivery_tag)
    channel.basic_reject(second[0].delivery_tag)
    got = [channel.basic_get(name, auto_ack=True) for _ in range(4)]
    assert [(body, method.redelivered) for method, _, body in got] == [
        (b"0", True),
        (b"1", True),
        (b"2", False),
        (b"3", False),
    ]


def test_recover_requeues_all(channel: BlockingChannel, name: str) -> None:
    channel.queue_declare(name)
    channel.basic_publish("", name, b"one")
    channel.basic_get(name)
    channel.basic_recover(requeue=True)
    method, _, body = channel.basic_get(name)
    assert (method.redelivered, body) == (True, b"one")


def test_what_a_lost_connection_held_goes_to_others(connect: Connect, name: str) -> None:
    worker = connect().channel()
    worker.queue_declare(name)
    worker.basic_publish("", name, b"task")
    assert consume(worker, name, 1)[0][2] == b"task"
    worker.connection.close()
    other = connect().channel()
    method, _, body = consume(other, name, 1)[0]
    assert (method.redelivered, body) == (True, b"task")


def test_an_unroutable_mandatory_message_is_returned(channel: BlockingChannel, name: str) -> None:
    channel.confirm_delivery()
    with pytest.raises(pika.exceptions.UnroutableError) as returned:
        channel.basic_publish("", f"{name}.nowhere", b"lost?", mandatory=True)
    (message,) = returned.value.messages
    assert (message.method.reply_code, message.method.reply_text) == (312, "NO_ROUTE")
    assert (message.method.routing_key, message.body) == (f"{name}.nowhere", b"lost?")
    channel.basic_publish("", f"{name}.nowhere", b"nobody minds")


def test_a_full_queue_that_rejects_refuses_the_publisher(channel: BlockingChannel, name: str) -> None:
    channel.queue_declare(name, arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
    channel.confirm_delivery()
    channel.basic_publish("", name, b"fits")
    with pytest.raises(pika.exceptions.NackError):
        channel.basic_publish("", name, b"does not")
    assert get_all(channel, name) == [b"fits"]


def test_a_full_queue_drops_its_head(channel: BlockingChannel, name: str) -> None:
    channel.queue_declare(name, arguments={"x-max-length": 2})
    for number in range(4):
        channel.basic_publish("", name, b"%d" % number)
    assert get_all(channel, name) == [b"2", b"3"]


def test_a_rejected_message_goes_to_the_dead_letter_exchange(channel: BlockingChannel, name: str) -> None:
    channel.queue_declare(f"{name}.dead")
    channel.queue_declare(
        name, arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": f"{name}.dead"}
    )
    channel.basic_publish("", name, b"bad")
    channel.basic_reject(channel.basic_get(name)[0].delivery_tag, requeue=False)
    method, properties, body = consume(channel, f"{name}.dead", 1)[0]
    assert (method.routing_key, body) == (f"{name}.dead", b"bad")
    (death,) = properties.headers["x-death"]
    assert {field: death[field] for field in ("count", "reason", "queue", "exchange", "routing-keys")} == {
        "count": 1,
        "reason": "rejected",
        "queue": name,
        "exchange": "",
        "routing-keys": [name],
    }
    assert properties.headers["x-first-death-queue"] == name


def test_an_expired_message_goes_to_the_dead_letter_exchange_by_itself(
    channel: BlockingChannel, name: str
) -> None:
    """The usual delay queue: nobody reads it, its messages expire into the work queue."""
    channel.queue_declare(f"{name}.work")
    channel.queue_declare(
        f"{name}.delay", arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": f"{name}.work"}
    )
    channel.basic_publish("", f"{name}.delay", b"later", pika.BasicProperties(expiration="20"))
    _, properties, body = consume(channel, f"{name}.work", 1)[0]
    assert body == b"later"
    assert properties.expiration is None
    assert properties.headers["x-death"][0]["reason"] == "expired"
    assert properties.headers["x-death"][0]["original-expiration"] == "20"


def test_higher_priorities_come_first(channel: BlockingChannel, name: str) -> None:
    channel.queue_declare(name, arguments={"x-max-priority": 5})
    for number, priority in enumerate((1, 5, 0, 9, 1)):
        channel.basic_publish("", name, b"%d" % number, pika.BasicProperties(priority=priority))
    assert get_all(channel, name) == [b"1", b"3", b"0", b"4", b"2"]


def test_purge_and_delete_tell_how_many(channel: BlockingChannel, name: str) -> None:
    channel.queue_declare(name)
    for _ in range(3):
        channel.basic_publish("", name, b"")
    assert channel.queue_purge(name).method.message_count == 3
    channel.basic_publish("", name, b"")
    assert channel.queue_delete(name).method.message_count == 1


def test_an_exclusive_queue_goes_with_its_connection(connect: Connect, name: str) -> None:
    owner = connect().channel()
    owner.queue_declare(f"{name}.mine", exclusive=True)
    other = connect().channel()
    with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="RESOURCE_LOCKED"):
        other.queue_declare(f"{name}.mine", passive=True)
    owner.connection.close()
    with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="NOT_FOUND"):
        connect().channel().queue_declare(f"{name}.mine", passive=True)


def test_an_auto_delete_queue_goes_with_its_last_consumer(channel: BlockingChannel, name: str) -> None:
    channel.queue_declare(name, auto_delete=True)
    tag = channel.basic_consume(name, lambda *_: None)
    channel.basic_cancel(tag)
    with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="NOT_FOUND"):
        channel.queue_declare(name, passive=True)


def test_an_auto_delete_exchange_goes_with_its_last_binding(channel: BlockingChannel, name: str) -> None:
    channel.exchange_declare(f"{name}.x", auto_delete=True)
    channel.queue_declare(name)
    channel.queue_bind(name, f"{name}.x", "k")
    channel.queue_unbind(name, f"{name}.x", "k")
    with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="NOT_FOUND"):
        channel.exchange_declare(f"{name}.x", passive=True)


def test_exchanges_lead_to_exchanges(channel: BlockingChannel, name: str) -> None:
    channel.exchange_declare(f"{name}.in", "topic")
    channel.exchange_declare(f"{name}.out", "fanout")
    channel.exchange_bind(f"{name}.out", f"{name}.in", "a.#")
    channel.queue_declare(name)
    channel.queue_bind(name, f"{name}.out")
    channel.basic_publish(f"{name}.in", "a.b", b"1")
    channel.basic_publish(f"{name}.in", "b", b"2")
    channel.exchange_unbind(f"{name}.out", f"{name}.in", "a.#")
    channel.basic_publish(f"{name}.in", "a.b", b"3")
    assert get_all(channel, name) == [b"1"]


def test_an_alternate_exchange_gets_what_has_no_route(channel: BlockingChannel, name: str) -> None:
    channel.exchange_declare(f"{name}.rest", "fanout")
    channel.exchange_declare(f"{name}.x", "direct", arguments={"alternate-exchange": f"{name}.rest"})
    channel.queue_declare(name)
    channel.queue_bind(name, f"{name}.rest")
    channel.basic_publish(f"{name}.x", "anything", b"found")
    assert get_all(channel, name) == [b"found"]


def test_a_consumer_is_told_that_its_queue_is_gone(connect: Connect, name: str) -> None:
    consumer, other = connect().channel(), connect().channel()
    consumer.queue_declare(name)
    gone: list[str] = []
    consumer.add_on_cancel_callback(lambda frame: gone.append(frame.method.consumer_tag))
    consumer.basic_consume(name, lambda *_: None, consumer_tag="me")
    other.queue_delete(name)
    while not gone:
        consumer.connection.process_data_events(time_limit=5)
    assert gone == ["me"]


def test_a_transaction_publishes_at_its_commit(channel: BlockingChannel, name: str) -> None:
    channel.queue_declare(name)
    channel.tx_select()
    channel.basic_publish("", name, b"no")
    channel.tx_rollback()
    channel.basic_publish("", name, b"yes")
    assert channel.queue_declare(name, passive=True).method.message_count == 0
    channel.tx_commit()
    assert channel.queue_declare(name, passive=True).method.message_count == 1
    assert get_all(channel, name) == [b"yes"]


def test_direct_reply_to(connect: Connect, name: str) -> None:
    """The manual's example: a request and its answer without a reply queue."""
    caller, worker = connect().channel(), connect().channel()
    worker.queue_declare(f"{name}.rpc")
    answers: list[bytes] = []
    caller.basic_consume("amq.rabbitmq.reply-to", lambda c, m, p, b: answers.append(b), auto_ack=True)
    request = pika.BasicProperties(reply_to="amq.rabbitmq.reply-to", correlation_id="1")
    caller.basic_publish("", f"{name}.rpc", b"6*7", request)
    _, properties, body = consume(worker, f"{name}.rpc", 1)[0]
    assert body == b"6*7"
    assert properties.reply_to.startswith("amq.rabbitmq.reply-to.")
    worker.basic_publish("", properties.reply_to, b"42")
    while not answers:
        caller.connection.process_data_events(time_limit=5)
    assert answers == [b"42"]


def test_sender_selected_copies_reach_their_queues(channel: BlockingChannel, name: str) -> None:
    queues = first, copy, blind = [f"{name}.{each}" for each in "abc"]
    for queue in queues:
        channel.queue_declare(queue)
    channel.basic_publish("", first, b"x", pika.BasicProperties(headers={"CC": [copy], "BCC": [blind]}))
    for queue in queues:
        _, properties, body = channel.basic_get(queue)
        assert (properties.headers, body) == ({"CC": [copy]}, b"x")


def test_many_messages_come_through_in_order(connect: Connect, name: str) -> None:
    channel = connect().channel()
    channel.queue_declare(name)
    bodies = [b"%d" % number for number in range(5000)]
    for body in bodies:
        channel.basic_publish("", name, body)
    assert [body for _, _, body in consume(channel, name, 5000, auto_ack=True)] == bodies
