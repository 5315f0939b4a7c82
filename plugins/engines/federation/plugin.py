"""The federation plugin: links between brokers, as engines."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from kernel import hookimpl
from kernel.contracts.assurance import Assurance
from kernel.contracts.engine import Engine
from kernel.contracts.kinds import EngineKind, EngineSetup

if TYPE_CHECKING:
    from kernel import Plan


@hookimpl
def register_engines() -> list[EngineKind]:
    """Offer federation links."""
    return [
        EngineKind(
            name="federation",
            summary="AMQP federation link: a broker of this kernel receives messages from another broker",
            options="plugins.engines.federation.options:FederationOptions",
            create=_create,
            assures=_assures,
        )
    ]


def _assures(options: Any) -> Assurance:
    return Assurance(acknowledges="" if options.no_ack else "basic.ack to the upstream broker", waits=True)


@hookimpl
def check_plan(plan: Plan) -> list[str]:
    """Complain about links that cannot work.

    Their broker is missing or elsewhere, has no ``cluster_name``, or no route from the link.
    """
    engines = {engine.name: engine for engine in plan.engines}
    return [
        f"engine {engine.name!r}: {complaint}"
        for engine in plan.engines
        if engine.kind == "federation"
        for complaint in _complaints(engine.name, engines.get(engine.options.get("broker", "")), plan)
    ]


def _complaints(name: str, broker: Any, plan: Plan) -> Iterator[str]:
    # The link uses the broker's topology observers and a route.  What its clients speak does not matter.
    if broker is None or broker.kind not in ("amqp", "broker"):
        yield "the option broker must name an engine of kind amqp or broker in the same file"
        return
    if not broker.options.get("cluster_name"):
        yield f"its broker {broker.name!r} needs a cluster_name of its own; set this option"
    if plan.process_of(name) != plan.process_of(broker.name):
        yield f"its broker {broker.name!r}, whose exchanges it observes, is in another process; give both the same thread"
    if not any(route.source == name and broker.name in route.targets for route in plan.routes):
        yield f'it needs a route: from = "{name}", to = "{broker.name}", confirm = true'
    if any(name in route.targets for route in plan.routes):
        yield "a route leads to it, but its messages come from the upstream; remove that route"


def _create(setup: EngineSetup) -> Engine:
    from plugins.engines.federation.engine import Federation

    return Federation(setup.name, setup.options)
