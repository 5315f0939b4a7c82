"""Round robin: each message to one pipe, the next that can take more (load balancing)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kernel.contracts.message import Batch
from kernel.contracts.router import Outlet
from kernel.routing.dealing import deal


class RoundRobin:
    """One of them, in turn.  A batch is dealt out in strides: one slice a pipe, not one step a message."""

    def __init__(self) -> None:
        self._outlets: list[Outlet] = []
        self._next = 0

    def attach(self, outlet: Outlet, options: dict[str, Any]) -> None:
        """One more to share the load."""
        self._outlets.append(outlet)

    def detach(self, outlet: Outlet) -> None:
        """One less to share the load."""
        self._outlets.remove(outlet)

    def choose(self, batch: Batch) -> Sequence[tuple[Outlet, Batch]]:
        """Deal the batch out to the pipes that are not full; nobody when all are."""
        ready = [outlet for outlet in self._outlets if not outlet.full()]
        if not ready:
            return ()
        count = len(batch.bodies)
        first = self._next % len(ready)
        self._next = (first + count) % len(ready)
        return deal(batch, ready, first)

    def subscribe(self, outlet: Outlet, pattern: str) -> None:
        """Nobody chooses here."""

    def unsubscribe(self, outlet: Outlet, pattern: str) -> None:
        """Nobody chooses here."""
