"""The STOMP client as a plugin."""

from __future__ import annotations

from typing import Any

from kernel import hookimpl
from kernel.contracts.assurance import Assurance
from kernel.contracts.engine import Engine
from kernel.contracts.kinds import EngineKind, EngineSetup, Flow


@hookimpl
def register_engines() -> list[EngineKind]:
    """Register kind ``stomp-client``."""
    return [
        EngineKind(
            name="stomp-client",
            summary="STOMP 1.0 to 1.2 client: publishes with receipts, subscribes with acknowledgements",
            options="plugins.engines.stomp_client.options:StompClientOptions",
            create=_create,
            # Without subscriptions nothing comes from the broker.
            flow=lambda options: Flow(gives=bool(options.subscriptions), alone=False),
            assures=_assures,
        )
    ]


def _assures(options: Any) -> Assurance:
    return Assurance(
        acknowledges="ACK to the broker that it subscribes to",
        waits=True,
        confirms="peer",
        how="the broker sends a receipt",
    )


def _create(setup: EngineSetup) -> Engine:
    from plugins.engines.stomp_client.engine import StompClientEngine

    return StompClientEngine(setup.name, setup.options)
