"""The STOMP client as a plugin."""

from __future__ import annotations

from kernel import hookimpl
from kernel.contracts.engine import Engine
from kernel.contracts.kinds import EngineKind, EngineSetup, Flow


@hookimpl
def register_engines() -> list[EngineKind]:
    """Register kind ``stomp-client``."""
    from plugins.engines.stomp_client.options import StompClientOptions

    return [
        EngineKind(
            name="stomp-client",
            summary="STOMP 1.0 to 1.2 client: publishes with receipts, subscribes with acknowledgements",
            options=StompClientOptions,
            create=_create,
            # Without subscriptions nothing comes from the broker.
            flow=lambda options: Flow(gives=bool(options.subscriptions), alone=False),
        )
    ]


def _create(setup: EngineSetup) -> Engine:
    from plugins.engines.stomp_client.engine import StompClientEngine

    return StompClientEngine(setup.name, setup.options)
