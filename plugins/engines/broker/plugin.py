"""The broker as a plugin: an engine that serves the protocols of its front ends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from kernel import hookimpl
from kernel.contracts.engine import Engine
from kernel.contracts.errors import KernelError
from kernel.contracts.kinds import ApiKind, CommandKind, EngineKind, EngineSetup, KindGroup, KindTables
from plugins.engines.broker.contract import EXCHANGE_TYPES, FRONT_ENDS, FrontEndKind, FrontEndSetup
from plugins.engines.broker.host.tables import (
    BROKER_ASKED,
    BROKER_OPERATIONS,
    BROKER_TABLES,
    CLIENT_TABLES,
    broker_assures,
    broker_mistakes,
    broker_mistakes_in_files,
    engines_of_shards,
    rehearse_broker,
    shard_name,
)

if TYPE_CHECKING:
    from kernel import EnginePlan, Plan
    from kernel.contracts.api import ApiSetup
    from plugins.engines.broker.front_end import FrontEnd
    from plugins.engines.broker.host.engine import BrokerEngine
    from plugins.engines.broker.local.client import BrokerClient


@hookimpl
def register_kind_groups() -> list[KindGroup[Any]]:
    """Let other plugins register types of exchange and front ends."""
    return [EXCHANGE_TYPES, FRONT_ENDS]


@hookimpl
def register_engines() -> list[EngineKind]:
    """Offer the broker, kind ``broker``.  Kind ``amqp`` is the short form, of the AMQP front end."""
    return [
        EngineKind(
            name="broker",
            summary="a broker with exchanges, queues and bindings, and a listener for each of several protocols",
            options="plugins.engines.broker.host.options:ManyListenersOptions",
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
            kind_tables=(KindTables(field="listeners", key="protocol", group=FRONT_ENDS),),
        ),
        EngineKind(
            name="test-broker",
            summary="a broker for tests, which records what passes and fails on demand; it listens for every protocol",
            options="plugins.engines.broker.host.options:ManyListenersOptions",
            create=_create_for_tests,
            tables=(*BROKER_TABLES, *CLIENT_TABLES),
            operations=(*BROKER_OPERATIONS, "fault"),
            asked=BROKER_ASKED,
            assures=broker_assures,
            mistakes=broker_mistakes,
            mistakes_in_files=broker_mistakes_in_files,
            rehearse=rehearse_broker,
            shards=engines_of_shards,
            live_options=("users", "policies"),
            kind_tables=(KindTables(field="listeners", key="protocol", group=FRONT_ENDS),),
        ),
    ]


@hookimpl
def register_apis() -> list[ApiKind]:
    """Offer clients of a broker in the same kernel, without a socket."""
    return [
        ApiKind(
            name="broker-client",
            summary="a broker of the same kernel: declare, publish, consume and acknowledge without a socket",
            options="plugins.engines.broker.host.options:BrokerClientOptions",
            create=_create_client,
            routed=False,
        )
    ]


@hookimpl
def register_commands() -> list[CommandKind]:
    """Offer the commands that change a running broker."""
    return [
        CommandKind(
            name="definitions",
            summary="Export or import exchanges, queues, bindings and users in RabbitMQ's JSON form.",
            load=_definitions,
        ),
        CommandKind(name="policy", summary="Set or delete a policy of a running broker.", load=_policy),
        CommandKind(
            name="connection",
            summary="Close the connection of a client of a running broker.",
            load=_connection,
        ),
        CommandKind(name="queue", summary="Purge or delete a queue of a running broker.", load=_queue),
        CommandKind(
            name="user",
            summary="Add, change or delete a user of a running broker, and what the user may do.",
            load=_user,
        ),
    ]


@hookimpl
def check_plan(plan: Plan) -> list[str]:
    """Complain about clients of a broker, or of a virtual host, that a file does not have.

    Or that is not in their process.
    """
    return [
        f"engine {engine.name!r}: {complaint}"
        for engine in plan.engines
        if engine.kind == "broker-client" and (complaint := _complaint(engine, plan))
    ]


def _complaint(client: EnginePlan, plan: Plan) -> str:
    name, vhost = client.options.get("broker", ""), client.options.get("vhost", "/")
    broker = plan.engine(name)
    if broker is None:
        # In a plan made in Python the broker may be added later.
        if not plan.file:
            return ""
        known = ", ".join(engine.name for engine in plan.engines if engine is not client) or "none"
        return f"its broker {name!r} is no engine of this file; engines: {known}"
    thread = broker.options.get("shards", {}).get(vhost)
    process = plan.process_of(name) if thread is None else plan.process_named(thread)
    if process:
        return f"its broker {name!r} is in process {process!r}, and this client needs it in the process of the application"
    if not plan.file:
        return ""
    if thread is not None:
        return f"its virtual host {vhost!r} is in thread {thread!r}; name the engine {shard_name(name, thread)!r}"
    vhosts = broker.options.get("vhosts", ("/",))
    # What a broker imports or has stored may have more of them.
    if vhost in vhosts or broker.options.get("definitions") or broker.options.get("data_dir"):
        return ""
    return f"its broker {name!r} has no virtual host {vhost!r}; its vhosts: {', '.join(vhosts)}"


def _create_client(setup: ApiSetup) -> BrokerClient:
    # Imported here and in ``_create``: the module of a plugin is imported also if nobody uses it.
    from plugins.engines.broker.host.running_broker import RunningBroker, running_broker_key
    from plugins.engines.broker.local.client import BrokerClient

    # The broker may be made later than its client.  The one that comes first makes the entry.
    key = running_broker_key(setup.options.broker)
    running: RunningBroker = setup.rendezvous.setdefault(key, RunningBroker())
    return BrokerClient(running, setup.name, setup.options, setup.waiting)


def _definitions() -> Any:
    from plugins.engines.broker.commands.definitions import command

    return command


def _connection() -> Any:
    from plugins.engines.broker.commands.connection import command

    return command


def _policy() -> Any:
    from plugins.engines.broker.commands.policy import command

    return command


def _queue() -> Any:
    from plugins.engines.broker.commands.queue import command

    return command


def _user() -> Any:
    from plugins.engines.broker.commands.user import command

    return command


def _create(setup: EngineSetup) -> Engine:
    from plugins.engines.broker.host.engine import BrokerEngine

    return _make(BrokerEngine, setup, setup.options.listeners)


def _create_for_tests(setup: EngineSetup) -> Engine:
    from plugins.engines.broker.faults.engine import FaultyEngine

    everywhere = [{"protocol": name, "address": "127.0.0.1:0"} for name in setup.kinds(FRONT_ENDS)]
    return _make(FaultyEngine, setup, setup.options.listeners or everywhere)


def _make(engine: type[BrokerEngine], setup: EngineSetup, listeners: Sequence[Mapping[str, Any]]) -> Engine:
    from plugins.engines.broker.host.codecs import codecs_of

    # The options of a listener depend on its protocol, so they are read here and not with those of the
    # engine.  The engine makes the front ends, since they need it.
    kinds = setup.kinds(FRONT_ENDS)
    front_ends = []
    for number, listener in enumerate(listeners):
        options = dict(listener)
        protocol = options.pop("protocol", None)
        kind = kinds.get(protocol)
        if kind is None:
            known = ", ".join(sorted(kinds)) or "none"
            raise KernelError(f"listeners[{number}] has protocol {protocol!r}; installed front ends: {known}")
        try:
            read = msgspec.convert(options, kind.options_class(), strict=False)
        except msgspec.ValidationError as error:
            raise KernelError(f"listeners[{number}]: {error}") from None
        front_ends.append(partial(_create_front_end, number, kind, read))
    types = {name: kind.create for name, kind in setup.kinds(EXCHANGE_TYPES).items()}
    return engine(setup.name, setup.options, front_ends, types, partial(codecs_of, setup), setup.system)


def _create_front_end(number: int, kind: FrontEndKind, options: Any, engine: BrokerEngine) -> FrontEnd:
    try:
        return kind.create(FrontEndSetup(engine=engine, options=options))
    except ValueError as error:
        raise KernelError(f"listeners[{number}]: {error}") from None
