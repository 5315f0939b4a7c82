"""Registers the engine ``traces``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from msgspec.structs import replace

from kernel import hookimpl
from kernel.contracts.assurance import Assurance
from kernel.contracts.engine import Engine
from kernel.contracts.extras import Extra
from kernel.contracts.kinds import EngineKind, EngineSetup, Flow
from kernel.contracts.rehearsing import Rehearsal

if TYPE_CHECKING:
    from kernel import Plan

_OTEL = Extra(
    "otel",
    "traces need OpenTelemetry",
    ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http"),
)


@hookimpl
def register_engines() -> Iterable[EngineKind]:
    """Register the kind ``traces``."""
    return [
        EngineKind(
            name="traces",
            summary="spans of OpenTelemetry for messages whose publishers are traced",
            options="plugins.engines.traces.options:TracesOptions",
            create=_create,
            flow=lambda options: Flow(alone=False),
            assures=_assures,
            # Nobody is traced there: spans of a rehearsal would be shown beside those of real messages.
            rehearse=lambda plan: Rehearsal(plan=replace(plan, options={**plan.options, "header": ""})),
        )
    ]


@hookimpl
def check_plan(plan: Plan) -> Iterable[str]:
    """Report a missing OpenTelemetry, and routes to traces that would hold up what they lead from."""
    traces = {engine.name for engine in plan.engines if engine.kind == "traces"}
    # Those that hand messages on are a destination like others.
    lookers = traces - {route.source for route in plan.routes}
    complaints = []
    if traces and not _OTEL.is_installed():
        complaints.append(f"engine {min(traces)!r}: {_OTEL.complaint()}")
    complaints += [
        f'route {route.label!r}: a route to traces has to have router = "tap", or a slow collector would hold up '
        "its source, and messages that nobody else takes would count as routed"
        for route in plan.routes
        if route.router != "tap" and lookers.intersection(route.targets)
    ]
    return complaints


def _assures(options: object) -> Assurance:
    return Assurance(
        acknowledges="the confirmation of the routes that lead to it",
        waits=True,
        passes_on=True,
        how="it confirms when its own routes have",
    )


def _create(setup: EngineSetup) -> Engine:
    _OTEL.need()
    # Imported here: the SDK takes a tenth of a second.
    from plugins.engines.traces.engine import TracesEngine

    return TracesEngine(setup.name, setup.options)
