"""An engine that breaks its word where the kernel asks it something: nobody else pays for it."""

from __future__ import annotations

import logging
import types
from queue import SimpleQueue
from typing import Any

import msgspec
import pytest
import trio

import kernel as package
from kernel.contracts.errors import KernelError
from kernel.contracts.kinds import EngineKind
from kernel.plugins import Origin, PluginRegistry
from kernel.testing.fixtures import KernelFactory
from kernel.topology.plan import EnginePlan
from tests.events import Events

GOOD = EnginePlan(
    name="good", kind="stream", options={"address": "backend+tcp://127.0.0.1:0", "mode": "listen"}
)


class NoOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """None."""


class BadEngine:
    """Lives well, but cannot be asked."""

    async def run(self, host: Any, *, task_status: trio.TaskStatus[str]) -> None:
        """Live."""
        task_status.started("")
        await trio.sleep_forever()

    def statistics(self) -> dict[str, Any]:
        """Fail."""
        raise RuntimeError("no figures")

    def pending(self) -> bool:
        """Fail."""
        raise RuntimeError("no idea")


class SilentEngine(BadEngine):
    """Lives, and does not say so."""

    async def run(self, host: Any, *, task_status: trio.TaskStatus[str]) -> None:
        """Live."""
        await trio.sleep_forever()


@package.hookimpl
def register_engines() -> list[EngineKind]:
    """The bad one."""
    none: Any = lambda setup: None  # noqa: E731 - no engine
    return [
        EngineKind(name="bad", summary="bad", options=NoOptions, create=lambda setup: BadEngine()),
        EngineKind(name="silent", summary="bad", options=NoOptions, create=lambda setup: SilentEngine()),
        EngineKind(name="none", summary="bad", options=NoOptions, create=none),
    ]


def _registry() -> PluginRegistry:
    module = types.ModuleType("bad_plugin")
    module.register_engines = register_engines  # type: ignore[attr-defined]
    registry = PluginRegistry.load()
    registry.add(module, Origin("bad", "bad", "1"))
    return registry


def test_figures_of_the_others_are_there(kernel_factory: KernelFactory) -> None:
    kernel = kernel_factory(GOOD, EnginePlan(name="bad", kind="bad"), registry=_registry())
    counters = {engine.name: engine.counters for engine in kernel.statistics().engines}
    assert counters["bad"] == {"error": "RuntimeError: no figures"}
    assert counters["good"]["connections"] == 0


def test_a_closing_kernel_does_not_fail_over_it(kernel_factory: KernelFactory) -> None:
    crashes: list[str] = []
    kernel = kernel_factory(
        GOOD,
        EnginePlan(name="bad", kind="bad"),
        registry=_registry(),
        on_event=lambda event: crashes.append(event.what) if "crash" in event.what else None,
    )
    kernel.close(linger=1)
    assert kernel.join(60)
    assert crashes == []


def test_a_kind_that_makes_no_engine_is_named(kernel_factory: KernelFactory) -> None:
    events = Events()
    kernel_factory(EnginePlan(name="x", kind="none"), registry=_registry(), wait=False, on_event=events)
    assert events.wait("failed", "x").detail.startswith(
        "PluginError: kind 'none' of plugin 'bad' of bad 1: create has returned None, which is no engine"
    )


def test_failures_are_logged_while_nobody_listens_to_events(kernel_factory: KernelFactory) -> None:
    logged: SimpleQueue[str] = SimpleQueue()
    handler = logging.Handler()
    handler.emit = lambda record: logged.put(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger("kernel.topology.system")
    logger.addHandler(handler)
    try:
        kernel_factory(EnginePlan(name="x", kind="none"), registry=_registry(), wait=False)
        assert logged.get(timeout=60).startswith("engine x has failed: PluginError: kind 'none'")
    finally:
        logger.removeHandler(handler)


def test_whoever_waits_for_an_engine_that_does_not_say_that_it_is_up_learns_why(
    kernel_factory: KernelFactory,
) -> None:
    kernel = kernel_factory(EnginePlan(name="x", kind="silent"), registry=_registry(), wait=False)
    with pytest.raises(KernelError, match=r"x is starting \(its method `run` has not called task_status"):
        kernel.wait_running(0.01)
