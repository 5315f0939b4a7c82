"""The ØMQ engine as a plugin."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from kernel import hookimpl
from kernel.contracts.assurance import Assurance
from kernel.contracts.engine import Engine
from kernel.contracts.kinds import CommandKind, EngineKind, EngineSetup, Flow, Table

if TYPE_CHECKING:
    from kernel import Plan

CONNECTIONS = Table(
    name="connections",
    title="List the clients of a running system: who, from where, how much.",
    columns=("name", "client", "state", "peer_type", "version", "user", "subscriptions"),
)


@hookimpl
def register_engines() -> Iterable[EngineKind]:
    """Register kind ``zmq``."""
    return [
        EngineKind(
            name="zmq",
            summary="a socket of ØMQ (PUB, SUB, PUSH, PULL ...) that binds and connects",
            options="plugins.engines.zmq.options:ZmqOptions",
            create=_create,
            tables=(CONNECTIONS,),
            flow=_flow,
            assures=_assures,
        )
    ]


@hookimpl
def register_commands() -> Iterable[CommandKind]:
    """Offer ``kernel zmq-keys``."""
    return [CommandKind(name="zmq-keys", summary="Make a pair of keys for CURVE of ØMQ.", load=_keys)]


@hookimpl
def check_plan(plan: Plan) -> list[str]:
    """Complain about sockets that cannot ask their authenticator."""
    return [
        f"engine {engine.name!r}: its authenticator {name!r} {why}, so every login would be refused"
        for engine in plan.engines
        if engine.kind == "zmq" and (name := engine.options.get("authenticator", "")) and "://" not in name
        if (why := plan.why_not_asked(engine.name, name))
    ]


def _flow(options: Any) -> Flow:
    from plugins.protocols.zmtp.socket_types import SOCKET_TYPES

    kind = SOCKET_TYPES[options.type]
    return Flow(takes=kind.gives, gives=kind.takes, alone=False, why=f'type = "{options.type}"')


def _assures(options: Any) -> Assurance:
    return Assurance(
        confirms="sent",
        how="ZMTP has no confirmations: the operating system has its bytes",
        but="what no peer has subscribed to is dropped" if options.type in ("PUB", "XPUB", "RADIO") else "",
    )


def _keys() -> Any:
    from plugins.engines.zmq.keys_command import command

    return command


def _create(setup: EngineSetup) -> Engine:
    from plugins.engines.zmq.engine import ZmqEngine

    return ZmqEngine(setup)
