"""How the engine comes into a topology."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernel.contracts.errors import PlanError
from kernel.plugins import PluginRegistry
from kernel.testing.fixtures import KernelFactory
from kernel.topology.check import plan_of_text
from kernel.topology.plan import EnginePlan
from kernel.topology.system import Kernel
from tests.system.conftest import route

EXAMPLES = Path(__file__).parents[4] / "examples"


def test_one_line_makes_an_sctp_bridge_of_a_tcp_bridge() -> None:
    """The bridge of the examples, with another address and nothing else changed."""
    registry = PluginRegistry.load()
    text = (EXAMPLES / "bridge.toml").read_text()
    changed = text.replace("backend+tcp://", "backend+sctp://")
    assert changed != text
    plan = plan_of_text(changed, registry)
    bridge = plan.engine("bridge")
    assert bridge is not None
    found = registry.engine_for(bridge.kind, bridge.options)
    assert found is not None
    assert (bridge.kind, found.kind.name) == ("stream", "sctp")


def test_its_options_are_those_of_the_kind_that_it_is() -> None:
    text = '[engines.net]\nkind = "stream"\naddress = "backend+sctp://127.0.0.1:5000"\nstreams = 0\n'
    with pytest.raises(PlanError, match="4: .*streams"):
        plan_of_text(text, PluginRegistry.load())


def test_a_kernel_in_python_takes_the_same_line(kernel_factory: KernelFactory) -> None:
    def plan(transport: str, place: str, mode: str) -> EnginePlan:
        return EnginePlan(
            name="net", kind="stream", options={"address": f"backend+{transport}://{place}", "mode": mode}
        )

    def connected(transport: str, place: str) -> tuple[Kernel, Kernel]:
        there = kernel_factory(plan(transport, place, "listen"), route("net", "app"))
        return there, kernel_factory(plan(transport, there.address_of("net"), "dial"), route("app", "net"))

    for transport, place in (("tcp", "127.0.0.1:0"), ("sctp", "127.0.0.1:0/0")):
        there, here = connected(transport, place)
        here.open("app").send(b"hello", timeout=60)
        assert bytes(there.open("app").receive(60)) == b"hello"
