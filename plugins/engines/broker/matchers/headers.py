"""Headers: the headers of the message against those of the binding, all of them or any (``x-match``)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from plugins.engines.broker.binding import Binding, Destination
from plugins.engines.broker.contract import LooksAt
from plugins.engines.broker.errors import PreconditionFailed

FORMS = ("all", "any", "all-with-x", "any-with-x")


class HeadersMatcher:
    """Bindings with what each asks for."""

    looks_at: ClassVar[LooksAt] = "headers"

    def __init__(self) -> None:
        self._bindings: dict[Binding, tuple[bool, list[tuple[str, Any]]]] = {}

    def check(self, key: str, arguments: Mapping[str, Any]) -> None:
        """Refuse an ``x-match`` that nobody knows."""
        form = arguments.get("x-match", "all")
        if not isinstance(form, str):
            raise PreconditionFailed(f"Invalid x-match field type {type(form).__name__}; expected longstr")
        if form not in FORMS:
            raise PreconditionFailed(
                f'Invalid x-match field value <<"{form}">>; expected all, any, all-with-x, or any-with-x'
            )

    def add(self, binding: Binding) -> None:
        """Take a binding."""
        form = binding.arguments.get("x-match", "all")
        with_x = form.endswith("-with-x")
        wanted = [
            (name, value)
            for name, value in binding.arguments.items()
            if name != "x-match" and (with_x or not name.startswith("x-"))
        ]
        self._bindings[binding] = form.startswith("all"), wanted

    def remove(self, binding: Binding) -> None:
        """Forget a binding."""
        del self._bindings[binding]

    def match(self, key: str, headers: Mapping[str, Any]) -> Iterable[Destination]:
        """Return the destinations whose wishes the headers fulfil."""
        return [
            binding.destination
            for binding, (every, wanted) in self._bindings.items()
            if (all if every else any)(_has(headers, name, value) for name, value in wanted)
        ]


def _has(headers: Mapping[str, Any], name: str, value: object) -> bool:
    """Whether a header is there with the value; a binding without a value asks for its presence only."""
    if name not in headers:
        return False
    if value is None:
        return True
    found = headers[name]
    # In a field table true and 1 are of different types, in Python they are equal.
    return bool(found == value) and isinstance(found, bool) == isinstance(value, bool)
