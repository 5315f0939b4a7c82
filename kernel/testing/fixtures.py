"""Fixtures for tests that run kernels.  In a ``conftest.py``: ``from kernel.testing.fixtures import kernel_factory``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol

import pytest

from kernel.contracts.engine import EngineEvent
from kernel.plugins import PluginRegistry
from kernel.testing.leaks import Leaks
from kernel.topology.plan import EnginePlan, Plan, RoutePlan, ThreadPlan
from kernel.topology.system import Kernel

START_TIMEOUT = JOIN_TIMEOUT = 60.0


class KernelFactory(Protocol):
    """What the fixture gives: a maker of running kernels."""

    def __call__(
        self,
        *parts: EnginePlan | RoutePlan | ThreadPlan,
        registry: PluginRegistry | None = None,
        wait: bool = True,
        on_event: Callable[[EngineEvent], Any] | None = None,
    ) -> Kernel:
        """Start a kernel of these engines, routes and threads and wait until all of its engines run."""
        ...


@pytest.fixture
def kernel_factory() -> Iterator[KernelFactory]:
    """Make kernels that are closed after the test, which fails if a thread or a descriptor is left."""
    leaks = Leaks()
    kernels: list[Kernel] = []

    def make(
        *parts: EnginePlan | RoutePlan | ThreadPlan,
        registry: PluginRegistry | None = None,
        wait: bool = True,
        on_event: Callable[[EngineEvent], Any] | None = None,
    ) -> Kernel:
        kernel = Kernel(plan_of(*parts), registry)
        if on_event is not None:
            kernel.events.append(on_event)
        kernels.append(kernel)
        kernel.start()
        if wait:
            kernel.wait_running(START_TIMEOUT)
        return kernel

    yield make
    for kernel in kernels:
        kernel.close(linger=0)
    for kernel in kernels:
        assert kernel.join(JOIN_TIMEOUT), f"{kernel} is not gone {JOIN_TIMEOUT} s after it was closed"
    left = leaks.found()
    assert not left, "left behind: " + ", ".join(left)


def plan_of(*parts: EnginePlan | RoutePlan | ThreadPlan) -> Plan:
    """Put engines, routes and threads together, in any order."""
    return Plan(
        threads=tuple(part for part in parts if isinstance(part, ThreadPlan)),
        engines=tuple(part for part in parts if isinstance(part, EnginePlan)),
        routes=tuple(part for part in parts if isinstance(part, RoutePlan)),
    )
