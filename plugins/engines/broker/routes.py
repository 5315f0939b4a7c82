"""Routes: which queues a message reaches from an exchange, found once and remembered.

The walk follows bindings between exchanges and alternate exchanges, visiting each exchange once.
Its answers are cached by (exchange, key), unless an exchange on the way looks at headers; any change of
bindings forgets them all.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from kernel.contracts.message import Envelope
from plugins.engines.broker.dead_letters import headers_of
from plugins.engines.broker.errors import AccessRefused, missing_exchange
from plugins.engines.broker.exchange import Exchange
from plugins.engines.broker.without_copies import without_blind_copies

if TYPE_CHECKING:
    from plugins.engines.broker.queue import Queue

_MOST_KEYS = 50_000
_MOST_ENVELOPES = 1000
"""Keys and envelopes are the clients' to choose, so the memory for them is bounded: then all is forgotten."""


class Route(NamedTuple):
    """Where messages under one envelope go."""

    queues: tuple[Queue, ...]
    without_copies: Envelope | None
    """The envelope to deliver them under, if theirs has keys that are nobody's business (BCC)."""


class Routes:
    """Finds queues for envelopes."""

    __slots__ = ("_by_envelope", "_by_key", "_exchanges", "_queues", "_vhost", "changes")

    def __init__(self, vhost: str, exchanges: Mapping[str, Exchange], queues: Mapping[str, Queue]) -> None:
        self._vhost = vhost
        self._exchanges = exchanges
        self._queues = queues
        self._by_key: dict[tuple[str, str], tuple[Queue, ...]] = {}
        self._by_envelope: dict[Envelope, Route] = {}
        self.changes = 0
        """Counts what makes old answers worthless, for those who remember any."""

    def forget(self) -> None:
        """Something changed that routes depend on."""
        self.changes += 1
        self._by_key.clear()
        self._by_envelope.clear()

    def forget_envelopes(self) -> None:
        """A queue came or went: the default exchange leads to it; what is cached by key does not know it."""
        self._by_envelope.clear()

    def find(self, envelope: Envelope) -> Route:
        """Return the route of messages under this envelope; refuse a missing exchange."""
        route = self._by_envelope.get(envelope)
        if route is not None:
            return route
        headers = headers_of(envelope)
        queues = self._from(envelope.exchange, envelope.key, headers, envelope.properties)
        without_copies = None
        if headers and ("CC" in headers or "BCC" in headers):
            for key in _copies(headers):
                queues += self._from(envelope.exchange, key, headers, envelope.properties)
            queues = tuple(dict.fromkeys(queues))
            without_copies = without_blind_copies(envelope)
        if len(self._by_envelope) >= _MOST_ENVELOPES:
            self._by_envelope.clear()
        route = self._by_envelope[envelope] = Route(queues, without_copies)
        return route

    def _from(
        self, name: str, key: str, headers: Mapping[str, Any], properties: Mapping[str, Any]
    ) -> tuple[Queue, ...]:
        if not name:
            queue = self._queues.get(key)
            return () if queue is None else (queue,)
        queues = self._by_key.get((name, key))
        if queues is not None:
            return queues
        exchange = self._exchanges.get(name)
        if exchange is None:
            raise missing_exchange(name, self._vhost)
        queues, by_key_alone = self._walk(exchange, key, headers, properties)
        if by_key_alone:
            if len(self._by_key) >= _MOST_KEYS:
                self._by_key.clear()
            self._by_key[name, key] = queues
        return queues

    def _walk(
        self, start: Exchange, key: str, headers: Mapping[str, Any], properties: Mapping[str, Any]
    ) -> tuple[tuple[Queue, ...], bool]:
        queues: dict[Queue, None] = {}
        seen: dict[Exchange, None] = {start: None}
        waiting = [start]
        by_key_alone = True
        while waiting:
            exchange = waiting.pop()
            # The default exchange depends on which queues there are, which does not forget the routes.
            looks_at = exchange.matcher.looks_at
            by_key_alone = by_key_alone and looks_at == "key" and bool(exchange.name)
            found = exchange.matcher.match(key, properties if looks_at == "properties" else headers)
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
