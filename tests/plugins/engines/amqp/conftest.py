"""A broker of ours for real clients, in a thread of the test's own process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel, BlockingConnection

from plugins.engines.amqp.front_end import make_amqp_engine
from plugins.engines.amqp.options import AmqpOptions
from tests.plugins.engines.amqp.fake_host import FakeHost, FakePort
from tests.plugins.engines.amqp.still_host import StillServer


class Server:
    """A running engine and how to reach it."""

    def __init__(self, **options: Any) -> None:
        self.host = FakeHost()
        self.engine = make_amqp_engine("broker", AmqpOptions(**{"address": "127.0.0.1:0", **options}))
        self.host.start()
        self.address = str(self.host.call(lambda: self.engine.start(self.host)))
        self.port = int(self.address.rpartition(":")[2]) if ":" in self.address else 0
        self._connections: list[BlockingConnection] = []

    @property
    def url(self) -> str:
        return f"amqp://guest:guest@{self.address}/"

    @property
    def feed_port(self) -> FakePort:
        return self.host.ports["broker"]

    def connect(self, user: str = "guest", password: str = "guest", **parameters: Any) -> BlockingConnection:
        connection = pika.BlockingConnection(
            pika.ConnectionParameters(
                "127.0.0.1", self.port, credentials=pika.PlainCredentials(user, password), **parameters
            )
        )
        self._connections.append(connection)
        return connection

    def channel(self) -> BlockingChannel:
        return self.connect().channel()

    def close(self) -> None:
        for connection in self._connections:
            if connection.is_open:
                connection.close()
        self.host.call(lambda: self.engine.stop())
        self.host.stop()
        if self.host.failures:
            raise AssertionError("the engine raised") from self.host.failures[0]


@pytest.fixture
def serve() -> Iterator[Callable[..., Server]]:
    """Start a server with options."""
    servers: list[Server] = []

    def start(**options: Any) -> Server:
        servers.append(Server(**options))
        return servers[-1]

    yield start
    for server in servers:
        server.close()


@pytest.fixture
def server(serve: Callable[..., Server]) -> Server:
    return serve()


@pytest.fixture
def channel(server: Server) -> BlockingChannel:
    return server.channel()


@pytest.fixture
def still() -> Iterator[Callable[..., StillServer]]:
    """Make a server on a clock that stands still."""
    servers: list[StillServer] = []

    def make(**options: Any) -> StillServer:
        servers.append(StillServer(**options))
        return servers[-1]

    yield make
    for server in servers:
        server.close()
