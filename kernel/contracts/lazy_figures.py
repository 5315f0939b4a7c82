"""Lazy figures: those of many things, each made when it is read.

An engine may have a hundred thousand things, such as queues.  To copy the figures of all of them takes
a tenth of a second, and an engine that shows them would have neither its turn nor the interpreter's
lock to give meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

Thing = TypeVar("Thing")


class LazyFigures(Mapping[str, dict[str, Any]]):
    """Figures by the names of things.  Any thread."""

    def __init__(self, things: dict[str, Thing], figures: Callable[[Thing], dict[str, Any]]) -> None:
        """``things``: a copy, which nobody changes.  ``figures``: those of one thing, in any thread."""
        self._things = things
        self._figures: Callable[[Any], dict[str, Any]] = figures

    def __getitem__(self, name: str) -> dict[str, Any]:
        """Return the figures of this moment."""
        return self._figures(self._things[name])

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names."""
        return iter(self._things)

    def __len__(self) -> int:
        """Return how many things there are."""
        return len(self._things)


def made(figures: dict[str, Any]) -> dict[str, Any]:
    """Return figures with dictionaries in place of lazy ones."""
    return {
        name: made(value)
        if isinstance(value, dict)
        else dict(value)
        if isinstance(value, LazyFigures)
        else value
        for name, value in figures.items()
    }
