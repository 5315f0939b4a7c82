"""The backend protocol as a plugin."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kernel import hookimpl
from kernel.contracts.kinds import ProtocolKind, Side

_LINK_OPTIONS = {
    "format": "extended",
    # Both ends are processes of one kernel, which sees when one of them ends.
    "heartbeat": 0.0,
    "handshake": 30.0,
    # What is on its way was accepted by a pipe already, whose limits hold.
    "max_message": 1 << 40,
    "max_subscriptions": 1 << 24,
    "subscription_bytes": 1 << 32,
}


@hookimpl
def register_protocols() -> Iterable[ProtocolKind]:
    """Register the protocol of addresses such as ``backend+tcp://``."""
    return [
        ProtocolKind(
            name="backend",
            summary="size and body as in ØMQ 0.x, with envelopes and confirmations between kernels",
            options="plugins.protocols.backend.options:BackendOptions",
            create=_create,
            link_options=_LINK_OPTIONS,
        )
    ]


def _create(options: Any, side: Side) -> Any:
    from plugins.protocols.backend.connection import BackendConnection

    return BackendConnection(options, side)
