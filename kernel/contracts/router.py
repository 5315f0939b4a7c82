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
    # For the route. A router asks ``full``: this is only set when a writer has found the pipe full.
    blocked: bool
    """Whether the pipe is full and its writer was asked to wait."""
    suspended: bool
    """Whether it took nothing for the stall timeout: messages that find it full are dropped and counted."""

    def full(self) -> bool:
        """Whether a high mark is reached."""
        ...

    def load(self) -> int:
        """Return how many messages the reader has not taken; on a route that confirms, not confirmed."""
        ...


class Router(Interface):
    """Chooses pipes for each batch, in the writing thread.  It must not wait, and must not change messages.

    What a router raises counts as a failure of the engine that the route begins at.

    The kind of a router (``RouterKind``) says two more things: whether each message goes to one pipe only
    (``one_of_many``), and whether the router looks at messages (``by_content``).  A route goes by them when a
    pipe is full and when a destination leaves, so they have to be right.
    """

    # All methods are called by the thread of the source port, and never inside ``choose``: a router needs no
    # lock.
    def attach(self, outlet: Outlet, options: dict[str, Any]) -> None:
        """Add a pipe to the route; ``options`` are those of the port that reads it."""
        ...

    def detach(self, outlet: Outlet) -> None:
        """Remove a pipe from the route."""
        ...

    def choose(self, batch: Batch) -> Sequence[tuple[Outlet, Batch]]:
        """Return the pipes that get something, each with the batch or a part of it.

        The batch itself is shared, not copied.

        An empty answer means that nobody wants the batch; the route counts it as unrouted.
        """
        ...

    def subscribe(self, outlet: Outlet, pattern: str) -> None:
        """Add a subscription of the port that reads the pipe.  Routers that do not look at keys ignore it."""
        ...

    def unsubscribe(self, outlet: Outlet, pattern: str) -> None:
        """Take back a ``subscribe``."""
        ...


class Selective(Interface):
    """Optional for a router that looks at messages: says in advance whether anybody would get them.

    It is for sources that have to tell their peers that nobody wants a message (``Port.wants``).  A router
    without this method counts as one that finds a pipe for every message.
    """

    # Full pipes count, since a full reader is not an absent one: the message would wait for it.
    def wants(self, batch: Batch) -> bool:
        """Return whether ``choose`` would find a pipe now, full or not; changes nothing.

        The batch has no bodies if only the envelope is known yet.  Return True if the envelope alone does not
        decide.
        """
        ...


class Unselective(Interface):
    """Optional for a router that looks at messages: says that, for now, it need not.

    A port that leads to one reader only does not ask the router then.
    """

    def all_to_all(self) -> bool:
        """Return whether every reader gets every message.  Asked again when a subscription changes."""
        ...


class Peekable(Interface):
    """Optional for a router whose choice changes its state, as taking turns does: look without a change.

    It is for sources that ask in advance whether there is room for a batch.  Without it ``choose`` is called.
    """

    # A source may ask often before it sends: with ``choose`` each question would take somebody's turn.
    def peek(self, batch: Batch) -> Iterable[Outlet]:
        """Return the pipes to which ``choose`` might give something of the batch now; changes nothing."""
        ...
