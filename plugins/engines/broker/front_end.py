"""Front end: one protocol at the door of a broker, and what the broker wants of it.

A broker engine has one or more front ends.  All of them, their clients and the broker itself live in one thread, and so
nothing here has a lock.  A *turn* is what one readable socket, one timer or one batch from the routes brings: a front end
that has called operations of the broker says which of its clients have something to write (``BrokerEngine.is_busy``) and
ends the turn (``BrokerEngine.finish_turn``), which writes to each of those clients once.
"""

from __future__ import annotations

from typing import Any
from typing import Protocol as Interface


class Client(Interface):
    """One client of a front end: a connection and its session.  Called in the broker's thread; may not wait or raise."""

    peer: str
    """Where it comes from, as an operator sees it."""

    @property
    def bytes_in(self) -> int:
        """How many bytes it has sent."""
        ...

    @property
    def bytes_out(self) -> int:
        """How many bytes there were for it, written or not."""
        ...

    @property
    def messages_in(self) -> int:
        """How many messages it has published."""
        ...

    @property
    def messages_out(self) -> int:
        """How many messages were delivered to it."""
        ...

    @property
    def unwritten(self) -> int:
        """How many bytes its socket has not taken yet."""
        ...

    @property
    def unacked_bytes(self) -> int:
        """About how many bytes the bodies have that it was handed and has not acknowledged."""
        ...

    @property
    def published(self) -> bool:
        """Whether it has published in this turn.  Then it may be held back or blocked."""
        ...

    @property
    def confirming(self) -> bool:
        """Whether it waits for a confirmation that the routes may bring: then their news make it busy."""
        ...

    def finish(self, now: float) -> None:
        """The turn ends: encode and write what it brought.  Called if the client was busy."""
        ...

    def hold_back(self) -> None:
        """The routes are full, or the disk is behind: do not read from it until ``go_on``."""
        ...

    def go_on(self) -> None:
        """The routes have room and the disk has caught up."""
        ...

    def block(self, reason: str) -> None:
        """An alarm is raised: tell it, if the protocol can, and do not read from it until ``unblock``."""
        ...

    def unblock(self) -> None:
        """The last alarm is over."""
        ...

    def hang_up(self, reason: str) -> None:
        """Say good-bye as far as it goes at once, and end: the broker stops, or an operator wants it."""
        ...

    def inspect(self, what: str) -> list[dict[str, Any]]:
        """Return rows for an operator: ``connections`` (one), ``consumers`` and others; none of an unknown sort."""
        ...


class FrontEnd(Interface):
    """What a kind of front end creates for one listener.  Called in the broker's thread."""

    def start(self) -> str:
        """Listen; return the address.  The broker is ready.  ``OSError``: the address cannot be had."""
        ...

    def stop(self) -> None:
        """Accept nobody any more.  The broker then hangs up on the clients that are left."""
        ...

    def statistics(self) -> dict[str, int]:
        """Counters of this moment: ``accepted`` and ``refused`` connections.  Any thread."""
        ...
