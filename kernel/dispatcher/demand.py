"""Demand: the subscriptions of all readers of a port's messages.

The port's owner is told of each change (``on_asked``) and can look up the sums (``counts``).  So it can
subscribe at its own source when the first reader subscribes, and unsubscribe when the last one does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from kernel.contracts.groups import without_group
from kernel.contracts.router import Outlet


class Demand:
    """Subscriptions by pipe, and their sums.

    Empty if the owner has no ``on_asked``.  The thread of the port.
    """

    __slots__ = ("_of", "_tell", "counts")

    def __init__(self, owner: object) -> None:
        # Looked up once, when the port opens. Most owners have no such method, and for them nothing is
        # counted.
        self._tell: Callable[[str, str, Outlet], Any] | None = getattr(owner, "on_asked", None)
        self._of: dict[Outlet, Counter[str]] = {}
        self.counts: Counter[str] = Counter()
        """How many subscriptions there are to each pattern."""

    def subscribe(self, outlet: Outlet, pattern: str) -> None:
        """Add a subscription of a reader.

        The name of a subscription group is left out: which member gets a message is decided by the route to
        the members, not by the source further up.
        """
        if self._tell is None:
            return
        pattern = without_group(pattern)
        self._of.setdefault(outlet, Counter())[pattern] += 1
        self.counts[pattern] += 1
        self._tell("subscribe", pattern, outlet)

    def unsubscribe(self, outlet: Outlet, pattern: str) -> None:
        """Take back a subscription of a reader; does nothing if there is none."""
        # The same form as in ``subscribe``, so that the two find each other.
        pattern = without_group(pattern)
        asked = self._of.get(outlet)
        # Without this check a pattern that this reader does not have would be taken from the sum of the
        # others.
        if asked is None or not asked[pattern] or self._tell is None:
            return
        asked[pattern] -= 1
        if not asked[pattern]:
            del asked[pattern]
        self.counts[pattern] -= 1
        if not self.counts[pattern]:
            del self.counts[pattern]
        # After the sums were changed, so that the owner can look them up in the call.
        self._tell("unsubscribe", pattern, outlet)

    def forget_owner(self) -> None:
        """The port has left: nobody is told any more."""
        self._tell = None

    def leave(self, outlet: Outlet) -> None:
        """Take back all subscriptions of a reader that has left."""
        # ``elements`` repeats a pattern as often as it was subscribed to: the owner is told of each one.
        for pattern in list(self._of.get(outlet, Counter()).elements()):
            self.unsubscribe(outlet, pattern)
        self._of.pop(outlet, None)
