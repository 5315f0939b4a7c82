"""Clients of many kinds on one broker at once: each gets what it should, and none another's."""

from __future__ import annotations

import asyncio
import subprocess
import threading
from collections.abc import Callable
from typing import Any

import aio_pika
import amqp
import amqpstorm
import pytest

from tests.interop.brokers import Broker
from tests.interop.conftest import Connect
from tests.interop.test_node_amqplib import CHECKS, PROGRAM

COUNT = 300

pytestmark = [
    pytest.mark.peer("pika"),
    pytest.mark.peer("aio-pika"),
    pytest.mark.peer("amqp"),
    pytest.mark.peer("amqpstorm"),
    pytest.mark.peer("node-amqplib"),
    pytest.mark.slow,
]


def bodies_of(who: str) -> list[bytes]:
    return [f"{who} {number}".encode() for number in range(COUNT)]


class WithPika:
    def __init__(self, connect: Connect) -> None:
        self._connect = connect

    def __call__(self, broker: Broker, exchange: str, queue: str, expected: int) -> list[bytes]:
        channel = self._connect().channel()
        for body in bodies_of("pika"):
            channel.basic_publish(exchange, "", body)
        got: list[bytes] = []
        for method, _, body in channel.consume(queue, inactivity_timeout=120):
            assert method is not None, f"{len(got)} of {expected} came"
            got.append(body)
            channel.basic_ack(method.delivery_tag)
            if len(got) == expected:
                return got
        return got


def with_aio_pika(broker: Broker, exchange: str, queue: str, expected: int) -> list[bytes]:
    async def run() -> list[bytes]:
        async with asyncio.timeout(200), await aio_pika.connect(broker.url) as connection:
            channel = await connection.channel()
            target = await channel.get_exchange(exchange)
            for body in bodies_of("aio-pika"):
                await target.publish(aio_pika.Message(body), "", mandatory=False)
            got: list[bytes] = []
            async with (await channel.get_queue(queue)).iterator() as messages:
                async for message in messages:
                    got.append(message.body)
                    await message.ack()
                    if len(got) == expected:
                        break
            return got

    return asyncio.run(run())


def with_py_amqp(broker: Broker, exchange: str, queue: str, expected: int) -> list[bytes]:
    got: list[bytes] = []

    def on_message(message: Any) -> None:
        body = message.body  # text, if it looks like text
        got.append(body.encode() if isinstance(body, str) else body)

    with amqp.Connection(broker.address) as connection:
        channel = connection.channel()
        for body in bodies_of("py-amqp"):
            channel.basic_publish(amqp.Message(body), exchange)
        channel.basic_consume(queue, no_ack=True, callback=on_message)
        while len(got) < expected:
            connection.drain_events(timeout=120)
    return got


def with_amqpstorm(broker: Broker, exchange: str, queue: str, expected: int) -> list[bytes]:
    got: list[bytes] = []
    with (
        amqpstorm.Connection(broker.host, "guest", "guest", port=broker.port) as connection,
        connection.channel() as channel,
    ):
        for body in bodies_of("amqpstorm"):
            channel.basic.publish(body, "", exchange)
        channel.basic.consume(queue=queue)
        for message in channel.build_inbound_messages(break_on_empty=True, empty_timeout=120):
            got.append(message.body.encode())
            message.ack()
            if len(got) == expected:
                break
    return got


def test_everybody_at_once(connect: Connect, broker: Broker, name: str) -> None:
    programs: dict[str, Callable[[Broker, str, str, int], list[bytes]]] = {
        "pika": WithPika(connect),
        "aio-pika": with_aio_pika,
        "py-amqp": with_py_amqp,
        "amqpstorm": with_amqpstorm,
    }
    admin = connect().channel()
    admin.exchange_declare(name, "fanout")
    for who in programs:
        admin.queue_declare(f"{name}.{who}")
        admin.queue_bind(f"{name}.{who}", name)
    node = [
        subprocess.Popen(
            ["node", str(PROGRAM), check, str(broker.port), f"{name}.{check}"], stderr=subprocess.PIPE
        )
        for check in CHECKS[:6]
    ]
    got: dict[str, list[bytes]] = {}

    def run(who: str) -> None:
        got[who] = programs[who](broker, name, f"{name}.{who}", COUNT * len(programs))

    threads = [threading.Thread(target=run, args=(who,)) for who in programs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for process in node:
        _, complaint = process.communicate(timeout=120)
        assert process.returncode == 0, complaint
    for who in programs:
        for publisher in programs:
            of_one = [body for body in got[who] if body.startswith(f"{publisher} ".encode())]
            assert of_one == bodies_of(publisher), f"{who} got of {publisher}"
