"""Losses as an operator wants to hear of them: the first at once, and then what came together in a second."""

from __future__ import annotations

from collections.abc import Callable

from plugins.protocols.pgm.events import Event
from plugins.protocols.pgm.sequence import distance

EVERY = 1.0
"""Seconds between two reports of one source."""

Tell = Callable[[bytes, str], None]


class Losses:
    """Those of all sources.  ``tell`` gets a source and what it has lost."""

    def __init__(self, tell: Tell) -> None:
        self._tell = tell
        self._waiting: dict[bytes, list[Event]] = {}
        self._told: dict[bytes, float] = {}

    def add(self, event: Event) -> None:
        """Packets were lost."""
        self._waiting.setdefault(event.tsi, []).append(event)

    def next_deadline(self) -> float | None:
        """Return when ``handle_timeout`` has something to tell."""
        return min((self._told.get(tsi, 0.0) + EVERY for tsi in self._waiting), default=None)

    def handle_timeout(self, now: float) -> None:
        """Tell what is due."""
        for tsi in list(self._waiting):
            if tsi not in self._told or self._told[tsi] + EVERY <= now:
                self._told[tsi] = now
                self._tell(tsi, _text(self._waiting.pop(tsi)))

    def forget(self, tsi: bytes) -> None:
        """A source is gone: tell what is left to tell of it."""
        self._told.pop(tsi, None)
        waiting = self._waiting.pop(tsi, None)
        if waiting is not None:
            self._tell(tsi, _text(waiting))


def _text(events: list[Event]) -> str:
    ranges = [
        (event.first, event.last) for event in events if event.first is not None and event.last is not None
    ]
    count = sum(distance(first, last) + 1 for first, last in ranges)
    reasons = ", ".join(dict.fromkeys(event.detail for event in events))
    return f"{count} packets from {ranges[0][0]} to {ranges[-1][1]}: {reasons}"
