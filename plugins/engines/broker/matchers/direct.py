"""Direct: a message matches a binding if their keys are equal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

from plugins.engines.broker.binding import Binding, Destination
from plugins.engines.broker.contract import LooksAt


class DirectMatcher:
    """Bindings by key."""

    looks_at: ClassVar[LooksAt] = "key"

    def __init__(self) -> None:
        # The inner dictionaries serve as sets that keep the order of the bindings.
        self._by_key: dict[str, dict[Binding, None]] = {}

    def check(self, key: str, arguments: Mapping[str, Any]) -> None:
        """Accept any key."""

    def add(self, binding: Binding) -> None:
        """Add a binding."""
        self._by_key.setdefault(binding.key, {})[binding] = None

    def remove(self, binding: Binding) -> None:
        """Remove a binding."""
        bindings = self._by_key[binding.key]
        del bindings[binding]
        # Clients choose the keys, so an empty entry for each key that was ever used would add up.
        if not bindings:
            del self._by_key[binding.key]

    def match(self, key: str, headers: Mapping[str, Any]) -> Iterable[Destination]:
        """Return the destinations that are bound with this key."""
        return [binding.destination for binding in self._by_key.get(key, ())]

    def match_all(self, keys: Sequence[str]) -> Sequence[tuple[Destination, ...]]:
        """Return what ``match`` returns, for each key."""
        known = self._by_key
        none: dict[Binding, None] = {}
        return [tuple([binding.destination for binding in known.get(key, none)]) for key in keys]
