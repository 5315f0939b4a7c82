"""PGM for ``kernel inspect``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kernel import hookimpl
from kernel.contracts.kinds import DissectorKind


@hookimpl
def register_dissectors() -> Iterable[DissectorKind]:
    """Offer ``pgm``: over IP (113), or over UDP at any port."""
    return [
        DissectorKind(
            name="pgm",
            summary="reliable multicast (RFC 3208): losses, requests, repairs and how long they took",
            carries="datagram",
            ip_protocol=113,
            recognises=_recognises,
            create=_create,
        )
    ]


def _recognises(first: bytes) -> bool:
    from plugins.dissectors.pgm.recognition import is_pgm

    return is_pgm(first)


def _create() -> Any:
    from plugins.dissectors.pgm.dissector import PgmDissector

    return PgmDissector()
