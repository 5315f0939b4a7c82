"""The hub plugin: one engine kind."""

from __future__ import annotations

from kernel import hookimpl
from kernel.contracts.engine import Engine
from kernel.contracts.kinds import EngineKind, EngineSetup


@hookimpl
def register_engines() -> list[EngineKind]:
    """Offer hubs."""
    from plugins.engines.hub.options import HubOptions

    return [
        EngineKind(
            name="hub",
            summary="passes on what it gets, and marks from whom: many connections reach each other through it",
            options=HubOptions,
            create=_create,
        )
    ]


def _create(setup: EngineSetup) -> Engine:
    from plugins.engines.hub.engine import Hub

    return Hub(setup.name, setup.options)
