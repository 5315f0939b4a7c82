"""Fanout: every message matches every binding."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

from plugins.engines.broker.binding import Binding, Destination
from plugins.engines.broker.contract import LooksAt


class FanoutMatcher:
    """All bindings, whatever their keys."""

    looks_at: ClassVar[LooksAt] = "key"

    def __init__(self) -> None:
        self._bindings: dict[Binding, None] = {}

    def check(self, key: str, arguments: Mapping[str, Any]) -> None:
        """Accept any key."""

    def add(self, binding: Binding) -> None:
        """Add a binding."""
        self._bindings[binding] = None

    def remove(self, binding: Binding) -> None:
        """Remove a binding."""
        del self._bindings[binding]

    def match(self, key: str, headers: Mapping[str, Any]) -> Iterable[Destination]:
        """Return the destinations of all bindings."""
        return [binding.destination for binding in self._bindings]

    def match_all(self, keys: Sequence[str]) -> Sequence[tuple[Destination, ...]]:
        """Return what ``match`` returns, for each key."""
        return [tuple([binding.destination for binding in self._bindings])] * len(keys)
