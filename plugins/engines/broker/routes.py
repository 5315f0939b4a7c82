"""Routes: which queues a message reaches from an exchange, found once and remembered.

The walk follows bindings between exchanges and alternate exchanges, visiting each exchange once.
Its answers are cached by (exchange, key), unless an exchange on the way looks at headers; any change of
bindings forgets them all.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from kernel.contracts.message import Envelope
from plugins.engines.broker.dead_letters import headers_of
from plugins.engines.broker.errors import AccessRefused, missing_exchange
from plugins.engines.broker.exchange import Exchange

if TYPE_CHECKING:
    from plugins.engines.broker.queue import Queue

_MOST_REMEMBERED = 50_000
"""Keys are the clients' to choose, so the memory for them is bounded: then all is forgotten."""

QueueSet: TypeAlias = "tuple[Queue, ...]"


class Routes:
    """Finds queues for envelopes."""

    __slots__ = ("_by_key", "_exchanges", "_last", "_last_queues", "_queues", "_vhost")

    def __init__(self, vhost: str, exchanges: Mapping[str, Exchange], queues: Mapping[str, Queue]) -> None:
        self._vhost = vhost
        self._exchanges = exchanges
        self._queues = queues
        self._by_key: dict[tuple[str, str], QueueSet] = {}
        self._last: Envelope | None = None
        self._last_queues: QueueSet = ()

    def forget(self) -> None:
        """Something changed that routes depend on."""
        self._by_key.clear()
        self._last = None

    def forget_envelope(self) -> None:
        """A queue came or went that the default exchange leads to (what is cached by key does not know it)."""
        self._last = None

    def find(self, envelope: Envelope) -> QueueSet:
        """Return the queues for messages under this envelope; refuse a missing exchange."""
        if envelope is self._last:
            return self._last_queues
        headers = headers_of(envelope)
        queues = self._from(envelope.exchange, envelope.key, headers)
        if headers and ("CC" in headers or "BCC" in headers):
            for key in _copies(headers):
                queues += self._from(envelope.exchange, key, headers)
            queues = tuple(dict.fromkeys(queues))
        self._last = envelope
        self._last_queues = queues
        return queues

    def _from(self, name: str, key: str, headers: Mapping[str, Any]) -> QueueSet:
        if not name:
            queue = self._queues.get(key)
            return () if queue is None else (queue,)
        queues = self._by_key.get((name, key))
        if queues is not None:
            return queues
        exchange = self._exchanges.get(name)
        if exchange is None:
            raise missing_exchange(name, self._vhost)
        queues, by_key_alone = self._walk(exchange, key, headers)
        if by_key_alone:
            if len(self._by_key) >= _MOST_REMEMBERED:
                self._by_key.clear()
            self._by_key[name, key] = queues
        return queues

    def _walk(self, start: Exchange, key: str, headers: Mapping[str, Any]) -> tuple[QueueSet, bool]:
        queues: dict[Queue, None] = {}
        seen: dict[Exchange, None] = {start: None}
        waiting = [start]
        by_key_alone = True
        while waiting:
            exchange = waiting.pop()
            # The default exchange depends on which queues there are, which does not forget the routes.
            by_key_alone = by_key_alone and not exchange.matcher.looks_at_headers and bool(exchange.name)
            found = exchange.matcher.match(key, headers)
            if not found and exchange.alternate is not None and exchange.alternate in self._exchanges:
                found = (self._exchanges[exchange.alternate],)
            for destination in found:
                if not isinstance(destination, Exchange):
                    queues[destination] = None
                elif destination not in seen:
                    seen[destination] = None
                    waiting.append(destination)
        return tuple(queues), by_key_alone


def check_publishable(exchange: Exchange | None, name: str, vhost: str) -> None:
    """Refuse to publish to what is not there, or not for clients."""
    if exchange is None:
        raise missing_exchange(name, vhost)
    if exchange.internal:
        raise AccessRefused(f"cannot publish to internal exchange '{name}' in vhost '{vhost}'")


def _copies(headers: Mapping[str, Any]) -> list[str]:
    """Return the keys of sender-selected distribution."""
    keys: list[str] = []
    for name in ("CC", "BCC"):
        value = headers.get(name)
        if isinstance(value, list):
            keys += [key for key in value if isinstance(key, str)]
    return keys
