"""Publishes the rest of the feed with aio-pika: a robust connection, a topic exchange, many messages at a time."""

from __future__ import annotations

import asyncio
import os
from itertools import islice

import aio_pika

from examples.demo.feed import Pace, encode, records, say

AT_A_TIME = 500
"""Messages that are published before their confirms are waited for."""


async def main() -> None:
    """Connect, publish, and close the connection."""
    connection = await aio_pika.connect_robust(f"amqp://guest:guest@127.0.0.1:{os.environ['AMQP_PORT']}/")
    published = 0
    async with connection:
        channel = await connection.channel()
        exchange = await channel.declare_exchange("feed", aio_pika.ExchangeType.TOPIC, durable=True)
        pace = Pace()
        feed = records(part=1)
        while some := list(islice(feed, AT_A_TIME)):
            messages = [
                (
                    aio_pika.Message(encode(number, record, published + at), content_type="application/json"),
                    key,
                )
                for at, (number, key, record) in enumerate(some)
            ]
            await asyncio.gather(*(exchange.publish(message, routing_key=key) for message, key in messages))
            published += len(messages)
            say(published=published)
        say(done=True, **pace.report(published))


asyncio.run(main())
