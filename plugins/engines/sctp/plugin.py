"""The SCTP engine as a plugin."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kernel import hookimpl
from kernel.contracts.assurance import Assurance
from kernel.contracts.engine import Engine
from kernel.contracts.kinds import EngineKind, EngineSetup, Flow


@hookimpl
def register_engines() -> Iterable[EngineKind]:
    """Offer kind ``sctp``."""
    return [
        EngineKind(
            name="sctp",
            summary="SCTP (RFC 9260): many streams to a peer, none delays another; over UDP, IP, or the system's own",
            options="plugins.engines.sctp.options:SctpEngineOptions",
            create=_create,
            transports=("sctp",),
            flow=lambda options: Flow(alone=False),
            assures=_assures,
        )
    ]


def _assures(options: Any) -> Assurance:
    from plugins.engines.sctp.location import parse_sctp_address

    address, _ = parse_sctp_address(options.address)
    if address.protocol == "backend":
        return Assurance(
            acknowledges="CONFIRM of the backend protocol",
            waits=True,
            confirms="peer",
            how="the other kernel confirms it",
        )
    # The peer's SCTP acknowledges before its application has read anything.
    return Assurance(
        confirms="sent", how="its framing has no confirmations: the SCTP of the peer has its bytes"
    )


def _create(setup: EngineSetup) -> Engine:
    from plugins.engines.sctp.dialler import SctpDialler
    from plugins.engines.sctp.listener import SctpListener

    return SctpListener(setup) if setup.options.mode == "listen" else SctpDialler(setup)
