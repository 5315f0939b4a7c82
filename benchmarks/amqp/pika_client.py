"""pika's BlockingConnection, as its documentation shows it: one call a message, confirms one by one."""

from __future__ import annotations

import time
from multiprocessing.connection import Connection
from typing import Any

import pika

from benchmarks.amqp.work import Work


def publish(link: Connection, address: str, work: Work) -> None:
    """Publish one by one."""
    with pika.BlockingConnection(_parameters(address)) as connection:
        channel = connection.channel()
        if work.confirms:
            channel.confirm_delivery()
        properties = pika.BasicProperties(delivery_mode=2 if work.persistent else 1)
        body = b"x" * work.size
        link.recv()
        start, began = time.perf_counter(), time.process_time()
        for _ in range(work.count):
            channel.basic_publish("", work.queue, body, properties)
        link.send((time.process_time() - began) / (time.perf_counter() - start))
        link.recv()


def consume(link: Connection, address: str, work: Work) -> None:
    """Consume with a callback."""
    left = work.count
    start = began = 0.0

    def on_message(channel: Any, method: Any, properties: Any, body: bytes) -> None:
        nonlocal left, start, began
        if left == work.count:
            start, began = time.perf_counter(), time.process_time()
        left -= 1
        if work.acks:
            channel.basic_ack(method.delivery_tag)
        if not left:
            channel.stop_consuming()

    with pika.BlockingConnection(_parameters(address)) as connection:
        channel = connection.channel()
        channel.queue_declare(work.queue, durable=work.persistent, auto_delete=True)
        channel.basic_qos(prefetch_count=work.prefetch)
        channel.basic_consume(work.queue, on_message, auto_ack=not work.acks)
        link.send("ready")
        channel.start_consuming()
        seconds = time.perf_counter() - start
        link.send(((work.count - 1) / seconds, (time.process_time() - began) / seconds))
        link.recv()


def _parameters(address: str) -> pika.ConnectionParameters:
    host, _, port = address.rpartition("/")[2].partition(":")
    return pika.ConnectionParameters(host, int(port))
