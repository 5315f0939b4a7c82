"""The backend protocol as a plugin."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kernel import hookimpl
from kernel.contracts.kinds import ProtocolKind, Side
from plugins.protocols.backend.options import BackendOptions


@hookimpl
def register_protocols() -> Iterable[ProtocolKind]:
    """Register the protocol of addresses such as ``backend+tcp://``."""
    return [
        ProtocolKind(
            name="backend",
            summary="size and body as in ØMQ 0.x, with envelopes and confirmations between kernels",
            options=BackendOptions,
            create=_create,
        )
    ]


def _create(options: Any, side: Side) -> Any:
    from plugins.protocols.backend.connection import BackendConnection

    return BackendConnection(options, side)
