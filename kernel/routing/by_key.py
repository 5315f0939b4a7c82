"""By key: the pipes whose subscriptions match the envelope's key."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kernel.contracts.key_trie import KeyTrie
from kernel.contracts.message import Batch
from kernel.contracts.router import Outlet


class ByKey:
    """Those who want it.  A pipe without a subscription gets nothing."""

    def __init__(self) -> None:
        self._trie: KeyTrie[Outlet] = KeyTrie()
        self._patterns: dict[Outlet, list[str]] = {}

    def attach(self, outlet: Outlet, options: dict[str, Any]) -> None:
        """A pipe that may subscribe."""
        self._patterns[outlet] = []

    def detach(self, outlet: Outlet) -> None:
        """Its subscriptions go with it."""
        for pattern in self._patterns.pop(outlet):
            self._trie.remove(pattern, outlet)

    def choose(self, batch: Batch) -> Sequence[tuple[Outlet, Batch]]:
        """The batch itself for everybody who subscribed to its key."""
        return [(outlet, batch) for outlet in self._trie.match(batch.envelope.key)]

    def wants(self, batch: Batch) -> bool:
        """Whether anybody subscribed to its key."""
        return bool(self._trie.match(batch.envelope.key))

    def subscribe(self, outlet: Outlet, pattern: str) -> None:
        """From now on."""
        self._patterns[outlet].append(pattern)
        self._trie.add(pattern, outlet)

    def unsubscribe(self, outlet: Outlet, pattern: str) -> None:
        """No longer; harmless when it was not subscribed."""
        if pattern in self._patterns[outlet]:
            self._patterns[outlet].remove(pattern)
            self._trie.remove(pattern, outlet)
