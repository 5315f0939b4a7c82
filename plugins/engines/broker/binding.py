"""Binding: what leads from an exchange to a queue or to another exchange."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

if TYPE_CHECKING:
    from plugins.engines.broker.exchange import Exchange
    from plugins.engines.broker.queue import Queue
    from plugins.engines.broker.sink import Sink

Destination: TypeAlias = "Queue | Exchange | Sink"

Identity: TypeAlias = tuple[int, int, str, str]


class Binding(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """A binding.  Two with the same ends, key and arguments are one (see ``identity_of``)."""

    source: Exchange
    destination: Destination
    key: str
    arguments: Mapping[str, Any]

    @property
    def durable(self) -> bool:
        """Whether it survives a restart: both ends must."""
        return self.source.durable and self.destination.durable

    @property
    def identity(self) -> Identity:
        """What makes it the same as another."""
        return identity_of(self.source, self.destination, self.key, self.arguments)


def identity_of(
    source: Exchange, destination: Destination, key: str, arguments: Mapping[str, Any]
) -> Identity:
    """Return what makes two bindings the same; the order of the arguments does not count."""
    return id(source), id(destination), key, repr(sorted(arguments.items())) if arguments else ""
