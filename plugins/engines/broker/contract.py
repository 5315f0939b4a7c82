"""What other plugins may use of the broker: types of exchange, and what they are made of.

The contract is the broker's own and not the kernel's: it speaks of bindings, queues and refusals, which the
kernel does not know.  Importing this module imports nothing heavy, so that a plugin module may.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar, Literal, TypeAlias
from typing import Protocol as Interface

from kernel import hookspec
from kernel.contracts.kinds import Kind, KindGroup
from plugins.engines.broker.binding import Binding, Destination
from plugins.engines.broker.errors import BrokerError, CommandInvalid, PreconditionFailed

__all__ = [
    "EXCHANGE_TYPES",
    "Binding",
    "BrokerError",
    "CommandInvalid",
    "Destination",
    "ExchangeTypeKind",
    "LooksAt",
    "Matcher",
    "PreconditionFailed",
]

LooksAt: TypeAlias = Literal["key", "headers", "properties"]


class Matcher(Interface):
    """Holds the bindings of one exchange in the form in which they are looked up fastest.

    Used by the thread of the broker's engine only.
    """

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


class ExchangeTypeKind(Kind, frozen=True, kw_only=True):
    """A type of exchange, for the brokers of the process; its name is what a client declares."""

    create: Callable[[Mapping[str, Any]], Matcher]
    """``create(arguments)`` makes what matches for one exchange from the arguments of its declaration, or refuses
    them with a ``BrokerError``."""


@hookspec
def register_exchange_types() -> Iterable[ExchangeTypeKind]:  # type: ignore[empty-body]
    """Return types of exchange.  Once, while plugins are loaded; main thread; nothing heavy."""


EXCHANGE_TYPES = KindGroup(
    hook=register_exchange_types, kind=ExchangeTypeKind, noun="exchange type", title="Exchange types"
)
"""Announced by the plugin of every engine that serves clients of a broker."""
