"""Headers: a message matches a binding if it has all, or any, of the headers that the binding names.

``x-match`` of the binding says which (AMQP 0-9-1, 3.1.3.4).  Arguments that begin with ``x-`` are not
compared, except with RabbitMQ's extensions ``all-with-x`` and ``any-with-x``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from plugins.engines.broker.binding import Binding, Destination
from plugins.engines.broker.contract import LooksAt
from plugins.engines.broker.errors import PreconditionFailed

FORMS = ("all", "any", "all-with-x", "any-with-x")


class HeadersMatcher:
    """The bindings, and for each whether it asks for all, and the headers that it names."""

    looks_at: ClassVar[LooksAt] = "headers"

    def __init__(self) -> None:
        self._bindings: dict[Binding, tuple[bool, list[tuple[str, Any]]]] = {}

    def check(self, key: str, arguments: Mapping[str, Any]) -> None:
        """Refuse a value of ``x-match`` that is not defined, with RabbitMQ's text."""
        form = arguments.get("x-match", "all")
        if not isinstance(form, str):
            raise PreconditionFailed(f"Invalid x-match field type {type(form).__name__}; expected longstr")
        if form not in FORMS:
            raise PreconditionFailed(
                f'Invalid x-match field value <<"{form}">>; expected all, any, all-with-x, or any-with-x'
            )

    def add(self, binding: Binding) -> None:
        """Add a binding."""
        form = binding.arguments.get("x-match", "all")
        with_x = form.endswith("-with-x")
        wanted = [
            (name, value)
            for name, value in binding.arguments.items()
            if name != "x-match" and (with_x or not name.startswith("x-"))
        ]
        self._bindings[binding] = form.startswith("all"), wanted

    def remove(self, binding: Binding) -> None:
        """Remove a binding."""
        del self._bindings[binding]

    def match(self, key: str, headers: Mapping[str, Any]) -> Iterable[Destination]:
        """Return the destinations of the bindings that the headers match."""
        # A binding that names no header matches every message with ``all``, and none with ``any``.
        return [
            binding.destination
            for binding, (every, wanted) in self._bindings.items()
            if (all if every else any)(_has(headers, name, value) for name, value in wanted)
        ]


def _has(headers: Mapping[str, Any], name: str, value: object) -> bool:
    """Whether the message has the header with this value.  None (a void field): with any value."""
    if name not in headers:
        return False
    if value is None:
        return True
    found = headers[name]
    # In a field table, true and 1 are of different types.  In Python they are equal.
    return bool(found == value) and isinstance(found, bool) == isinstance(value, bool)
