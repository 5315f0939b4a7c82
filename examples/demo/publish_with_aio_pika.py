"""Publishes half of the feed, as in aio-pika's tutorials: a robust connection, a topic exchange."""

from __future__ import annotations

import asyncio
import os

import aio_pika

from examples.demo.feed import encode, records, say


async def main() -> None:
    """Connect, publish, and close the connection."""
    connection = await aio_pika.connect_robust(f"amqp://guest:guest@127.0.0.1:{os.environ['AMQP_PORT']}/")
    published = 0
    async with connection:
        channel = await connection.channel()
        exchange = await channel.declare_exchange("feed", aio_pika.ExchangeType.TOPIC, durable=True)
        for number, key, record in records(part=1):
            message = aio_pika.Message(encode(number, record), content_type="application/json")
            await exchange.publish(message, routing_key=key)
            published += 1
            if published % 500 == 0:
                say(published=published)
    say(published=published, done=True)


asyncio.run(main())
