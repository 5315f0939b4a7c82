"""Reply: back to the port that the envelope names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kernel.contracts.message import Batch
from kernel.contracts.router import Outlet


class Reply:
    """The one whose port is called ``envelope.reply_to``.  Whoever answers sends under the envelope it got.

    Of several of one name it is the one that came last.
    """

    def __init__(self) -> None:
        self._outlets: dict[str, list[Outlet]] = {}

    def attach(self, outlet: Outlet, options: dict[str, Any]) -> None:
        """A port that may have asked something."""
        self._outlets.setdefault(outlet.target, []).append(outlet)

    def detach(self, outlet: Outlet) -> None:
        """Answers to it are unrouted from now on, and counted."""
        namesakes = self._outlets[outlet.target]
        namesakes.remove(outlet)
        if not namesakes:
            del self._outlets[outlet.target]

    def choose(self, batch: Batch) -> Sequence[tuple[Outlet, Batch]]:
        """The asker, or nobody when it has gone."""
        namesakes = self._outlets.get(batch.envelope.reply_to)
        return [(namesakes[-1], batch)] if namesakes else ()

    def wants(self, batch: Batch) -> bool:
        """Whether the asker is still there."""
        return batch.envelope.reply_to in self._outlets

    def subscribe(self, outlet: Outlet, pattern: str) -> None:
        """Nobody chooses here."""

    def unsubscribe(self, outlet: Outlet, pattern: str) -> None:
        """Nobody chooses here."""
