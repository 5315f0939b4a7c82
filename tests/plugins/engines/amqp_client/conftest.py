"""Our broker and our client, in kernels of their own, joined by a real socket."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from kernel.pipes.water_marks import WaterMarks
from kernel.testing.fixtures import KernelFactory, kernel_factory
from kernel.topology.plan import EnginePlan, RoutePlan
from kernel.topology.system import Kernel
from tests.events import Events

__all__ = ["kernel_factory"]

FAST = {"first": 0.01, "most": 0.05}
TIMEOUT = 60.0


class Client:
    """A kernel with a client engine; ``out`` feeds it, ``in`` gets what it consumes."""

    def __init__(self, make: KernelFactory, *addresses: str, **options: Any) -> None:
        self.events = Events()
        confirm = options.pop("confirm", True)
        marks = options.pop("marks", WaterMarks(high=100_000))
        parts: list[EnginePlan | RoutePlan] = [
            EnginePlan(
                name="client",
                kind="amqp-client",
                options={"addresses": list(addresses), "reconnect": FAST, **options},
            ),
            EnginePlan(name="out", kind="native"),
            EnginePlan(name="in", kind="native"),
            RoutePlan(source="out", targets=("client",), confirm=confirm, marks=marks),
            RoutePlan(source="client", targets=("in",), confirm=confirm, marks=marks),
        ]
        self.kernel = make(*parts, on_event=self.events)

    def statistics(self) -> dict[str, Any]:
        (found,) = [engine for engine in self.kernel.statistics().engines if engine.name == "client"]
        return found.counters


def broker_plan(address: str = "127.0.0.1:0", **options: Any) -> EnginePlan:
    return EnginePlan(name="broker", kind="amqp", options={"address": address, **options})


def receive(app: Any, expected: Iterable[bytes]) -> list[bytes]:
    """Receive until all that is expected has come; return it with what came twice."""
    missing = set(expected)
    got: list[bytes] = []
    while missing:
        bodies = [bytes(body) for body in app.receive_many(timeout=TIMEOUT)]
        got += bodies
        missing.difference_update(bodies)
    return got


@pytest.fixture
def broker(kernel_factory: KernelFactory) -> Kernel:
    return kernel_factory(broker_plan(queues=[{"name": "q"}]))


@pytest.fixture
def connect(kernel_factory: KernelFactory, broker: Kernel) -> Callable[..., Client]:
    """Make a client of the broker, and wait until it is connected."""

    def make(*addresses: str, **options: Any) -> Client:
        client = Client(kernel_factory, *(addresses or (broker.address_of("broker"),)), **options)
        client.events.wait("connected")
        return client

    return make
