"""Everyday life with aiormq, on which aio-pika stands."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import aiormq
import aiormq.exceptions
import pytest
from aiormq.abc import AbstractChannel, AbstractConnection
from pamqp.commands import Basic

from tests.interop.brokers import Broker

pytestmark = pytest.mark.peer("aiormq")

Program = Callable[[AbstractConnection, AbstractChannel], Awaitable[None]]


def run(broker: Broker, program: Program) -> None:
    async def main() -> None:
        async with asyncio.timeout(120):
            connection = await aiormq.connect(broker.url)
            try:
                await program(connection, await connection.channel())
            finally:
                await connection.close()

    asyncio.run(main())


def test_a_work_queue(broker: Broker, name: str) -> None:
    async def program(_: AbstractConnection, channel: AbstractChannel) -> None:
        await channel.queue_declare(name)
        await channel.basic_qos(prefetch_count=20)
        received: asyncio.Queue[Any] = asyncio.Queue()
        consuming = await channel.basic_consume(name, received.put)
        for number in range(200):
            await channel.basic_publish(b"%d" % number, routing_key=name)
        for number in range(200):
            message = await received.get()
            assert message.body == b"%d" % number
            await channel.basic_ack(message.delivery.delivery_tag)
        await channel.basic_cancel(consuming.consumer_tag)
        assert (await channel.queue_declare(name, passive=True)).message_count == 0

    run(broker, program)


def test_topology(broker: Broker, name: str) -> None:
    async def program(_: AbstractConnection, channel: AbstractChannel) -> None:
        await channel.exchange_declare(exchange=name, exchange_type="topic")
        await channel.exchange_declare(exchange=f"{name}.all", exchange_type="fanout")
        await channel.exchange_bind(destination=f"{name}.all", source=name, routing_key="#.b")
        declared = await channel.queue_declare(exclusive=True)
        await channel.queue_bind(declared.queue, f"{name}.all")
        for key in ("a.b", "b.a", "b"):
            await channel.basic_publish(key.encode(), exchange=name, routing_key=key)
        got = [await channel.basic_get(declared.queue, no_ack=True) for _ in range(3)]
        assert [message.body for message in got] == [b"a.b", b"b", b""]
        await channel.exchange_unbind(destination=f"{name}.all", source=name, routing_key="#.b")
        await channel.exchange_delete(exchange=f"{name}.all")
        await channel.exchange_delete(exchange=name)

    run(broker, program)


def test_confirms_returns_and_nacks(broker: Broker, name: str) -> None:
    async def program(_: AbstractConnection, channel: AbstractChannel) -> None:
        arguments = {"x-max-length": 1, "x-overflow": "reject-publish"}
        await channel.queue_declare(name, arguments=arguments)
        confirmation = await channel.basic_publish(b"fits", routing_key=name)
        assert isinstance(confirmation, Basic.Ack)
        with pytest.raises(aiormq.exceptions.DeliveryError):
            await channel.basic_publish(b"does not", routing_key=name)
        with pytest.raises(aiormq.exceptions.PublishError):
            await channel.basic_publish(b"x", routing_key=f"{name}.none", mandatory=True)

    run(broker, program)


def test_transactions_and_a_closed_channel(broker: Broker, name: str) -> None:
    async def program(connection: AbstractConnection, confirming: AbstractChannel) -> None:
        await confirming.queue_declare(name)
        channel = await connection.channel(publisher_confirms=False)
        await channel.tx_select()
        await channel.basic_publish(b"no", routing_key=name)
        await channel.tx_rollback()
        await channel.basic_publish(b"yes", routing_key=name)
        await channel.tx_commit()
        assert (await channel.basic_get(name)).body == b"yes"
        with pytest.raises(aiormq.exceptions.ChannelNotFoundEntity):
            await channel.queue_purge(f"{name}.none")
        await confirming.queue_declare(name)

    run(broker, program)


def test_many_tasks_share_a_channel(broker: Broker, name: str) -> None:
    async def program(_: AbstractConnection, channel: AbstractChannel) -> None:
        await channel.queue_declare(name)

        async def publish(number: int) -> None:
            for at in range(20):
                await channel.basic_publish(b"%d.%d" % (number, at), routing_key=name)

        await asyncio.gather(*(publish(number) for number in range(20)))
        assert (await channel.queue_declare(name, passive=True)).message_count == 400

    run(broker, program)


def test_a_wrong_password(broker: Broker) -> None:
    async def main() -> None:
        with pytest.raises(aiormq.exceptions.ProbableAuthenticationError):
            await aiormq.connect(f"amqp://guest:wrong@{broker.address}/")

    asyncio.run(main())
