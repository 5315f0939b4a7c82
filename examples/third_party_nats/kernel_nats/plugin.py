"""The NATS protocol as a plugin.  Light: what it needs to work is imported when it is first used."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kernel import hookimpl
from kernel.contracts.kinds import ProtocolKind, Side
from kernel_nats.options import NatsOptions

REQUIRES_API_LEVEL = 1


@hookimpl
def register_protocols() -> Iterable[ProtocolKind]:
    """Offer ``nats+tcp://``, for listeners."""
    return [
        ProtocolKind(
            name="nats",
            summary="clients of NATS: publish, subscribe, queue groups, requests",
            options=NatsOptions,
            create=_create,
        ),
    ]


def _create(options: Any, side: Side) -> Any:
    if side == "client":
        raise ValueError('nats is the server\'s side only: mode = "listen"')
    from kernel_nats.connection import NatsConnection

    return NatsConnection(options)
