"""Brokers for MQTT clients: one in a kernel that many tests share, and others on a clock that stands still."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import pytest

from kernel import EnginePlan, Kernel
from kernel.testing.fixtures import KernelFactory, factory
from tests.plugins.engines.mqtt.raw_client import TIMEOUT, RawClient
from tests.plugins.engines.mqtt.still_server import StillServer


class Shared:
    """A broker in a kernel of its own, and its clients."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.port = int(kernel.address_of("broker").rpartition(":")[2])
        self._clients: list[RawClient] = []

    def client(self, version: int = 5) -> RawClient:
        """Return a connection without a CONNECT."""
        wire = socket.create_connection(("127.0.0.1", self.port), timeout=TIMEOUT)
        wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._clients.append(RawClient(wire, version))
        return self._clients[-1]

    def connect(self, version: int = 5, **connect: Any) -> RawClient:
        """Return a client that was accepted."""
        client = self.client(version)
        assert client.connect(**connect).reason_code == 0
        return client

    def close_clients(self) -> None:
        for client in self._clients:
            client.close()
        self._clients.clear()


def start(kernels: KernelFactory, listener: dict[str, Any] | None = None, **options: Any) -> Shared:
    """Start a broker with an MQTT listener."""
    listeners = [{"protocol": "mqtt", "address": "127.0.0.1:0", **(listener or {})}]
    plan = EnginePlan(name="broker", kind="broker", options={"listeners": listeners, **options})
    return Shared(kernels(plan))


@pytest.fixture(scope="module")
def _broker() -> Iterator[Shared]:
    with factory() as kernels:
        yield start(kernels)


@pytest.fixture
def broker(_broker: Shared) -> Iterator[Shared]:
    """A broker that all tests share: client identifiers and topics have to be the test's own."""
    yield _broker
    _broker.close_clients()


@pytest.fixture(params=[4, 5], ids=["3.1.1", "5.0"])
def version(request: pytest.FixtureRequest) -> int:
    return int(request.param)


_numbers = count()


@pytest.fixture
def own() -> str:
    """A name that no other test has: of topics, client identifiers and groups."""
    return f"own{next(_numbers)}"


@pytest.fixture
def still() -> Iterator[Callable[..., StillServer]]:
    """Make a broker on a clock that stands still."""
    servers: list[StillServer] = []

    def make(listener: dict[str, Any] | None = None, day: float | None = None, **options: Any) -> StillServer:
        servers.append(StillServer(listener or {}, options, day))
        return servers[-1]

    yield make
    for server in servers:
        server.close()


@pytest.fixture
def quiet(still: Callable[..., StillServer]) -> StillServer:
    """A broker on a clock that stands still, with the default options."""
    return still()
