"""A plugin of pytest for AMQPStorm's suite, which runs in a process of its own: it talks to this test's broker.

The suite has the ports of RabbitMQ, and deletes queues and exchanges over RabbitMQ's HTTP interface.

AMQPStorm looks every 10 ms whether an answer has come, and so its suite does nothing else for nine tenths of its time.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable
from importlib import import_module
from typing import Any

import amqpstorm
from amqpstorm.tests.functional import utility

_PORTS = {5672: int(os.environ["SUITE_PORT"]), 5671: int(os.environ["SUITE_TLS_PORT"])}


def _to_broker(connect: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(connect)
    def connect_to_broker(
        self: object, host: str, user: str, password: str, port: int = 5672, **options: Any
    ) -> None:
        connect(self, host, user, password, _PORTS.get(port, port), **options)

    return connect_to_broker


def _clean(names: Iterable[str], queue: bool = False, exchange: bool = False) -> None:
    with amqpstorm.Connection("127.0.0.1", "guest", "guest") as connection, connection.channel() as channel:
        for name in names:
            if queue:
                channel.queue.delete(name)
            if exchange:
                channel.exchange.delete(name)


amqpstorm.Connection.__init__ = _to_broker(amqpstorm.Connection.__init__)  # type: ignore[method-assign]
utility.clean = _clean
for module in ("channel", "connection", "rpc"):
    import_module(f"amqpstorm.{module}").IDLE_WAIT = 0.001
