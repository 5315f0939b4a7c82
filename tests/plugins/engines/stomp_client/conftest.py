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
GUEST = {"login": "guest", "passcode": "guest"}
TIMEOUT = 60.0


class Client:
    """A kernel with a client engine; ``out`` feeds it, ``in`` gets what it receives."""

    def __init__(self, make: KernelFactory, address: str, **options: Any) -> None:
        self.events = Events()
        confirm = options.pop("confirm", True)
        marks = options.pop("marks", WaterMarks(high=100_000))
        wait = options.pop("wait", True)
        parts: list[EnginePlan | RoutePlan] = [
            EnginePlan(
                name="client",
                kind="stomp-client",
                options={"address": address, "reconnect": FAST, "persistent": True, **GUEST, **options},
            ),
            EnginePlan(name="out", kind="native"),
            EnginePlan(name="in", kind="native"),
            EnginePlan(name="dead", kind="native"),
            RoutePlan(
                source="out",
                targets=("client",),
                confirm=confirm,
                marks=marks,
                dead_letters="dead" if confirm else None,
            ),
        ]
        if options.get("subscriptions"):
            parts.append(RoutePlan(source="client", targets=("in",), confirm=confirm, marks=marks))
        self.kernel = make(*parts, on_event=self.events)
        if wait:
            self.events.wait("connected")

    def open(self, name: str) -> Any:
        return self.kernel.open(name, "native")

    def statistics(self) -> dict[str, Any]:
        (found,) = [engine for engine in self.kernel.statistics().engines if engine.name == "client"]
        return found.counters


def broker_plan(address: str = "127.0.0.1:0", name: str = "broker", **options: Any) -> EnginePlan:
    listener = {"protocol": "stomp", "address": address, **options.pop("listener", {})}
    return EnginePlan(name=name, kind="broker", options={"listeners": [listener], **options})


def receive(app: Any, expected: Iterable[bytes]) -> list[bytes]:
    """Receive until all that is expected has come; return it with what came twice."""
    missing = set(expected)
    got: list[bytes] = []
    while missing:
        bodies = [bytes(body) for body in app.receive_many(timeout=TIMEOUT)]
        got += bodies
        missing.difference_update(bodies)
    return got


def bodies(first: int, last: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, last)]


@pytest.fixture(params=["1.0", "1.1", "1.2"])
def version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def broker(kernel_factory: KernelFactory) -> Kernel:
    return kernel_factory(broker_plan())


@pytest.fixture
def connect(kernel_factory: KernelFactory, broker: Kernel) -> Callable[..., Client]:
    """Make a client of the broker, and wait until it is connected."""

    def make(**options: Any) -> Client:
        address = broker.address_of("broker").rpartition("://")[2]
        return Client(kernel_factory, f"stomp+tcp://{address}", **options)

    return make
