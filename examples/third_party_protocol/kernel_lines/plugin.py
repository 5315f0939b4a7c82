"""The lines protocol as a plugin.  Light: what it needs to work is imported when it is first used."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kernel import hookimpl
from kernel.contracts.kinds import ProtocolKind, Side
from kernel_lines.options import LinesOptions

REQUIRES_API_LEVEL = 1


@hookimpl
def register_protocols() -> Iterable[ProtocolKind]:
    """Offer ``lines+tcp://`` and its like."""
    return [
        ProtocolKind(name="lines", summary="each line is a message", options=LinesOptions, create=_create),
    ]


def _create(options: Any, side: Side) -> Any:
    from kernel_lines.connection import LinesConnection

    return LinesConnection(options)
