"""Where in a journal: an offset, a time, its beginning or its end."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from plugins.protocols.journal_format.errors import Damaged
    from plugins.protocols.journal_format.reader import JournalReader

Moment = int | str | datetime
"""An offset, ``earliest``, ``latest``, or a time with its zone."""


def moment_of(text: int | str) -> Moment:
    """Read an offset, a moment in ISO 8601 (UTC unless it says otherwise), ``earliest`` or ``latest``."""
    if isinstance(text, int) or text in ("earliest", "latest"):
        return text
    if text.isascii() and text.isdigit():
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(
            f"{text!r} is no offset, no moment (2026-11-21T12:00:00Z), and neither earliest nor latest"
        ) from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def offset_of(reader: JournalReader, moment: Moment) -> int:
    """Return the offset that a moment stands for at present."""
    if isinstance(moment, int):
        return moment
    if isinstance(moment, datetime):
        return reader.row_at(round(moment.timestamp() * 1_000_000), _leave_it)
    bounds = reader.bounds()
    return bounds.end if moment == "latest" else bounds.earliest


def _leave_it(damage: Damaged) -> None:
    """Who reads on is told."""
