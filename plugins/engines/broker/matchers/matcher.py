"""Matcher: what a type of exchange is.  One object an exchange; a new type is one more class."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Literal, TypeAlias
from typing import Protocol as Interface

from plugins.engines.broker.binding import Binding, Destination

LooksAt: TypeAlias = Literal["key", "headers", "properties"]


class Matcher(Interface):
    """Holds the bindings of one exchange in the form in which they are looked up fastest."""

    looks_at: ClassVar[LooksAt]
    """What ``match`` depends on.  If that is the key alone, its answers are cached by key."""

    def check(self, key: str, arguments: Mapping[str, Any]) -> None:
        """Refuse a binding that makes no sense, with a ``BrokerError``."""
        ...

    def add(self, binding: Binding) -> None:
        """Take a binding; the same one never comes twice."""
        ...

    def remove(self, binding: Binding) -> None:
        """Forget a binding that was added."""
        ...

    def match(self, key: str, headers: Mapping[str, Any]) -> Iterable[Destination]:
        """Return where a message goes; a destination may appear more than once.

        ``headers``: for one that looks at properties, all properties by name, ``headers`` among them.
        """
        ...
