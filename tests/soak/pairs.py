"""Who takes part in a soak: each with its own library, publishing and consuming until told to stop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from multiprocessing.synchronize import Event
from typing import Any

import aio_pika
import pika

_TICKS = 20
"""Portions that a second's messages are published in."""
_TIMEOUT = 60.0
"""Seconds in which what was published last has to arrive."""


class Report:
    """What a pair has published and received; messages carry numbers that count up."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.published = self.received = self.again = self.returned_to_queue = 0
        self.failure = ""
        self._next = 0
        self._missing: set[int] = set()

    def take(self, number: int) -> None:
        """A message was received, and acknowledged."""
        if number >= self._next:
            self._missing.update(range(self._next, number))
            self._next = number + 1
        elif number in self._missing:
            self._missing.remove(number)
        else:
            self.again += 1
            return
        self.received += 1

    @property
    def complete(self) -> bool:
        return self.received >= self.published

    def right(self) -> bool:
        """Whether each message has come, and once."""
        return not self.failure and self.received == self.published and not self.again and not self._missing

    def line(self) -> str:
        verdict = "right" if self.right() else f"WRONG {self.failure}"
        return (
            f"{self.name}: {self.published:,} published, {self.received:,} received, {self.again} twice, "
            f"{self.returned_to_queue:,} requeued in between: {verdict}"
        )


def pika_pair(port: int, rate: int, stop: Event, report: Report) -> None:
    """Transient messages over a direct exchange; every hundredth is requeued once."""
    publishing = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port)).channel()
    consuming = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port)).channel()
    queue = consuming.queue_declare("", exclusive=True).method.queue
    consuming.queue_bind(queue, "amq.direct", report.name)
    consuming.basic_qos(prefetch_count=100)

    def on_message(_: Any, method: Any, __: Any, body: bytes) -> None:
        number = int(body)
        if number % 100 == 0 and not method.redelivered:
            report.returned_to_queue += 1
            consuming.basic_nack(method.delivery_tag)
            return
        report.take(number)
        consuming.basic_ack(method.delivery_tag)

    consuming.basic_consume(queue, on_message)
    end = next_portion = 0.0
    while not (stop.is_set() and (report.complete or time.monotonic() > end)):
        if not stop.is_set() and time.monotonic() >= next_portion:
            next_portion = time.monotonic() + 1 / _TICKS
            end = next_portion + _TIMEOUT
            for _ in range(rate // _TICKS):
                publishing.basic_publish("amq.direct", report.name, b"%d" % report.published)
                report.published += 1
            publishing.connection.process_data_events()
        consuming.connection.process_data_events(time_limit=1 / _TICKS)
    for each in (publishing, consuming):
        each.connection.close()


def aio_pika_pair(port: int, rate: int, stop: Event, report: Report) -> None:
    """Persistent messages with confirms, of 1 to 20,000 bytes, over a topic exchange to a durable queue."""

    async def run() -> None:
        url = f"amqp://guest:guest@127.0.0.1:{port}/"
        async with await aio_pika.connect(url) as out, await aio_pika.connect(url) as into:
            publishing, consuming = await out.channel(), await into.channel()
            await consuming.set_qos(prefetch_count=200)
            exchange = await publishing.declare_exchange(report.name, aio_pika.ExchangeType.TOPIC)
            queue = await consuming.declare_queue(report.name, durable=True)
            await queue.bind(exchange, "a.#")

            received = asyncio.Event()

            async def on_message(message: aio_pika.abc.AbstractIncomingMessage) -> None:
                report.take(int(message.headers["number"]))
                await message.ack()
                received.set()

            await queue.consume(on_message)
            while not stop.is_set():
                started = time.monotonic()
                first = report.published
                report.published += rate // _TICKS
                for number in range(first, report.published):
                    message = aio_pika.Message(
                        bytes(1 + number * 37 % 20_000),
                        headers={"number": number},
                        delivery_mode=aio_pika.DeliveryMode.PERSISTENT,
                    )
                    await exchange.publish(message, routing_key=f"a.{number % 50}")
                await asyncio.sleep(max(0.0, started + 1 / _TICKS - time.monotonic()))
            async with asyncio.timeout(_TIMEOUT):
                while not report.complete:
                    received.clear()
                    await received.wait()
            await queue.delete(if_unused=False, if_empty=False)
            await exchange.delete()

    asyncio.run(run())


def kombu_pair(port: int, rate: int, stop: Event, report: Report) -> None:
    """JSON messages in transactions of a priority queue, taken one by one."""
    import kombu

    with kombu.Connection(f"amqp://guest:guest@127.0.0.1:{port}//") as connection:
        out, into = connection.channel(), connection.channel()
        queue = kombu.Queue(report.name, durable=False, max_priority=3, auto_delete=True)(into)
        queue.declare()
        producer = kombu.Producer(out)
        out.tx_select()
        while not stop.is_set():
            started = time.monotonic()
            count = rate // _TICKS
            for number in range(report.published, report.published + count):
                producer.publish(number, routing_key=report.name, priority=number % 4)
            out.tx_commit()
            report.published += count
            while (message := queue.get()) is not None:
                report.take(message.payload)
                message.ack()
            time.sleep(max(0.0, started + 1 / _TICKS - time.monotonic()))
        queue.delete()


def visitor(port: int, rate: int, stop: Event, report: Report) -> None:
    """Connect, declare, publish, leave with messages unacknowledged; every other time without a word."""
    while not stop.is_set():
        connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port))
        channel = connection.channel()
        queue = channel.queue_declare("", exclusive=True).method.queue
        channel.queue_bind(queue, "amq.topic", f"visit.{report.published}.#")
        channel.confirm_delivery()
        channel.basic_publish("amq.topic", f"visit.{report.published}.x", b"%d" % report.published)
        assert channel.basic_get(queue)[2] == b"%d" % report.published
        report.take(report.published)
        report.published += 1
        if report.published % 2:
            connection.close()
        else:
            connection._impl._transport.abort()


PAIRS: dict[str, Callable[[int, int, Event, Report], None]] = {
    "pika": pika_pair,
    "aio-pika": aio_pika_pair,
    "kombu": kombu_pair,
    "visitor": visitor,
}


def take_part(name: str, port: int, rate: int, stop: Event, reports: Any) -> None:
    """Run one of them in a process of its own; its report goes to ``reports``."""
    report = Report(name)
    try:
        PAIRS[name](port, rate, stop, report)
    except Exception as error:
        report.failure = repr(error)
    reports.put(report)
