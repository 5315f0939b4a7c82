"""Demand: what the readers of a port's messages have asked for, together.

The owner of the port hears of every change, and can look up the union: it passes on to its own source what the first
reader asks for, and takes it back with the last.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from kernel.contracts.groups import without_group
from kernel.contracts.router import Outlet


class Demand:
    """Subscriptions by pipe, and their union.  The thread of the port."""

    __slots__ = ("_of", "_tell", "counts")

    def __init__(self, owner: object) -> None:
        self._tell: Callable[[str, str, Outlet], Any] | None = getattr(owner, "on_asked", None)
        self._of: dict[Outlet, Counter[str]] = {}
        self.counts: Counter[str] = Counter()
        """How many subscriptions there are to each pattern."""

    def subscribe(self, outlet: Outlet, pattern: str) -> None:
        """A reader asks for what matches.

        A group of readers asks its source for what any reader would: only the last router chooses between the members.
        """
        if self._tell is None:
            return
        pattern = without_group(pattern)
        self._of.setdefault(outlet, Counter())[pattern] += 1
        self.counts[pattern] += 1
        self._tell("subscribe", pattern, outlet)

    def unsubscribe(self, outlet: Outlet, pattern: str) -> None:
        """A reader takes a subscription back; harmless when there was none."""
        pattern = without_group(pattern)
        asked = self._of.get(outlet)
        if asked is None or not asked[pattern] or self._tell is None:
            return
        asked[pattern] -= 1
        if not asked[pattern]:
            del asked[pattern]
        self.counts[pattern] -= 1
        if not self.counts[pattern]:
            del self.counts[pattern]
        self._tell("unsubscribe", pattern, outlet)

    def leave(self, outlet: Outlet) -> None:
        """A reader is gone, and its subscriptions with it."""
        for pattern in list(self._of.get(outlet, Counter()).elements()):
            self.unsubscribe(outlet, pattern)
        self._of.pop(outlet, None)
