"""ZMTP for ``kernel inspect``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kernel import hookimpl
from kernel.contracts.kinds import DissectorKind


@hookimpl
def register_dissectors() -> Iterable[DissectorKind]:
    """Offer ``zmtp``, recognised by its signature. Version 1.0 has none, and must be named with ``--as``."""
    return [
        DissectorKind(
            name="zmtp",
            summary="the protocol of ØMQ (ZMTP 1.0, 2.0, 3.x): greetings, commands, messages",
            recognises=lambda first: (
                len(first) >= 10 and first[0] == 0xFF and first[1] == 0 and first[9] == 0x7F
            ),
            create=_create,
        )
    ]


def _create() -> Any:
    from plugins.dissectors.zmtp.dissector import ZmtpDissector

    return ZmtpDissector()
