"""Points in a journal as users give them: an offset, a time, ``earliest`` or ``latest``."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from plugins.protocols.journal_format.errors import Damaged
    from plugins.protocols.journal_format.reader import JournalReader

Moment = int | str | datetime
"""An offset, ``earliest``, ``latest``, or a time with a time zone."""


def moment_of(text: int | str) -> Moment:
    """Parse an offset, a time in ISO 8601 (UTC if it has no zone), ``earliest`` or ``latest``.

    Raises ``ValueError``.
    """
    if isinstance(text, int) or text in ("earliest", "latest"):
        return text
    # ``isdigit`` alone is true for digits of other scripts and superscripts, which ``int`` may refuse.
    if text.isascii() and text.isdigit():
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(
            f"{text!r} is neither an offset nor a time (2026-11-21T12:00:00Z) nor earliest nor latest"
        ) from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def offset_of(reader: JournalReader, moment: Moment) -> int:
    """Return the offset of a moment: for a time, the first row that was received then or later."""
    if isinstance(moment, int):
        return moment
    if isinstance(moment, datetime):
        # ``timestamp()`` is a float of seconds.  It is exact to a microsecond only when it is rounded.
        return reader.row_at(round(moment.timestamp() * 1_000_000), _ignore_damage)
    bounds = reader.bounds()
    return bounds.end if moment == "latest" else bounds.earliest


def _ignore_damage(damage: Damaged) -> None:
    """Ignore damage in the search for an offset: whoever reads the rows afterwards gets it reported."""
