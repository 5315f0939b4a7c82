"""What this folder adds to the kernel."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from kernel import hookimpl
from kernel.contracts.engine import Engine
from kernel.contracts.kinds import EngineKind, EngineSetup, KindGroup, WalkKind
from plugins.engines.broker.contract import (
    BROKER_ASKED,
    BROKER_OPERATIONS,
    BROKER_TABLES,
    CLIENT_TABLES,
    EXCHANGE_TYPES,
    FRONT_ENDS,
    FrontEndKind,
    FrontEndSetup,
    broker_assures,
    broker_mistakes,
    broker_mistakes_in_files,
    engines_of_shards,
    rehearse_broker,
)

if TYPE_CHECKING:
    from kernel.contracts.walk import Walk
    from plugins.engines.broker.contract import FrontEnd
    from plugins.protocols.amqp091.stored import StoredProperties


@hookimpl
def register_kind_groups() -> list[KindGroup[Any]]:
    """Let other plugins bring types of exchange and front ends; the broker's own plugin may not be loaded."""
    return [EXCHANGE_TYPES, FRONT_ENDS]


@hookimpl
def register_front_ends() -> list[FrontEndKind]:
    """Offer AMQP to brokers with several listeners."""
    return [
        FrontEndKind(
            name="amqp",
            summary="AMQP 0-9-1: RabbitMQ's clients",
            options="plugins.engines.amqp.options:AmqpListenerOptions",
            create=_create_front_end,
            codec=_codec,
        )
    ]


@hookimpl
def register_engines() -> list[EngineKind]:
    """Offer the AMQP server."""
    return [
        EngineKind(
            name="amqp",
            summary="AMQP 0-9-1 server with a broker: exchanges, queues, bindings; short for a broker with one listener",
            options="plugins.engines.amqp.options:AmqpOptions",
            create=_create,
            tables=(*BROKER_TABLES, *CLIENT_TABLES),
            operations=BROKER_OPERATIONS,
            asked=BROKER_ASKED,
            assures=broker_assures,
            mistakes=broker_mistakes,
            mistakes_in_files=broker_mistakes_in_files,
            rehearse=rehearse_broker,
            shards=engines_of_shards,
            live_options=("users", "policies"),
        )
    ]


@hookimpl
def register_walks() -> list[WalkKind]:
    """Offer the walks of a publish."""
    return [
        WalkKind(
            name="amqp",
            summary="from an AMQP publisher to an application in another kernel",
            load=_walk_to_application,
        ),
        WalkKind(
            name="durable", summary="a persistent AMQP publish until it is confirmed", load=_walk_durable
        ),
    ]


def _walk_to_application() -> Walk:
    from plugins.engines.amqp.walks import to_application

    return to_application()


def _walk_durable() -> Walk:
    from plugins.engines.amqp.walks import durable

    return durable()


def _create(setup: EngineSetup) -> Engine:
    from plugins.engines.amqp.front_end import make_amqp_engine
    from plugins.engines.broker.public import codecs_of

    types = {name: kind.create for name, kind in setup.kinds(EXCHANGE_TYPES).items()}
    return make_amqp_engine(setup.name, setup.options, types, partial(codecs_of, setup), setup.system)


def _create_front_end(setup: FrontEndSetup) -> FrontEnd:
    from plugins.engines.amqp.front_end import make_front_end

    return make_front_end(setup.engine, setup.options)


def _codec() -> StoredProperties:
    from plugins.protocols.amqp091.stored import StoredProperties

    return StoredProperties()
