"""Reply: back to the port that the envelope names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kernel.contracts.message import Run
from kernel.contracts.router import Outlet


class Reply:
    """The one whose port is called ``envelope.reply_to``.  Whoever answers sends under the envelope it got."""

    def __init__(self) -> None:
        self._outlets: dict[str, Outlet] = {}

    def attach(self, outlet: Outlet, options: dict[str, Any]) -> None:
        """A port that may have asked something."""
        self._outlets[outlet.target] = outlet

    def detach(self, outlet: Outlet) -> None:
        """Answers to it are unrouted from now on, and counted."""
        self._outlets.pop(outlet.target, None)

    def choose(self, run: Run) -> Sequence[tuple[Outlet, Run]]:
        """The asker, or nobody when it has gone."""
        outlet = self._outlets.get(run.envelope.reply_to)
        return [(outlet, run)] if outlet is not None else ()

    def subscribe(self, outlet: Outlet, pattern: str) -> None:
        """Nobody chooses here."""

    def unsubscribe(self, outlet: Outlet, pattern: str) -> None:
        """Nobody chooses here."""
