"""FastStream and a broker that fails.  ``docs/testing_with_faults.md`` explains it.

pytest examples/broker_in_pytest/test_faststream.py
"""

from __future__ import annotations

import asyncio

import pytest
from faststream.rabbit import RabbitBroker, RabbitQueue

from kernel import Envelope
from plugins.engines.broker.faults.brokers import FaultyBroker


def test_faststream_handles_an_order_again_if_its_acknowledgement_is_lost(
    faulty_broker: FaultyBroker,
) -> None:
    async def handle_two() -> list[str]:
        shop = RabbitBroker(faulty_broker.url, reconnect_interval=0.01)
        handled: asyncio.Queue[str] = asyncio.Queue()

        async def handle(order: str) -> None:
            await handled.put(order)

        shop.subscriber(RabbitQueue("orders", durable=True))(handle)
        async with shop:
            await shop.start()
            return [await handled.get() for _ in range(2)]

    with faulty_broker.open() as client:
        client.declare_queue("orders", durable=True)
        client.publish(b"tea", Envelope(key="orders"))
    with faulty_broker.cut(after=1, of="deliveries") as cut:
        assert asyncio.run(handle_two()) == ["tea", "tea"]
        cut.wait()


def test_faststream_says_that_an_order_was_refused(faulty_broker: FaultyBroker) -> None:
    async def publish() -> None:
        async with RabbitBroker(faulty_broker.url) as shop:
            await shop.declare_queue(RabbitQueue("orders"))
            with faulty_broker.refuse(), pytest.raises(Exception, match="Nack"):
                await shop.publish("tea", "orders")

    asyncio.run(publish())
    assert faulty_broker.published("orders") == []
