"""Default: every queue is bound to the default exchange by its name (AMQP 0-9-1, 3.1.3.1).

There are no binding objects for this.  ``Routes`` looks up queues itself when a message is published to the
default exchange.  This matcher is asked if the default exchange is the alternate exchange of another one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from plugins.engines.broker.binding import Binding, Destination
from plugins.engines.broker.contract import LooksAt
from plugins.engines.broker.errors import default_exchange_refused

if TYPE_CHECKING:
    from plugins.engines.broker.queue import Queue


class DefaultMatcher:
    """The queues of the virtual host, by name: the dictionary of the virtual host itself."""

    looks_at: ClassVar[LooksAt] = "key"

    def __init__(self, queues: Mapping[str, Queue]) -> None:
        self._queues = queues

    def check(self, key: str, arguments: Mapping[str, Any]) -> None:
        """Nothing can be bound here."""
        raise default_exchange_refused()

    def add(self, binding: Binding) -> None:
        """Nothing can be bound here."""
        raise default_exchange_refused()

    def remove(self, binding: Binding) -> None:
        """Nothing can be bound here."""
        raise default_exchange_refused()

    def match(self, key: str, headers: Mapping[str, Any]) -> Iterable[Destination]:
        """Return the queue of that name."""
        queue = self._queues.get(key)
        return () if queue is None else (queue,)

    def match_all(self, keys: Sequence[str]) -> Sequence[tuple[Destination, ...]]:
        """Return what ``match`` returns, for each key."""
        queues = self._queues
        return [(queues[key],) if key in queues else () for key in keys]
