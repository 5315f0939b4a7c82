"""Ten recipes: what a program does when its broker fails.  ``docs/testing_with_faults.md`` explains them.

pytest examples/broker_in_pytest
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from functools import partial

import aio_pika
import pika
import pytest
from celery import Celery
from kombu.exceptions import OperationalError
from pika.exceptions import AMQPConnectionError, NackError

from plugins.engines.broker.faults.brokers import FaultyBroker


def place_order(url: str, order: bytes) -> None:
    """Publish an order, and again until it is confirmed.  The code under test."""
    while True:
        try:
            with pika.BlockingConnection(pika.URLParameters(url)) as connection:
                channel = connection.channel()
                channel.confirm_delivery()
                channel.queue_declare("orders", durable=True)
                channel.basic_publish("", "orders", order, pika.BasicProperties(delivery_mode=2))
                return
        except (NackError, AMQPConnectionError):
            continue


def handle_orders(url: str, handle: Callable[[bytes], object], count: int) -> None:
    """Handle so many orders, each in its turn, also when the connection is lost.  The code under test."""
    handled = 0
    while handled < count:
        try:
            with pika.BlockingConnection(pika.URLParameters(url)) as connection:
                channel = connection.channel()
                channel.basic_qos(prefetch_count=1)
                channel.queue_declare("orders", durable=True)
                for method, _, body in channel.consume("orders"):
                    handle(body)
                    handled += 1
                    channel.basic_ack(method.delivery_tag)
                    if handled == count:
                        break
        except AMQPConnectionError:
            continue


def test_an_order_is_published_again_if_its_confirmation_is_lost(faulty_broker: FaultyBroker) -> None:
    faulty_broker.cut(of="confirms")
    place_order(faulty_broker.url, b"tea")
    assert [order.body for order in faulty_broker.published("orders")] == [b"tea", b"tea"]


def test_an_order_comes_again_if_its_acknowledgement_is_lost(faulty_broker: FaultyBroker) -> None:
    place_order(faulty_broker.url, b"tea")
    place_order(faulty_broker.url, b"coffee")
    handled: list[bytes] = []
    with faulty_broker.cut(after=2, of="deliveries"):
        handle_orders(faulty_broker.url, handled.append, 3)
    assert handled == [b"tea", b"coffee", b"coffee"]
    assert [order.redelivered for order in faulty_broker.delivered("orders", count=3)] == [False, False, True]


def test_a_refused_order_is_published_again(faulty_broker: FaultyBroker) -> None:
    with faulty_broker.refuse(), pika.BlockingConnection(pika.URLParameters(faulty_broker.url)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare("orders", durable=True)
        with pytest.raises(NackError):
            channel.basic_publish("", "orders", b"tea")
    place_order(faulty_broker.url, b"tea")
    assert len(faulty_broker.published("orders")) == 1


def test_orders_outlive_the_broker(faulty_broker: FaultyBroker) -> None:
    place_order(faulty_broker.url, b"tea")
    faulty_broker.kill_and_restart()
    handled: list[bytes] = []
    handle_orders(faulty_broker.url, handled.append, 1)
    assert handled == [b"tea"]


def test_an_order_waits_for_a_slow_disk(faulty_broker: FaultyBroker) -> None:
    publisher = threading.Thread(target=partial(place_order, faulty_broker.url, b"tea"))
    with pika.BlockingConnection(pika.URLParameters(faulty_broker.url)) as connection:
        connection.channel().queue_declare("orders", durable=True)
    with faulty_broker.slow_disk(60):
        publisher.start()
        faulty_broker.published("orders", count=1)
        assert publisher.is_alive()
    publisher.join()


def test_an_order_that_nobody_handles_is_returned_after_a_day(faulty_broker: FaultyBroker) -> None:
    with pika.BlockingConnection(pika.URLParameters(faulty_broker.url)) as connection:
        channel = connection.channel()
        channel.queue_declare("returned")
        channel.queue_declare(
            "orders",
            arguments={
                "x-message-ttl": 86_400_000,
                "x-dead-letter-exchange": "",
                "x-dead-letter-routing-key": "returned",
            },
        )
        channel.basic_publish("", "orders", b"tea")
        faulty_broker.published("orders", count=1)
        faulty_broker.advance(86_401)
        assert channel.basic_get("returned", auto_ack=True)[2] == b"tea"


def test_aio_pika_connects_again_and_gets_the_rest(faulty_broker: FaultyBroker) -> None:
    async def handle_two() -> list[bytes]:
        connection = await aio_pika.connect_robust(faulty_broker.url, reconnect_interval=0.01)
        async with connection:
            channel = await connection.channel()
            await channel.set_qos(prefetch_count=1)
            queue = await channel.declare_queue("orders", durable=True)
            arrived: asyncio.Queue[bytes] = asyncio.Queue()

            async def on_message(message: aio_pika.abc.AbstractIncomingMessage) -> None:
                await arrived.put(message.body)
                await message.ack()

            await queue.consume(on_message)
            return [await arrived.get() for _ in range(2)]

    place_order(faulty_broker.url, b"tea")
    place_order(faulty_broker.url, b"coffee")
    with faulty_broker.cut(after=1, of="acks") as cut:
        assert asyncio.run(handle_two()) == [b"tea", b"coffee"]
        cut.wait()


def test_aio_pika_handles_an_order_only_once(faulty_broker: FaultyBroker) -> None:
    async def handle_once() -> set[bytes]:
        done: set[bytes] = set()
        async with await aio_pika.connect(faulty_broker.url) as connection:
            channel = await connection.channel()
            queue = await channel.declare_queue("orders", durable=True)
            async with queue.iterator() as messages:
                first = await anext(messages)
                done.add(first.body)
                await asyncio.to_thread(faulty_broker.redeliver)
                again = await anext(messages)
                assert again.redelivered
                assert again.body in done
                await first.ack()
                await again.ack()
        return done

    place_order(faulty_broker.url, b"tea")
    assert asyncio.run(handle_once()) == {b"tea"}
    faulty_broker.acknowledged("orders", count=2)


def test_celery_publishes_a_task_again(faulty_broker: FaultyBroker) -> None:
    app = Celery("shop", broker=faulty_broker.url)
    app.conf.broker_transport_options = {"confirm_publish": True}
    app.conf.task_publish_retry_policy = {"max_retries": 3, "interval_start": 0}
    faulty_broker.cut(of="confirms")
    app.send_task("pack", ["tea"], queue="packing")
    assert len(faulty_broker.published("packing")) == 2
    app.close()


def test_celery_says_that_the_broker_takes_no_connection(faulty_broker: FaultyBroker) -> None:
    app = Celery("shop", broker=faulty_broker.url)
    with faulty_broker.refuse(connections=True), pytest.raises(OperationalError):
        app.send_task("pack", ["tea"], queue="packing", retry=False)
    app.close()
