"""Fan-out: every pipe gets every message.  The batch is shared, not copied."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kernel.contracts.message import Batch
from kernel.contracts.router import Outlet


class FanOut:
    """Chooses all pipes."""

    def __init__(self) -> None:
        self._outlets: list[Outlet] = []

    def attach(self, outlet: Outlet, options: dict[str, Any]) -> None:
        """Add a pipe."""
        self._outlets.append(outlet)

    def detach(self, outlet: Outlet) -> None:
        """Remove a pipe."""
        self._outlets.remove(outlet)

    def choose(self, batch: Batch) -> Sequence[tuple[Outlet, Batch]]:
        """Give the batch to each pipe."""
        # Full ones as well: a pipe that blocks takes more than its marks and says that it is full, and one
        # that drops counts what it drops.
        return [(outlet, batch) for outlet in self._outlets]

    def subscribe(self, outlet: Outlet, pattern: str) -> None:
        """Do nothing: each pipe gets everything."""

    def unsubscribe(self, outlet: Outlet, pattern: str) -> None:
        """Do nothing: each pipe gets everything."""
