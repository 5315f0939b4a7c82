"""The stream engine as a plugin."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from kernel import hookimpl
from kernel.contracts.assurance import Assurance
from kernel.contracts.engine import Engine
from kernel.contracts.kinds import EngineKind, EngineSetup, Flow, Table

if TYPE_CHECKING:
    from kernel import Plan

CONNECTIONS = Table(
    name="connections",
    title="List the clients of a running system: who, from where, how much.",
    columns=("name", "client", "state", "recv_oct", "send_oct", "send_pend", "messages_in", "messages_out"),
)
"""Protocols add columns of their own (``kernel.contracts.protocol.Observable``)."""


@hookimpl
def register_engines() -> Iterable[EngineKind]:
    """Register kind ``stream``."""
    return [
        EngineKind(
            name="stream",
            summary="hosts any stream protocol over tcp, unix or tls; dials or listens",
            options="plugins.engines.stream.options:StreamOptions",
            create=_create,
            tables=(CONNECTIONS,),
            flow=lambda options: Flow(alone=False),
            assures=_assures,
        )
    ]


def _assures(options: Any) -> Assurance:
    # Of the protocols of this distribution only this one has confirmations.
    if options.address.startswith("backend+"):
        return Assurance(
            acknowledges="CONFIRM of the backend protocol",
            waits=True,
            confirms="peer",
            how="the other kernel confirms it",
        )
    return Assurance(
        confirms="sent", how="its protocol has no confirmations: the operating system has its bytes"
    )


@hookimpl
def check_plan(plan: Plan) -> list[str]:
    """Complain about listeners that cannot ask their authenticator."""
    return [
        f"engine {engine.name!r}: its authenticator {name!r} {why}, so every login would be refused"
        for engine in plan.engines
        if engine.kind == "stream" and (name := engine.options.get("authenticator", ""))
        if (why := plan.why_not_asked(engine.name, name))
    ]


def _create(setup: EngineSetup) -> Engine:
    from kernel.hosting.address import parse_address
    from plugins.engines.stream.dialler import StreamDialler
    from plugins.engines.stream.inproc import InprocEngine
    from plugins.engines.stream.listener import StreamListener

    if parse_address(setup.options.address).transport == "inproc":
        return InprocEngine(setup)
    return StreamListener(setup) if setup.options.mode == "listen" else StreamDialler(setup)
