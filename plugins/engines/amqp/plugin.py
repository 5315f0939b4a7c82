"""What this folder adds to the kernel."""

from __future__ import annotations

from kernel import hookimpl
from kernel.contracts.engine import Engine
from kernel.contracts.kinds import EngineKind, EngineSetup
from plugins.engines.amqp.options import AmqpOptions


@hookimpl
def register_engines() -> list[EngineKind]:
    """Offer the AMQP server."""
    return [
        EngineKind(
            name="amqp",
            summary="AMQP 0-9-1 server with a broker: exchanges, queues, bindings",
            options=AmqpOptions,
            create=_create,
        )
    ]


def _create(setup: EngineSetup) -> Engine:
    from plugins.engines.amqp.front_end import make_amqp_engine

    types = {name: kind.create for name, kind in setup.exchange_types.items()}
    return make_amqp_engine(setup.name, setup.options, types)
