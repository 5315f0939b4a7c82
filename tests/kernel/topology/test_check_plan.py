"""A plan made in Python is held against what is installed when a kernel is made of it."""

from __future__ import annotations

from typing import Any

import pytest

from kernel.contracts.errors import PlanError
from kernel.hosting.backoff import BackoffOptions
from kernel.pipes.water_marks import WaterMarks
from kernel.plugins import PluginRegistry
from kernel.testing.fixtures import plan_of
from kernel.topology.plan import EnginePlan, RoutePlan, ThreadPlan
from kernel.topology.system import Kernel

APP = EnginePlan(name="app", kind="native")


@pytest.fixture(scope="module")
def registry() -> PluginRegistry:
    return PluginRegistry.load()


def stream(**options: Any) -> EnginePlan:
    return EnginePlan(name="link", kind="stream", options={"address": "backend+tcp://h:1", **options})


MISTAKES: dict[str, tuple[list[Any], str]] = {
    "kind": ([EnginePlan(name="x", kind="straem")], "unknown engine kind 'straem'; did you mean 'stream'?"),
    "thread": (
        [EnginePlan(name="x", kind="stream", thread="io", options={"address": "backend+tcp://h:1"})],
        "[engines.x] names thread 'io', which does not exist; known: poll-1",
    ),
    "thread kind": ([ThreadPlan(name="t", kind="pol")], "unknown thread kind 'pol'; did you mean 'poll'?"),
    "option": (
        [EnginePlan(name="x", kind="stream", options={"adress": "?"})],
        "[engines.x] has no key 'adress'; did you mean 'address'?",
    ),
    "value": (
        [stream(max_connections="many")],
        '[engines.link] max_connections = "many": must be a whole number',
    ),
    "protocol": ([stream(address="bakend+tcp://h:1")], "unknown protocol 'bakend'; did you mean 'backend'?"),
    "option of the protocol": (
        [stream(protocol={"heartbeet": 1})],
        "[engines.link.protocol] has no key 'heartbeet'; did you mean 'heartbeat'?",
    ),
    "protocol of a listener": (
        [EnginePlan(name="b", kind="broker", options={"listeners": [{"protocol": "amq", "address": ":0"}]})],
        "[engines.b.listeners.0] names the unknown front end 'amq'; did you mean 'amqp'?",
    ),
    "router": (
        [RoutePlan(source="a", targets=("b",), router="fan-uot")],
        "route a -> b: unknown router 'fan-uot'; did you mean 'fan-out'?",
    ),
    "option of the router": (
        [RoutePlan(source="a", targets=("b",), router_options={"no": 1})],
        "route a -> b: [routes.options] of router 'fan-out' has no key 'no'; there are none",
    ),
    "no destination": (
        [RoutePlan(source="a", targets=())],
        "route a -> : 'to' is empty, so this route leads nowhere; name an engine",
    ),
    "a destination twice": (
        [RoutePlan(source="a", targets=("b", "b"))],
        "route a -> b, b: this route leads to 'b' twice; remove one of them",
    ),
    "contradiction": (
        [RoutePlan(source="a", targets=("b",), confirm=True, marks=WaterMarks(when_full="drop-oldest"))],
        "route a -> b: when_full = 'drop-oldest' drops messages, and confirm = true promises to lose none; remove one of them",
    ),
    "two of a name": ([APP, APP], "there are 2 engines with the name 'app'; names must be unique"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_complained_about(name: str, registry: PluginRegistry) -> None:
    parts, complaint = MISTAKES[name]
    with pytest.raises(PlanError) as refused:
        Kernel(plan_of(*parts), registry)
    assert refused.value.complaints == [complaint]


def test_all_mistakes_are_told_at_once(registry: PluginRegistry) -> None:
    several = [MISTAKES[name] for name in ("kind", "thread kind", "protocol", "router", "contradiction")]
    with pytest.raises(PlanError) as refused:
        Kernel(plan_of(*(part for parts, _ in several for part in parts)), registry)
    assert sorted(refused.value.complaints) == sorted(complaint for _, complaint in several)


def test_what_python_may_say_is_accepted(registry: PluginRegistry) -> None:
    Kernel(
        plan_of(
            stream(reconnect=BackoffOptions(first=1), max_connections="5"),
            EnginePlan(name="app", kind="native", options={"subscriptions": ("a", "b")}),
            RoutePlan(source="opened later", targets=("app", "added later")),
            RoutePlan(source="app", targets=("link",)),
            RoutePlan(source="app", targets=("link",)),
        ),
        registry,
    )


def test_a_plan_to_be_applied_is_checked_as_well(registry: PluginRegistry) -> None:
    with Kernel(plan_of(APP), registry) as kernel:
        with pytest.raises(PlanError, match="straem"):
            kernel.apply(plan_of(APP, EnginePlan(name="x", kind="straem")))
        assert kernel.plan.engine("app") is not None
