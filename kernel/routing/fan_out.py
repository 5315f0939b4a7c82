"""Fan-out: every pipe gets every message, the same body object."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kernel.contracts.message import Batch
from kernel.contracts.router import Outlet


class FanOut:
    """All of them."""

    def __init__(self) -> None:
        self._outlets: list[Outlet] = []

    def attach(self, outlet: Outlet, options: dict[str, Any]) -> None:
        """One more copy."""
        self._outlets.append(outlet)

    def detach(self, outlet: Outlet) -> None:
        """One copy less."""
        self._outlets.remove(outlet)

    def choose(self, batch: Batch) -> Sequence[tuple[Outlet, Batch]]:
        """The batch itself for everybody."""
        return [(outlet, batch) for outlet in self._outlets]

    def subscribe(self, outlet: Outlet, pattern: str) -> None:
        """Everybody gets everything anyhow."""

    def unsubscribe(self, outlet: Outlet, pattern: str) -> None:
        """Everybody gets everything anyhow."""
