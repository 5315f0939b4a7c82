"""The hub plugin: one engine kind."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernel import hookimpl
from kernel.contracts.assurance import Assurance
from kernel.contracts.engine import Engine
from kernel.contracts.kinds import EngineKind, EngineSetup
from kernel.contracts.rehearsing import Rehearsal

if TYPE_CHECKING:
    from plugins.engines.hub.options import HubOptions


@hookimpl
def register_engines() -> list[EngineKind]:
    """Offer hubs."""
    return [
        EngineKind(
            name="hub",
            summary="passes on what it gets, and marks from whom: many connections reach each other through it",
            options="plugins.engines.hub.options:HubOptions",
            create=_create,
            assures=_assures,
            rehearse=lambda plan: Rehearsal(plan=plan),
        )
    ]


def _assures(options: HubOptions) -> Assurance:
    return Assurance(
        acknowledges="the confirmation of the routes that lead to it",
        waits=True,
        passes_on=True,
        how="it confirms when its own routes have",
    )


def _create(setup: EngineSetup) -> Engine:
    from plugins.engines.hub.engine import Hub

    return Hub(setup.name, setup.options)
