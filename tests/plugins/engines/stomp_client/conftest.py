"""Our broker and our client, in kernels of their own, joined by a real socket."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kernel.testing.fixtures import KernelFactory, kernel_factory
from kernel.topology.plan import EnginePlan
from kernel.topology.system import Kernel
from tests.plugins.engines.client_kernel import FAST, TIMEOUT, ClientKernel, bodies, broker_of, receive

__all__ = ["FAST", "TIMEOUT", "bodies", "kernel_factory", "receive"]

GUEST = {"login": "guest", "passcode": "guest"}


class Client(ClientKernel):
    """A kernel with an engine of kind ``stomp-client``."""

    def __init__(self, make: KernelFactory, address: str, **options: Any) -> None:
        super().__init__(make, "stomp-client", address, **{"persistent": True, **GUEST, **options})


def broker_plan(address: str = "127.0.0.1:0", name: str = "broker", **options: Any) -> EnginePlan:
    return broker_of("stomp", address, name, **options)


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
