"""The web plugin: one engine kind."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernel import hookimpl
from kernel.contracts.engine import Engine
from kernel.contracts.errors import KernelError
from kernel.contracts.kinds import EngineKind, EngineSetup, Flow
from plugins.engines.web.options import WebEngineOptions

if TYPE_CHECKING:
    from kernel import Plan


@hookimpl
def register_engines() -> list[EngineKind]:
    """Offer pages over HTTP."""
    return [
        EngineKind(
            name="web",
            summary="pages over HTTP for operators and their tools: a live view, figures for Prometheus, health",
            options=WebEngineOptions,
            create=_create,
            flow=lambda options: Flow(takes=False, gives=False),
        )
    ]


@hookimpl
def check_plan(plan: Plan) -> list[str]:
    """Complain about a broker for the logins that a file does not have."""
    # In a plan made in Python the broker may be added later.
    if not plan.file:
        return []
    complaints = []
    for engine in plan.engines:
        name = engine.options.get("broker", "")
        if engine.kind == "web" and name and plan.engine(name) is None:
            known = ", ".join(other.name for other in plan.engines if other is not engine) or "none"
            complaints.append(
                f"engine {engine.name!r}: its broker {name!r} is no engine of this file; engines: {known}"
            )
    return complaints


def _create(setup: EngineSetup) -> Engine:
    try:
        from plugins.engines.web.engine import WebEngine
    except ModuleNotFoundError as error:
        if error.name not in ("h11", "prometheus_client"):
            raise
        raise KernelError(
            f"an engine of kind 'web' needs {error.name}: pip install messaging-kernel[web]"
        ) from None

    return WebEngine(setup)
