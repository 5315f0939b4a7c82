"""Direct: the key of the message is the key of the binding."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from plugins.engines.broker.binding import Binding, Destination
from plugins.engines.broker.contract import LooksAt


class DirectMatcher:
    """Bindings by key."""

    looks_at: ClassVar[LooksAt] = "key"

    def __init__(self) -> None:
        self._by_key: dict[str, dict[Binding, None]] = {}

    def check(self, key: str, arguments: Mapping[str, Any]) -> None:
        """Any key will do."""

    def add(self, binding: Binding) -> None:
        """Take a binding."""
        self._by_key.setdefault(binding.key, {})[binding] = None

    def remove(self, binding: Binding) -> None:
        """Forget a binding."""
        bindings = self._by_key[binding.key]
        del bindings[binding]
        if not bindings:
            del self._by_key[binding.key]

    def match(self, key: str, headers: Mapping[str, Any]) -> Iterable[Destination]:
        """Return the destinations bound with just this key."""
        return [binding.destination for binding in self._by_key.get(key, ())]
