"""Items of one stream by the number of their message, of which the lowest can be taken."""

from __future__ import annotations

import heapq
from typing import Generic, TypeVar

Item = TypeVar("Item")

_FEW = 16
"""Numbers that may be kept in vain."""


class Numbered(Generic[Item]):
    """Items by number.

    To take the lowest costs O(log n): a peer may store some ten thousand items, and then name numbers one by
    one up to which they are to be dropped. Were all items looked at each time, one packet would take seconds.
    """

    __slots__ = ("_order", "items")

    def __init__(self) -> None:
        self.items: dict[int, Item] = {}
        """To be looked at only."""
        self._order: list[int] = []
        """A heap of the numbers. An item that was removed leaves its number behind for a while."""

    def add(self, number: int, item: Item) -> None:
        """Store an item under a number that is not in use."""
        self.items[number] = item
        heapq.heappush(self._order, number)

    def remove(self, number: int) -> Item:
        """Remove and return the item with that number."""
        item = self.items.pop(number)
        # In proportion to what is stored, and so rarely that it costs each removal a few steps.
        if len(self._order) > 2 * len(self.items) + _FEW:
            self._order = sorted(self.items)
        return item

    def remove_until(self, number: int) -> list[Item]:
        """Remove and return all items up to that number, in order."""
        taken = []
        while self._order and self._order[0] <= number:
            item = self.items.pop(heapq.heappop(self._order), None)
            if item is not None:
                taken.append(item)
        return taken
