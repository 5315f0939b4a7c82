"""What is wrong with a federation link is said before anything is started."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from kernel.contracts.errors import PlanError
from kernel.topology.plan import EnginePlan, Plan, RoutePlan, ThreadPlan
from kernel.topology.system import Kernel
from plugins.engines.federation.options import FederationOptions

BROKER = EnginePlan(name="broker", kind="amqp", options={"address": "127.0.0.1:0", "cluster_name": "here"})
LINK = EnginePlan(name="link", kind="federation", options={"broker": "broker", "exchanges": ["feed"]})
ROUTE = RoutePlan(source="link", targets=("broker",), confirm=True)


@pytest.mark.parametrize(
    "broker,link,routes,said",
    [
        ({}, {"broker": "brocker"}, (ROUTE,), "the option broker must name an engine of kind amqp or broker"),
        ({"cluster_name": ""}, {}, (ROUTE,), "needs a cluster_name"),
        ({}, {}, (), 'it needs a route: from = "link", to = "broker", confirm = true'),
        ({}, {}, (ROUTE, RoutePlan(source="broker", targets=("link",))), "remove that route"),
    ],
)
def test_a_plan_that_cannot_work(
    broker: dict[str, Any], link: dict[str, Any], routes: tuple[RoutePlan, ...], said: str
) -> None:
    def changed(plan: EnginePlan, options: dict[str, Any]) -> EnginePlan:
        return msgspec.structs.replace(plan, options={**plan.options, **options})

    plan = Plan(engines=(changed(BROKER, broker), changed(LINK, link)), routes=routes)
    with pytest.raises(PlanError, match=said):
        Kernel(plan).start()


def test_a_link_in_another_process_than_its_broker_is_refused() -> None:
    link = msgspec.structs.replace(LINK, thread="apart")
    apart = ThreadPlan(name="apart", kind="process")
    with pytest.raises(PlanError, match="is in another process; give both the same thread"):
        Kernel(Plan(threads=(apart,), engines=(BROKER, link), routes=(ROUTE,))).start()


def test_the_broker_of_a_link_may_serve_any_protocol() -> None:
    broker = EnginePlan(name="broker", kind="broker", options={"cluster_name": "here"})
    with Kernel(Plan(engines=(broker, LINK), routes=(ROUTE,))) as kernel:
        kernel.wait_running()


def test_a_link_for_nothing_is_refused() -> None:
    with pytest.raises(msgspec.ValidationError, match="needs exchanges or queues"):
        msgspec.convert({"broker": "broker"}, FederationOptions)
