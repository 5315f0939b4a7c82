"""Binding: a rule by which an exchange passes messages to a queue, to another exchange or to a sink."""

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
    """A binding.  Source, destination, key and arguments identify it (see ``identity_of``)."""

    source: Exchange
    destination: Destination
    key: str
    arguments: Mapping[str, Any]

    @property
    def durable(self) -> bool:
        """Whether it survives a restart: it does if source and destination do."""
        return self.source.durable and self.destination.durable

    @property
    def identity(self) -> Identity:
        """The identity of this binding, see ``identity_of``."""
        return identity_of(self.source, self.destination, self.key, self.arguments)


def identity_of(
    source: Exchange, destination: Destination, key: str, arguments: Mapping[str, Any]
) -> Identity:
    """Return a key that is equal for equal bindings.  The order of the arguments does not matter."""
    # ``id`` is unambiguous, because a binding refers to both objects as long as its identity is in use.
    # Values of arguments may be lists and tables, which have no hash; hence ``repr``.  Names of arguments
    # differ, so sorting never compares values.
    return id(source), id(destination), key, repr(sorted(arguments.items())) if arguments else ""
