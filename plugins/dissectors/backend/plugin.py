"""The backend protocol for ``kernel inspect``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kernel import hookimpl
from kernel.contracts.kinds import DissectorKind

GREETING = b"\xff\x81\0\0\0\0"
"""A control frame of type GREETING, and the upper half of its size."""


@hookimpl
def register_dissectors() -> Iterable[DissectorKind]:
    """Offer ``backend``. The format of ØMQ 0.x has no signature, and is not recognised by itself."""
    return [
        DissectorKind(
            name="backend",
            summary="the protocol between kernels: greetings, envelopes, messages, confirmations",
            recognises=lambda first: first.startswith(GREETING),
            create=_create,
        )
    ]


def _create() -> Any:
    from plugins.dissectors.backend.dissector import BackendDissector

    return BackendDissector()
