"""Routes: which queues a message reaches from an exchange, found once and remembered.

The walk follows bindings between exchanges and alternate exchanges, visiting each exchange once.
Its answers are cached by (exchange, key), unless an exchange on the way looks at headers.  A change of bindings
forgets the answers of the exchanges that lead there; of the exchange itself, those for keys that the binding may fit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from kernel.contracts.message import Envelope
from plugins.engines.broker.dead_letters import headers_of
from plugins.engines.broker.errors import AccessRefused, missing_exchange
from plugins.engines.broker.exchange import Exchange
from plugins.engines.broker.queue import Queue
from plugins.engines.broker.without_copies import without_blind_copies

if TYPE_CHECKING:
    from plugins.engines.broker.binding import Binding, Destination
    from plugins.engines.broker.sink import Sink

_MOST_KEYS = 50_000
_MOST_ENVELOPES = 1000
_MOST_SEARCHED = 2000
"""Keys and envelopes are the clients' to choose, so the memory for them is bounded: then all is forgotten.

Of more than ``_MOST_SEARCHED`` keys of an exchange, all are forgotten at once: to find those that a new binding may
fit takes 40 ns a key, and so 0.1 ms at the most.
"""


class Route(NamedTuple):
    """Where messages under one envelope go."""

    queues: tuple[Queue, ...]
    without_copies: Envelope | None
    """The envelope to deliver them under, if theirs has keys that are nobody's business (BCC)."""
    sinks: tuple[Sink, ...] = ()


_Found: TypeAlias = "tuple[tuple[Queue, ...], tuple[Sink, ...]]"
_NOTHING: _Found = (), ()


class Routes:
    """Finds queues for envelopes."""

    __slots__ = (
        "_by_envelope",
        "_by_key",
        "_check",
        "_exchanges",
        "_queues",
        "_vhost",
        "changes",
        "exchange_changes",
    )

    def __init__(
        self,
        vhost: str,
        exchanges: Mapping[str, Exchange],
        queues: Mapping[str, Queue],
        check: Callable[[Envelope], None],
    ) -> None:
        """``check`` refuses envelopes that the store cannot write."""
        self._check = check
        self._vhost = vhost
        self._exchanges = exchanges
        self._queues = queues
        self._by_key: dict[str, dict[str, _Found]] = {}
        """By exchange, then by key."""
        self._by_envelope: dict[Envelope, Route] = {}
        self.changes = 0
        """Counts changes of exchanges and bindings."""
        self.exchange_changes = 0
        """Counts changes of exchanges and permissions: for those who remember what may be published."""

    def forget(self) -> None:
        """Exchanges or permissions have changed."""
        self.exchange_changes += 1
        self.changes += 1
        self._by_key.clear()
        self._by_envelope.clear()

    def forget_binding(self, binding: Binding) -> None:
        """A binding was made or taken away."""
        self.changes += 1
        self._by_envelope.clear()
        exchange = binding.source
        known = self._by_key.get(exchange.name)
        if known:
            _forget_keys(known, exchange.kind, binding.key)
        if len(self._by_key) > (known is not None):
            for name in self._leading_to(exchange):
                self._by_key.pop(name, None)

    def _leading_to(self, exchange: Exchange) -> set[str]:
        """Return the names of the other exchanges from which messages may reach this one."""
        alternates = [each for each in self._exchanges.values() if each.alternate is not None]
        found: set[str] = set()
        waiting = [exchange]
        while waiting:
            here = waiting.pop()
            before = [binding.source for binding in here.incoming.values()]
            before += [each for each in alternates if each.alternate == here.name]
            for each in before:
                if each.name not in found:
                    found.add(each.name)
                    waiting.append(each)
        return found - {exchange.name}

    def forget_envelopes(self) -> None:
        """A queue came or went: the default exchange leads to it; what is cached by key does not know it."""
        self._by_envelope.clear()

    def find(self, envelope: Envelope) -> Route:
        """Return the route of messages under this envelope; refuse a missing exchange, and what cannot be stored."""
        route = self._by_envelope.get(envelope)
        if route is not None:
            return route
        headers = headers_of(envelope)
        queues, sinks = self._from(envelope.exchange, envelope.key, headers, envelope.properties)
        without_copies = None
        if headers and ("CC" in headers or "BCC" in headers):
            for key in _copies(headers):
                more_queues, more_sinks = self._from(envelope.exchange, key, headers, envelope.properties)
                queues += more_queues
                sinks += more_sinks
            queues = tuple(dict.fromkeys(queues))
            sinks = tuple(dict.fromkeys(sinks))
            without_copies = without_blind_copies(envelope)
        if queues:
            self._check(without_copies or envelope)
        if len(self._by_envelope) >= _MOST_ENVELOPES:
            self._by_envelope.clear()
        route = self._by_envelope[envelope] = Route(queues, without_copies, sinks)
        return route

    def _from(self, name: str, key: str, headers: Mapping[str, Any], properties: Mapping[str, Any]) -> _Found:
        if not name:
            queue = self._queues.get(key)
            return _NOTHING if queue is None else ((queue,), ())
        known = self._by_key.get(name)
        found = None if known is None else known.get(key)
        if found is not None:
            return found
        exchange = self._exchanges.get(name)
        if exchange is None:
            raise missing_exchange(name, self._vhost)
        found, by_key_alone = self._walk(exchange, key, headers, properties)
        if by_key_alone:
            if known is None:
                known = self._by_key[name] = {}
            elif len(known) >= _MOST_KEYS:
                known.clear()
            known[key] = found
        return found

    def _walk(
        self, start: Exchange, key: str, headers: Mapping[str, Any], properties: Mapping[str, Any]
    ) -> tuple[_Found, bool]:
        ends: dict[Queue | Sink, None] = {}
        seen: dict[Exchange, None] = {start: None}
        waiting = [start]
        by_key_alone = True
        while waiting:
            exchange = waiting.pop()
            # The default exchange depends on which queues there are, which does not forget the routes.
            looks_at = exchange.matcher.looks_at
            by_key_alone = by_key_alone and looks_at == "key" and bool(exchange.name)
            found: Iterable[Destination] = exchange.matcher.match(
                key, properties if looks_at == "properties" else headers
            )
            if not found and exchange.alternate is not None and exchange.alternate in self._exchanges:
                found = (self._exchanges[exchange.alternate],)
            for destination in found:
                if not isinstance(destination, Exchange):
                    ends[destination] = None
                elif destination not in seen:
                    seen[destination] = None
                    waiting.append(destination)
        queues = tuple([end for end in ends if isinstance(end, Queue)])
        if len(queues) == len(ends):
            return (queues, ()), by_key_alone
        return (queues, tuple([end for end in ends if not isinstance(end, Queue)])), by_key_alone


def _forget_keys(known: dict[str, _Found], kind: str, pattern: str) -> None:
    """Forget the keys that a binding with this pattern may fit."""
    if kind == "direct":
        known.pop(pattern, None)
        return
    words = pattern.split(".") if kind == "topic" else ["#"]
    wild = next((index for index, word in enumerate(words) if word in ("*", "#")), None)
    if wild is None:
        known.pop(pattern, None)
    elif wild == 0 or len(known) > _MOST_SEARCHED:
        known.clear()
    else:
        start = ".".join(words[:wild])  # without the dot: "a.#" fits "a", too
        for key in [key for key in known if key.startswith(start)]:
            del known[key]


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
