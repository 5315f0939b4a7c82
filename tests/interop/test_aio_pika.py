"""Everyday life with aio-pika, as its tutorials and manual show it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import aio_pika
import aio_pika.abc
import aio_pika.exceptions
import pytest
from aio_pika.patterns import RPC, Master, NackMessage, RejectMessage

from tests.interop.brokers import Broker, KernelProcess
from tests.ports import free_port

pytestmark = pytest.mark.peer("aio-pika")

Program = Callable[[aio_pika.abc.AbstractConnection], Awaitable[None]]


def run(broker: Broker, program: Program) -> None:
    """Run a program with a connection, and bound its time."""

    async def main() -> None:
        async with asyncio.timeout(120), await aio_pika.connect(broker.url) as connection:
            await program(connection)

    asyncio.run(main())


def test_publish_with_confirm_and_iterate(broker: Broker, name: str) -> None:
    async def program(connection: aio_pika.abc.AbstractConnection) -> None:
        channel = await connection.channel()
        await channel.set_qos(prefetch_count=10)
        queue = await channel.declare_queue(name, auto_delete=True)
        for number in range(25):
            await channel.default_exchange.publish(aio_pika.Message(b"%d" % number), routing_key=name)
        bodies = []
        async with queue.iterator() as messages:
            async for message in messages:
                async with message.process():
                    bodies.append(message.body)
                if len(bodies) == 25:
                    break
        assert bodies == [b"%d" % number for number in range(25)]

    run(broker, program)


def test_confirms_in_flight(broker: Broker, name: str) -> None:
    async def program(connection: aio_pika.abc.AbstractConnection) -> None:
        channel = await connection.channel()
        await channel.declare_queue(name)
        publish = channel.default_exchange.publish
        await asyncio.gather(*(publish(aio_pika.Message(b"x"), routing_key=name) for _ in range(1000)))
        declared = await channel.declare_queue(name, passive=True)
        assert declared.declaration_result.message_count == 1000

    run(broker, program)


def test_an_unroutable_message_is_an_error(broker: Broker, name: str) -> None:
    async def program(connection: aio_pika.abc.AbstractConnection) -> None:
        channel = await connection.channel(on_return_raises=True)
        with pytest.raises(aio_pika.exceptions.DeliveryError):
            await channel.default_exchange.publish(aio_pika.Message(b"x"), routing_key=f"{name}.nowhere")

    run(broker, program)


def test_topic_exchange_and_callback(broker: Broker, name: str) -> None:
    async def program(connection: aio_pika.abc.AbstractConnection) -> None:
        channel = await connection.channel()
        logs = await channel.declare_exchange(f"{name}.logs", aio_pika.ExchangeType.TOPIC)
        queue = await channel.declare_queue(exclusive=True)
        await queue.bind(logs, "kern.*")
        received: asyncio.Queue[bytes] = asyncio.Queue()

        async def on_message(message: aio_pika.abc.AbstractIncomingMessage) -> None:
            async with message.process():
                received.put_nowait(message.body)

        await queue.consume(on_message)
        await logs.publish(aio_pika.Message(b"no"), routing_key="cron.info", mandatory=False)
        await logs.publish(aio_pika.Message(b"yes"), routing_key="kern.info")
        assert await received.get() == b"yes"

    run(broker, program)


def test_rejected_requeued_and_redelivered(broker: Broker, name: str) -> None:
    async def program(connection: aio_pika.abc.AbstractConnection) -> None:
        channel = await connection.channel()
        queue = await channel.declare_queue(name)
        await channel.default_exchange.publish(aio_pika.Message(b"x"), routing_key=name)
        message = await queue.get()
        assert message is not None
        await message.reject(requeue=True)
        again = await queue.get()
        assert again is not None
        assert again.redelivered
        await again.nack(requeue=False)
        assert await queue.get(fail=False) is None

    run(broker, program)


def test_a_transaction(broker: Broker, name: str) -> None:
    async def program(connection: aio_pika.abc.AbstractConnection) -> None:
        channel = await connection.channel(publisher_confirms=False)
        queue = await channel.declare_queue(name)
        async with channel.transaction():
            await channel.default_exchange.publish(aio_pika.Message(b"x"), routing_key=name)
        assert await queue.get() is not None

    run(broker, program)


def test_a_missing_queue_is_an_error_and_the_connection_lives(broker: Broker, name: str) -> None:
    async def program(connection: aio_pika.abc.AbstractConnection) -> None:
        channel = await connection.channel()
        with pytest.raises(aio_pika.exceptions.ChannelNotFoundEntity):
            await channel.declare_queue(f"{name}.none", passive=True)
        await (await connection.channel()).declare_queue(name)

    run(broker, program)


def test_remote_procedure_calls(broker: Broker, name: str) -> None:
    async def double(*, number: int) -> int:
        return number * 2

    async def program(connection: aio_pika.abc.AbstractConnection) -> None:
        rpc = await RPC.create(await connection.channel())
        await rpc.register(name, double, auto_delete=True)
        assert await asyncio.gather(*(rpc.call(name, {"number": n}) for n in range(10))) == list(
            range(0, 20, 2)
        )
        await rpc.close()

    run(broker, program)


def test_a_master_and_its_workers(broker: Broker, name: str) -> None:
    async def program(connection: aio_pika.abc.AbstractConnection) -> None:
        done: list[int] = []
        all_done = asyncio.Event()

        async def work(*, task: int) -> None:
            if task == 3 and 3 not in done:
                done.append(3)
                # It is done again.
                raise NackMessage(requeue=True)
            if task == 4:
                raise RejectMessage(requeue=False)
            done.append(task)
            if len(done) == 10:
                all_done.set()

        for _ in range(2):
            channel = await connection.channel()
            await channel.set_qos(prefetch_count=1)
            await Master(channel).create_worker(name, work, auto_delete=True)
        master = Master(await connection.channel())
        for task in range(10):
            await master.create_task(name, kwargs={"task": task})
        await all_done.wait()
        assert sorted(done) == [0, 1, 2, 3, 3, 5, 6, 7, 8, 9]

    run(broker, program)


def test_a_robust_connection_comes_back_with_all_that_it_had(tmp_path: Path) -> None:
    """The broker is killed and started again; exchange, queue, binding and consumer are there again."""

    async def main(process: KernelProcess) -> None:
        connection = await aio_pika.connect_robust(process.broker.url, reconnect_interval=0.1)
        async with asyncio.timeout(120), connection:
            channel = await connection.channel()
            exchange = await channel.declare_exchange("x", aio_pika.ExchangeType.DIRECT)
            queue = await channel.declare_queue("q", auto_delete=True)
            await queue.bind(exchange, "k")
            received: asyncio.Queue[bytes] = asyncio.Queue()

            async def on_message(message: aio_pika.abc.AbstractIncomingMessage) -> None:
                await message.ack()
                received.put_nowait(message.body)

            await queue.consume(on_message)
            restored = asyncio.Event()
            channel.reopen_callbacks.add(lambda *_: restored.set())
            for number in range(3):
                await exchange.publish(aio_pika.Message(b"%d" % number), "k", mandatory=True)
                assert await received.get() == b"%d" % number
                restored.clear()
                process.kill()
                process.start()
                await restored.wait()  # who publishes before may have the broker close the channel

    with KernelProcess(tmp_path, port=free_port()) as process:
        asyncio.run(main(process))
