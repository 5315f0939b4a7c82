"""AMQP 0-9-1 for ``kernel inspect``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kernel import hookimpl
from kernel.contracts.kinds import DissectorKind

PORT = 5672
START = b"\x00\x0a\x00\x0a"
"""Ids of connection.start, with which a server answers."""


@hookimpl
def register_dissectors() -> Iterable[DissectorKind]:
    """Offer ``amqp091``, recognised by the protocol header and its answer."""
    return [
        DissectorKind(
            name="amqp091",
            summary="AMQP 0-9-1: methods, messages, acknowledgements, how long confirms took",
            ports=frozenset((PORT,)),
            recognises=lambda first: (
                first[:5] == b"AMQP\0" or (first[:3] == b"\1\0\0" and first[7:11] == START)
            ),
            create=_create,
        )
    ]


def _create() -> Any:
    from plugins.dissectors.amqp091.dissector import AmqpDissector

    return AmqpDissector()
