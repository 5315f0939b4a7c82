"""Options that an engine takes while it runs."""

from __future__ import annotations

import types
from typing import Any

import msgspec
import pytest
import trio

import kernel as package
from kernel.contracts.errors import KernelError
from kernel.contracts.kinds import EngineKind, EngineSetup
from kernel.plugins import Origin, PluginRegistry
from kernel.testing.fixtures import KernelFactory
from kernel.topology.plan import EnginePlan, Plan


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    live: int = 0
    fixed: int = 0


class Engine:
    """Remembers with which options it has lived; fails when it is asked to."""

    lives: list[Engine]

    def __init__(self, setup: EngineSetup) -> None:
        self.taken = [setup.options]
        self._fail = trio.Event()
        self.lives.append(self)

    async def run(self, host: Any, *, task_status: trio.TaskStatus[str]) -> None:
        task_status.started("")
        await self._fail.wait()
        raise RuntimeError("as wanted")

    def statistics(self) -> dict[str, Any]:
        return {}

    def take_options(self, options: Options) -> None:
        if options.live < 0:
            raise ValueError("less than nothing")
        self.taken.append(options)

    def operate(self, what: str, argument: Any) -> None:
        self._fail.set()


@package.hookimpl
def register_engines() -> list[EngineKind]:
    return [EngineKind(name="e", summary="e", options=Options, create=Engine, live_options=("live",))]


@pytest.fixture
def registry() -> PluginRegistry:
    Engine.lives = []
    module = types.ModuleType("live_plugin")
    module.register_engines = register_engines  # type: ignore[attr-defined]
    registry = PluginRegistry.load()
    registry.add(module, Origin("live", "live", "1"))
    return registry


def plan(**options: int) -> Plan:
    return Plan(engines=(EnginePlan(name="e", kind="e", options=options),))


def test_an_engine_goes_on_with_them(kernel_factory: KernelFactory, registry: PluginRegistry) -> None:
    kernel = kernel_factory(*plan().engines, registry=registry)
    assert kernel.apply(plan(live=1)) == ["~ engine e"]
    (engine,) = Engine.lives
    assert engine.taken == [Options(), Options(live=1)]
    assert kernel.plan.engine("e") == plan(live=1).engines[0]
    assert kernel.apply(plan(live=1)) == []


def test_other_options_start_it_anew(kernel_factory: KernelFactory, registry: PluginRegistry) -> None:
    kernel = kernel_factory(*plan().engines, registry=registry)
    assert kernel.apply(plan(live=1, fixed=1)) == ["- engine e", "+ engine e"]
    kernel.wait_running()
    assert [engine.taken for engine in Engine.lives] == [[Options()], [Options(live=1, fixed=1)]]


def test_an_engine_that_refuses_them_goes_on(kernel_factory: KernelFactory, registry: PluginRegistry) -> None:
    kernel = kernel_factory(*plan().engines, registry=registry)
    with pytest.raises(KernelError, match="engine 'e': less than nothing"):
        kernel.apply(plan(live=-1))
    (state,) = kernel.engine_states()
    assert (state.state, state.failures) == ("running", 0)


def test_an_engine_that_is_made_again_has_them(
    kernel_factory: KernelFactory, registry: PluginRegistry
) -> None:
    kernel = kernel_factory(*plan().engines, registry=registry)
    kernel.apply(plan(live=1))
    kernel.operate("e", "fail", None)
    kernel.wait_running()
    while len(Engine.lives) < 2:
        kernel.wait_running()
    assert Engine.lives[1].taken == [Options(live=1)]
