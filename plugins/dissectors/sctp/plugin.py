"""SCTP for ``kernel inspect``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kernel import hookimpl
from kernel.contracts.kinds import DissectorKind

ENCAPSULATION_PORT = 9899
"""RFC 6951, 5.1."""


@hookimpl
def register_dissectors() -> Iterable[DissectorKind]:
    """Offer ``sctp``: over IP (132), or over UDP."""
    return [
        DissectorKind(
            name="sctp",
            summary="associations (RFC 9260): chunks, retransmissions, gaps and round trips",
            carries="datagram",
            ip_protocol=132,
            ports=frozenset((ENCAPSULATION_PORT,)),
            create=_create,
        )
    ]


def _create() -> Any:
    from plugins.dissectors.sctp.dissector import SctpDissector

    return SctpDissector()
