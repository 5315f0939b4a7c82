"""Headers: a message matches a binding if it has all, or any, of the headers that the binding names.

``x-match`` of the binding says which (AMQP 0-9-1, 3.1.3.4).  Arguments that begin with ``x-`` are not
compared, except with RabbitMQ's extensions ``all-with-x`` and ``any-with-x``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from decimal import Decimal
from typing import Any, ClassVar

from plugins.engines.broker.binding import Binding, Destination
from plugins.engines.broker.contract import LooksAt
from plugins.engines.broker.errors import PreconditionFailed

FORMS = ("all", "any", "all-with-x", "any-with-x")


class HeadersMatcher:
    """The bindings, and for each whether it asks for all, and the headers that it names.

    A header is there with its value as it came, and as it is compared with values of other types.
    """

    looks_at: ClassVar[LooksAt] = "headers"

    def __init__(self) -> None:
        self._bindings: dict[Binding, tuple[bool, list[tuple[str, Any, Any]]]] = {}

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
            (name, value, _comparable(value))
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
            if (all if every else any)(_has(headers, *header) for header in wanted)
        ]


def _has(headers: Mapping[str, Any], name: str, value: object, comparable: object) -> bool:
    """Whether the message has the header with this value.  None (a void field): with any value."""
    if name not in headers:
        return False
    if value is None:
        return True
    found = headers[name]
    if type(found) is type(value):
        return bool(found == value)
    return bool(_comparable(found) == comparable)


def _comparable(value: object) -> object:
    """Return a value in the form in which values of different types are compared, as in RabbitMQ.

    Text equals the same octets, a time its number of seconds, and a number one of another type.  But true is
    not 1, and a decimal is no number.
    """
    if isinstance(value, str):
        return value.encode("utf-8", "surrogateescape")
    if isinstance(value, bytearray):
        return bytes(value)
    if isinstance(value, datetime):
        return int(value.timestamp())
    if isinstance(value, bool | Decimal):
        return type(value), value
    return value
