"""A broker of ours with a STOMP listener and an AMQP listener, in a thread of the test's own process."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from kernel import EnginePlan, Kernel
from kernel.testing.fixtures import KernelFactory, kernel_factory
from tests.plugins.engines.stomp.raw_client import TIMEOUT, RawStomp

__all__ = ["kernel_factory"]


class StompBroker:
    """A running broker and its clients, which are closed at the end."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        addresses = kernel.address_of("broker").split(", ")
        self.port, self.amqp_port = (int(address.rpartition(":")[2]) for address in addresses)
        self._closed_at_the_end: list[Callable[[], None]] = []

    def open(self) -> RawStomp:
        """A connection that has not said CONNECT."""
        client = RawStomp(self.port)
        self._closed_at_the_end.append(client.socket.close)
        return client

    def connect(self, version: str = "1.2", **headers: object) -> RawStomp:
        """A client that is logged in."""
        client = self.open()
        connected = client.connect(version, **headers)
        assert connected.command == "CONNECTED", connected
        return client

    def channel(self) -> BlockingChannel:
        """A channel of a pika connection."""
        connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", self.amqp_port))

        def close() -> None:
            if connection.is_open:
                connection.close()

        self._closed_at_the_end.append(close)
        return connection.channel()

    def rows(self, what: str) -> list[dict[str, Any]]:
        """Rows as an operator sees them."""
        return list(self.kernel.inspect(what).rows)

    def queue(self, name: str) -> dict[str, Any]:
        """The row of a queue."""
        (found,) = [row for row in self.rows("queues") if row["name"] == name]
        return found

    def queue_names(self) -> set[str]:
        return {row["name"] for row in self.rows("queues")}

    def wait(self, done: Callable[[], bool]) -> None:
        """Wait until something is so."""
        deadline = time.monotonic() + TIMEOUT
        while not done():
            assert time.monotonic() < deadline, "not within the time limit"
            time.sleep(0.005)

    def close(self) -> None:
        for close in self._closed_at_the_end:
            close()
        self.kernel.close(linger=0)


ServeStomp = Callable[..., StompBroker]


@pytest.fixture
def serve(kernel_factory: KernelFactory) -> Iterator[ServeStomp]:
    """Start a broker; ``listener`` has options of the STOMP listener."""
    brokers: list[StompBroker] = []

    def start(listener: dict[str, Any] | None = None, **options: Any) -> StompBroker:
        listeners = [
            {"protocol": "stomp", "address": "tcp://127.0.0.1:0", **(listener or {})},
            {"protocol": "amqp", "address": "tcp://127.0.0.1:0"},
        ]
        plan = EnginePlan(name="broker", kind="broker", options={"listeners": listeners, **options})
        brokers.append(StompBroker(kernel_factory(plan)))
        return brokers[-1]

    yield start
    for broker in brokers:
        broker.close()


@pytest.fixture
def broker(serve: ServeStomp) -> StompBroker:
    return serve()
