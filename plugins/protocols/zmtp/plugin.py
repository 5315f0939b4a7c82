"""ZMTP as a plugin."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kernel import hookimpl
from kernel.contracts.kinds import ProtocolKind, Side


@hookimpl
def register_protocols() -> Iterable[ProtocolKind]:
    """Register the protocol of addresses such as ``zmtp+tcp://``."""
    return [
        ProtocolKind(
            name="zmtp",
            summary="ZMTP 3.1 of ØMQ (libzmq, pyzmq), one connection; engine kind zmq has whole sockets",
            options="plugins.protocols.zmtp.options:ZmtpOptions",
            create=_create,
        )
    ]


def _create(options: Any, side: Side) -> Any:
    from plugins.protocols.zmtp.connection import connection_of

    return connection_of(options, side)
