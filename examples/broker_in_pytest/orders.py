"""The code under test: an AMQP program that does not use the kernel."""

from __future__ import annotations

import pika


def place_order(url: str, order: str) -> None:
    """Put an order into the queue."""
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        channel = connection.channel()
        channel.queue_declare("orders", durable=True)
        channel.basic_publish("", "orders", order.encode())


def next_order(url: str) -> str | None:
    """Take an order out of the queue; None when there is none."""
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        channel = connection.channel()
        channel.queue_declare("orders", durable=True)
        method, _, body = channel.basic_get("orders", auto_ack=True)
        return body.decode() if method is not None else None
