"""The parts of the fixture ``kernel_factory``, which can also be imported from here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, Protocol

from kernel.contracts.engine import EngineEvent
from kernel.plugins import PluginRegistry
from kernel.testing.leaks import Leaks
from kernel.testing.pytest_plugin import kernel_factory
from kernel.topology.check import plan_of_text
from kernel.topology.plan import EnginePlan, Plan, RoutePlan, ThreadPlan
from kernel.topology.system import Kernel

__all__ = [
    "JOIN_TIMEOUT",
    "START_TIMEOUT",
    "KernelFactory",
    "factory",
    "kernel_factory",
    "plan_of",
    "plan_of_text",
]

START_TIMEOUT = JOIN_TIMEOUT = 60.0


class KernelFactory(Protocol):
    """The value of the fixture: a function that starts kernels."""

    def __call__(
        self,
        *parts: EnginePlan | RoutePlan | ThreadPlan,
        registry: PluginRegistry | None = None,
        wait: bool = True,
        on_event: Callable[[EngineEvent], Any] | None = None,
    ) -> Kernel:
        """Start a kernel of these engines, routes and threads and wait until all of its engines run."""
        ...


@contextmanager
def factory() -> Iterator[KernelFactory]:
    """Make kernels that are closed at the end; ``AssertionError`` if a thread or a descriptor is left."""
    # Before the first kernel, so that nothing of a kernel counts as having been there.
    leaks = Leaks()
    kernels: list[Kernel] = []

    def make(
        *parts: EnginePlan | RoutePlan | ThreadPlan,
        registry: PluginRegistry | None = None,
        wait: bool = True,
        on_event: Callable[[EngineEvent], Any] | None = None,
    ) -> Kernel:
        kernel = Kernel(plan_of(*parts), registry or _installed())
        if on_event is not None:
            kernel.events.append(on_event)
        # Before the start: a kernel that fails to start is closed, too.
        kernels.append(kernel)
        kernel.start()
        if wait:
            kernel.wait_running(START_TIMEOUT)
        return kernel

    try:
        yield make
    finally:
        # Also when the block has raised.  A test that fails raises nothing in a fixture of pytest's, but in a
        # ``with`` statement it does.  All are asked to end before any is waited for, so that they end at the
        # same time.
        for kernel in kernels:
            kernel.close(linger=0)
        gone = [kernel.join(JOIN_TIMEOUT) for kernel in kernels]
    # What is left behind is not said in the place of what the block has raised.
    for kernel, is_gone in zip(kernels, gone, strict=True):
        assert is_gone, f"{kernel} is not gone {JOIN_TIMEOUT} s after it was closed"
    left = leaks.found()
    assert not left, "left behind: " + ", ".join(left)


@cache
def _installed() -> PluginRegistry:
    """Return what is installed, loaded once: it takes as long (3 ms) as many a test."""
    return PluginRegistry.load()


def plan_of(*parts: EnginePlan | RoutePlan | ThreadPlan) -> Plan:
    """Put engines, routes and threads together, in any order."""
    return Plan(
        threads=tuple(part for part in parts if isinstance(part, ThreadPlan)),
        engines=tuple(part for part in parts if isinstance(part, EnginePlan)),
        routes=tuple(part for part in parts if isinstance(part, RoutePlan)),
    )
