"""What this folder adds to the kernel."""

from __future__ import annotations

from typing import Any

from kernel import hookimpl
from kernel.contracts.engine import Engine
from kernel.contracts.kinds import CommandKind, EngineKind, EngineSetup, KindGroup
from plugins.engines.amqp.options import AmqpOptions
from plugins.engines.amqp.tables import CLIENT_TABLES
from plugins.engines.broker.contract import EXCHANGE_TYPES
from plugins.engines.broker.host.tables import BROKER_TABLES


@hookimpl
def register_kind_groups() -> list[KindGroup[Any]]:
    """Let other plugins bring types of exchange."""
    return [EXCHANGE_TYPES]


@hookimpl
def register_engines() -> list[EngineKind]:
    """Offer the AMQP server."""
    return [
        EngineKind(
            name="amqp",
            summary="AMQP 0-9-1 server with a broker: exchanges, queues, bindings",
            options=AmqpOptions,
            create=_create,
            tables=(*BROKER_TABLES, *CLIENT_TABLES),
        )
    ]


@hookimpl
def register_commands() -> list[CommandKind]:
    """Offer ``kernel definitions``."""
    return [
        CommandKind(
            name="definitions",
            summary="Export or import exchanges, queues, bindings and users in RabbitMQ's JSON form.",
            load=_definitions,
        )
    ]


def _create(setup: EngineSetup) -> Engine:
    from plugins.engines.amqp.front_end import make_amqp_engine

    types = {name: kind.create for name, kind in setup.kinds(EXCHANGE_TYPES).items()}
    return make_amqp_engine(setup.name, setup.options, types)


def _definitions() -> Any:
    from plugins.engines.amqp.commands.definitions import command

    return command
