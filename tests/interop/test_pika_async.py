"""pika's other adapters: callbacks in its own loop, and in asyncio's."""

from __future__ import annotations

import asyncio
from typing import Any

import pika
import pytest
from pika.adapters.asyncio_connection import AsyncioConnection

from tests.interop.brokers import Broker

pytestmark = pytest.mark.peer("pika")


class Asynchronous:
    """Publishes with confirms, consumes what it has published, and stops, all of it by callbacks."""

    def __init__(self, name: str, count: int) -> None:
        self._name = name
        self._count = count
        self.received: list[bytes] = []
        self.confirmed: set[int] = set()
        self.closed_for = ""
        self.connection: Any = None
        self.channel: Any = None
        self.on_done = lambda: None

    def on_open(self, connection: Any) -> None:
        self.connection = connection
        connection.channel(on_open_callback=self._on_channel)

    def _on_channel(self, channel: Any) -> None:
        self.channel = channel
        channel.confirm_delivery(self._on_confirm, callback=self._on_confirming)

    def _on_confirming(self, _: Any) -> None:
        self.channel.queue_declare(self._name, auto_delete=True, callback=self._on_declared)

    def _on_declared(self, _: Any) -> None:
        self.channel.basic_qos(prefetch_count=10, callback=self._on_qos)

    def _on_qos(self, _: Any) -> None:
        self.channel.basic_consume(self._name, self._on_message)
        for number in range(self._count):
            self.channel.basic_publish("", self._name, b"%d" % number)

    def _on_confirm(self, frame: Any) -> None:
        assert isinstance(frame.method, pika.spec.Basic.Ack)
        last = frame.method.delivery_tag
        self.confirmed |= set(range(1, last + 1)) if frame.method.multiple else {last}
        self._look()

    def _on_message(self, channel: Any, method: Any, _: Any, body: bytes) -> None:
        self.received.append(body)
        channel.basic_ack(method.delivery_tag)
        self._look()

    def _look(self) -> None:
        if len(self.received) == self._count and len(self.confirmed) == self._count:
            self.connection.close()

    def on_closed(self, _: Any, reason: BaseException) -> None:
        self.closed_for = type(reason).__name__
        self.on_done()

    def check(self) -> None:
        assert self.received == [b"%d" % number for number in range(self._count)]
        assert self.closed_for == "ConnectionClosedByClient"


def test_in_a_loop_of_its_own(broker: Broker, name: str) -> None:
    program = Asynchronous(name, 500)
    connection = pika.SelectConnection(
        pika.ConnectionParameters(broker.host, broker.port),
        on_open_callback=program.on_open,
        on_close_callback=program.on_closed,
    )
    program.on_done = connection.ioloop.stop
    connection.ioloop.call_later(120, connection.ioloop.stop)
    connection.ioloop.start()
    connection.ioloop.close()
    program.check()


def test_in_the_loop_of_asyncio(broker: Broker, name: str) -> None:
    program = Asynchronous(name, 500)

    async def run() -> None:
        done = asyncio.Event()
        program.on_done = done.set
        AsyncioConnection(
            pika.ConnectionParameters(broker.host, broker.port),
            on_open_callback=program.on_open,
            on_close_callback=program.on_closed,
        )
        async with asyncio.timeout(120):
            await done.wait()

    asyncio.run(run())
    program.check()
