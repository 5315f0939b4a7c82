"""The AMQP client as a plugin."""

from __future__ import annotations

from typing import Any

from kernel import hookimpl
from kernel.contracts.assurance import Assurance
from kernel.contracts.engine import Engine
from kernel.contracts.kinds import EngineKind, EngineSetup, Flow


@hookimpl
def register_engines() -> list[EngineKind]:
    """Register kind ``amqp-client``."""
    return [
        EngineKind(
            name="amqp-client",
            summary="AMQP 0-9-1 client: publishes with confirms, consumes with acknowledgements, reconnects",
            options="plugins.engines.amqp_client.options:AmqpClientOptions",
            create=_create,
            flow=lambda options: Flow(alone=False),
            assures=_assures,
        )
    ]


def _assures(options: Any) -> Assurance:
    return Assurance(
        # A consumer with ``no_ack`` has nothing to acknowledge.
        acknowledges=""
        if any(each.no_ack for each in options.consume)
        else "basic.ack to the server that it consumes from",
        waits=True,
        confirms="peer",
        how="the server confirms it",
    )


def _create(setup: EngineSetup) -> Engine:
    from plugins.engines.amqp_client.engine import AmqpClient

    return AmqpClient(setup.name, setup.options)
