"""A dictionary with a limit: the least recently used entry is removed (LRU)."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class Latest(Generic[Key, Value]):
    """At most ``most`` entries; ``on_forgotten`` gets the values that are removed."""

    def __init__(self, most: int, on_forgotten: Callable[[Value], object] | None = None) -> None:
        self.forgotten: int = 0
        """How many entries were removed."""
        self._most = most
        self._on_forgotten = on_forgotten
        self._entries: OrderedDict[Key, Value] = OrderedDict()

    def get(self, key: Key) -> Value | None:
        """Return the value, and count that as a use."""
        # None is a missing entry: no owner keeps None.
        value = self._entries.get(key)
        if value is not None:
            self._entries.move_to_end(key)
        return value

    def put(self, key: Key, value: Value) -> None:
        """Set the value."""
        entries = self._entries
        entries[key] = value
        entries.move_to_end(key)
        # At most one is too many: each ``put`` adds at most one.
        if len(entries) > self._most:
            _, gone = entries.popitem(last=False)
            self.forgotten += 1
            if self._on_forgotten is not None:
                self._on_forgotten(gone)

    def pop(self, key: Key) -> Value | None:
        """Remove and return the value; None if there is none."""
        return self._entries.pop(key, None)

    def items(self) -> list[tuple[Key, Value]]:
        """Return all entries, the least recently used first."""
        return list(self._entries.items())

    def values(self) -> list[Value]:
        """Return all values, in the same order."""
        return list(self._entries.values())

    def __contains__(self, key: Key) -> bool:
        return key in self._entries

    def __len__(self) -> int:
        return len(self._entries)
