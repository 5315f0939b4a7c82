"""Round robin: each message goes to one pipe, the least loaded one that is not full (load balancing)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kernel.contracts.message import Batch
from kernel.contracts.router import Outlet
from kernel.routing.dealing import deal


class RoundRobin:
    """Chooses the pipe whose reader has the fewest messages before it.

    In turn among those with equally many.
    """

    def __init__(self) -> None:
        self._outlets: list[Outlet] = []
        self._turn = 0

    def attach(self, outlet: Outlet, options: dict[str, Any]) -> None:
        """Add a pipe."""
        self._outlets.append(outlet)

    def detach(self, outlet: Outlet) -> None:
        """Remove a pipe."""
        self._outlets.remove(outlet)

    def choose(self, batch: Batch) -> Sequence[tuple[Outlet, Batch]]:
        """Distribute the batch over the pipes that are not full; an empty answer if all are full."""
        # ``full`` and not ``blocked``, which is only set when a writer has found the pipe full.
        ready = [outlet for outlet in self._outlets if not outlet.full()]
        if not ready:
            # Here it does not mean that nobody wants the batch: the route looks itself whether all are full,
            # and keeps the batch then (``Route._all_full``).
            return ()
        chosen, self._turn = deal(batch, ready, self._turn)
        return chosen

    def subscribe(self, outlet: Outlet, pattern: str) -> None:
        """Do nothing: subscriptions have no effect on this router."""

    def unsubscribe(self, outlet: Outlet, pattern: str) -> None:
        """Do nothing: subscriptions have no effect on this router."""
