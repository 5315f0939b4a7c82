"""Round robin: each message goes to one pipe, the next that is not full (load balancing)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kernel.contracts.message import Batch
from kernel.contracts.router import Outlet
from kernel.routing.dealing import deal


class RoundRobin:
    """Chooses pipes in turn."""

    def __init__(self) -> None:
        self._outlets: list[Outlet] = []
        self._next = 0

    def attach(self, outlet: Outlet, options: dict[str, Any]) -> None:
        """Add a pipe."""
        self._outlets.append(outlet)

    def detach(self, outlet: Outlet) -> None:
        """Remove a pipe."""
        self._outlets.remove(outlet)

    def choose(self, batch: Batch) -> Sequence[tuple[Outlet, Batch]]:
        """Distribute the batch over the pipes that are not full; an empty answer if all are full."""
        ready = [outlet for outlet in self._outlets if not outlet.full()]
        if not ready:
            return ()
        count = len(batch.bodies)
        # Not the position in ``_outlets``: pipes become full and are skipped, so exact turns are kept only
        # while the same pipes are ready.
        first = self._next % len(ready)
        self._next = (first + count) % len(ready)
        return deal(batch, ready, first)

    def subscribe(self, outlet: Outlet, pattern: str) -> None:
        """Do nothing: subscriptions have no effect on this router."""

    def unsubscribe(self, outlet: Outlet, pattern: str) -> None:
        """Do nothing: subscriptions have no effect on this router."""
