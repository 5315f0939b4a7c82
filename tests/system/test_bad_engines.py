"""An engine that breaks its word where the kernel asks it something: nobody else pays for it."""

from __future__ import annotations

import types
from typing import Any

import msgspec
import trio

import kernel as package
from kernel.contracts.kinds import EngineKind
from kernel.plugins import Origin, PluginRegistry
from kernel.testing.fixtures import KernelFactory
from kernel.topology.plan import EnginePlan

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


@package.hookimpl
def register_engines() -> list[EngineKind]:
    """The bad one."""
    return [EngineKind(name="bad", summary="bad", options=NoOptions, create=lambda setup: BadEngine())]


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
