"""Consumes the whole feed from the broker, as in pika's tutorials: an exclusive queue, bound with ``#``."""

from __future__ import annotations

import os
from typing import Any

import pika

from examples.demo.feed import Arrivals, say

expected = int(os.environ["EXPECTED"])
arrivals = Arrivals()

connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", int(os.environ["AMQP_PORT"])))
channel = connection.channel()
channel.exchange_declare(exchange="feed", exchange_type="topic", durable=True)
queue_name = channel.queue_declare(queue="", exclusive=True).method.queue
channel.queue_bind(exchange="feed", queue=queue_name, routing_key="#")
channel.basic_qos(prefetch_count=500)


def callback(ch: Any, method: Any, properties: Any, body: bytes) -> None:
    """Count and acknowledge."""
    arrivals.take(body)
    ch.basic_ack(delivery_tag=method.delivery_tag)
    if len(arrivals.latencies) % 500 == 0:
        say(received=len(arrivals.latencies))
    if len(arrivals.numbers) == expected:
        ch.stop_consuming()


channel.basic_consume(queue=queue_name, on_message_callback=callback)
say(ready=True)
channel.start_consuming()
connection.close()
say(done=True, **arrivals.report())
