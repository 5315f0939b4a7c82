"""Router: which of a route's pipes get a batch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any
from typing import Protocol as Interface

from kernel.contracts.message import Batch


class Outlet(Interface):
    """One outgoing pipe, as a router sees it."""

    target: str
    """The name of the port at the other end."""
    blocked: bool
    """Whether the pipe is full and its writer was asked to wait."""
    suspended: bool
    """Whether its writer waited for the stall timeout: what meets it full is dropped and counted."""

    def full(self) -> bool:
        """Whether a high mark is reached."""
        ...


class Router(Interface):
    """Decides, in the writing thread, once a batch; it never waits and touches no message.

    A router that raises is treated like an engine that raises: its route is taken down, by name.
    """

    def attach(self, outlet: Outlet, options: dict[str, Any]) -> None:
        """A pipe joined the route; ``options`` are what its far port asked for (``subscribe`` ...)."""
        ...

    def detach(self, outlet: Outlet) -> None:
        """A pipe left the route."""
        ...

    def choose(self, batch: Batch) -> Sequence[tuple[Outlet, Batch]]:
        """Return who gets what of ``batch``: the batch itself (shared, not copied) or slices of it.

        An empty answer means that nobody wants it; the route counts it as unrouted.
        """
        ...

    def subscribe(self, outlet: Outlet, pattern: str) -> None:
        """The far end wants messages whose key matches.  Routers that choose otherwise ignore it."""
        ...

    def unsubscribe(self, outlet: Outlet, pattern: str) -> None:
        """The far end no longer wants them."""
        ...


class Selective(Interface):
    """Optional for a router that looks at messages: to say beforehand whether anybody would get them.

    Sources that have to tell their peers "nobody wants this" ask (``Port.wants``).  A router without this method is taken
    to find somebody for everything.
    """

    def wants(self, batch: Batch) -> bool:
        """Whether ``choose`` would find somebody now, full or not; changes nothing.

        The batch has no bodies when only the envelope is known yet; then True if the envelope alone does not decide.
        """
        ...


class Peekable(Interface):
    """Optional for a router whose choice changes what it chooses next, as a turn does: to look without changing it.

    Sources ask beforehand whether there is room for a batch.  A router without this method is asked to ``choose``.
    """

    def peek(self, batch: Batch) -> Iterable[Outlet]:
        """Return whom ``choose`` would give something of the batch now; changes nothing."""
        ...
