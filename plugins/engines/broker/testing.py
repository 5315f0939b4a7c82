"""For tests of exchange types: one exchange in a broker without clients, disk or thread."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kernel.contracts.message import Envelope
from plugins.engines.broker.broker import Broker
from plugins.engines.broker.contract import ExchangeTypeKind


class ExchangeUnderTest:
    """An exchange of a type, declared with ``arguments``.  A refusal of the type raises as in a broker."""

    def __init__(self, kind: ExchangeTypeKind, arguments: Mapping[str, Any] | None = None) -> None:
        self._vhost = Broker(exchange_types={kind.name: kind.create}).vhost("/")
        self._vhost.declare_exchange("x", kind.name, arguments=dict(arguments or {}))

    def bind(self, queue: str, key: str = "", arguments: Mapping[str, Any] | None = None) -> None:
        """Bind a queue; declare it if it does not exist."""
        self._vhost.bind("x", self._vhost.declare_queue(queue, None, 0.0), key, dict(arguments or {}))

    def unbind(self, queue: str, key: str = "", arguments: Mapping[str, Any] | None = None) -> None:
        """Remove a binding."""
        self._vhost.unbind("x", self._vhost.queues[queue], key, dict(arguments or {}))

    def delete_queue(self, queue: str) -> None:
        """Delete a queue and its bindings."""
        self._vhost.delete_queue(queue, None, 0.0)

    def queues_for(self, key: str = "", **properties: Any) -> list[str]:
        """Return the names of the queues that a message goes to; ``headers`` is one of the properties."""
        envelope = Envelope(exchange="x", key=key, properties=properties)
        return [queue.name for queue in self._vhost.routes.find(envelope).queues]
