"""aio-pika, as its documentation shows it; confirms for 200 messages at once."""

from __future__ import annotations

import asyncio
import time
from multiprocessing.connection import Connection

import aio_pika

from benchmarks.amqp.work import Work

TOGETHER = 200
"""Messages that wait for their confirms at the same time."""


def publish(link: Connection, address: str, work: Work) -> None:
    """Publish one by one, or with confirms ``TOGETHER``."""
    asyncio.run(_publish(link, address, work))


def consume(link: Connection, address: str, work: Work) -> None:
    """Consume with a callback."""
    asyncio.run(_consume(link, address, work))


async def _publish(link: Connection, address: str, work: Work) -> None:
    async with await aio_pika.connect(_url(address)) as connection:
        channel = await connection.channel(publisher_confirms=work.confirms)
        exchange = channel.default_exchange
        body = b"x" * work.size

        def one() -> aio_pika.Message:
            return aio_pika.Message(body, delivery_mode=2 if work.persistent else 1)

        await asyncio.to_thread(link.recv)
        start, began = time.perf_counter(), time.process_time()
        if work.confirms:
            for _ in range(work.count // TOGETHER):
                await asyncio.gather(*(exchange.publish(one(), work.queue) for _ in range(TOGETHER)))
        else:
            for _ in range(work.count):
                await exchange.publish(one(), work.queue)
        link.send((time.process_time() - began) / (time.perf_counter() - start))
        await asyncio.to_thread(link.recv)


async def _consume(link: Connection, address: str, work: Work) -> None:
    left = work.count
    start = began = 0.0
    done = asyncio.Event()

    async def on_message(message: aio_pika.abc.AbstractIncomingMessage) -> None:
        nonlocal left, start, began
        if left == work.count:
            start, began = time.perf_counter(), time.process_time()
        left -= 1
        if work.acks:
            await message.ack()
        if not left:
            done.set()

    async with await aio_pika.connect(_url(address)) as connection:
        channel = await connection.channel()
        await channel.set_qos(prefetch_count=work.prefetch)
        queue = await channel.declare_queue(work.queue, durable=work.persistent, auto_delete=True)
        await queue.consume(on_message, no_ack=not work.acks)
        link.send("ready")
        await done.wait()
        seconds = time.perf_counter() - start
        link.send(((work.count - 1) / seconds, (time.process_time() - began) / seconds))
        await asyncio.to_thread(link.recv)


def _url(address: str) -> str:
    return f"amqp://guest:guest@{address.rpartition('/')[2]}/"
