"""Prefix table: maps prefixes, of text or of octets, to values."""

from __future__ import annotations

from collections.abc import Collection
from typing import Generic, TypeVar

K = TypeVar("K", str, bytes)
V = TypeVar("V")


class PrefixTable(Generic[K, V]):
    """Values by prefix.

    A look-up tries one slice of the key for each length that any prefix has, so it costs no more than the key
    is long, and does not grow with the number of prefixes.
    """

    def __init__(self) -> None:
        self._counts: dict[K, dict[V, int]] = {}
        # The number of prefixes of each length, and the lengths in ascending order.
        self._having: dict[int, int] = {}
        self._lengths: list[int] = []

    def __bool__(self) -> bool:
        return bool(self._counts)

    def __len__(self) -> int:
        """Return the number of prefixes."""
        return len(self._counts)

    def at(self, prefix: K) -> Collection[V]:
        """Return the values of this prefix alone."""
        return self._counts.get(prefix, ())

    def values(self) -> set[V]:
        """Return all values."""
        return set().union(*self._counts.values())

    def longest(self) -> int:
        """Return the length of the longest prefix: no look-up takes notice of more of a key."""
        return self._lengths[-1] if self._lengths else 0

    def add(self, prefix: K, value: V) -> None:
        """Store ``value`` under ``prefix``; one that is added several times has to be removed as often."""
        counts = self._counts.get(prefix)
        if counts is None:
            counts = self._counts[prefix] = {}
            self._count(len(prefix), 1)
        counts[value] = counts.get(value, 0) + 1

    def remove(self, prefix: K, value: V) -> bool:
        """Take back one ``add``; False when there was none."""
        counts = self._counts.get(prefix)
        if counts is None or value not in counts:
            return False
        counts[value] -= 1
        if not counts[value]:
            del counts[value]
        if not counts:
            del self._counts[prefix]
            self._count(len(prefix), -1)
        return True

    def find(self, key: K) -> list[V]:
        """Return the values of all prefixes of ``key``; one that is under several of them as often."""
        found: list[V] = []
        size = len(key)
        for length in self._lengths:
            # The lengths are in order, so no later prefix fits the key either.
            if length > size:
                break
            counts = self._counts.get(key[:length])
            if counts is not None:
                # The keys of the dict: a value that was added twice to one prefix is found once.
                found += counts
        return found

    def _count(self, length: int, change: int) -> None:
        having = self._having.get(length, 0) + change
        if having:
            self._having[length] = having
        else:
            del self._having[length]
        # Only a length that is new or gone changes the list.
        if len(self._having) != len(self._lengths):
            self._lengths = sorted(self._having)
