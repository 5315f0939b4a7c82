"""Routes: the queues and sinks that a message reaches from an exchange, found once and cached.

The search follows bindings between exchanges and alternate exchanges, and visits each exchange once.

There are two caches.  By envelope: the whole answer, which one dictionary lookup finds for each batch.  By
exchange and key: the result of one search, unless an exchange on the way matches by headers or properties.
The first is for publishers that reuse their envelopes, and the second for those that do not.

A change of a binding clears the first cache.  In the second it clears the exchanges from which messages may
reach the binding's exchange; of that exchange itself, only the keys that the binding may match.  Consumers
that come and go would otherwise make every publisher of the virtual host search again (figures: decision 20).

Many keys lead to the same few queues, so they share one ``Route`` object.  It is found by what the key
matches, as long as no exchange is among that.

The default exchange is not in the second cache: its answer is one lookup in the dictionary of queues.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import msgspec

from kernel.contracts.message import Envelope
from kernel.contracts.properties import changed
from plugins.engines.broker.dead_letters import headers_of
from plugins.engines.broker.errors import AccessRefused, PreconditionFailed, missing_exchange
from plugins.engines.broker.exchange import Exchange
from plugins.engines.broker.publishing_ids import (
    FOR_THE_BROKER,
    PUBLISHING_ID,
    PublishingId,
    publishing_id_of,
)
from plugins.engines.broker.queue import Queue

if TYPE_CHECKING:
    from kernel.contracts.mixed_batch import KeyedBatch
    from plugins.engines.broker.binding import Binding, Destination
    from plugins.engines.broker.host.taps import BrokerTap
    from plugins.engines.broker.sink import Sink

_MOST_KEYS = 50_000
_MOST_ENVELOPES = 1000
_MOST_SHARED = 1000
_MOST_SEARCHED = 2000
"""Clients choose keys, envelopes and bindings, so the caches are bounded.  A full cache is cleared.

To find the keys that a new binding may match takes 40 ns for each key.  So that it takes 0.1 ms at most, an
exchange with more than ``_MOST_SEARCHED`` keys is cleared instead.
"""


class Route(NamedTuple):
    """Where messages under one envelope go."""

    queues: tuple[Queue, ...]
    delivered_as: Envelope | None
    """The envelope without the headers that are for the broker alone (BCC, publishing ids); None: it has
    none."""
    sinks: tuple[Sink, ...] = ()
    publishing_id: PublishingId | None = None
    """Not None: the message is dropped if it is a repeated one.  ``delivered_as`` is then not None either."""


_NOTHING = Route((), None)

MatchAll: TypeAlias = "Callable[[Sequence[str]], Sequence[tuple[Destination, ...]]]"
_UNKNOWN: Any = object()
_FOR_THE_ROUTES = frozenset(("CC", "BCC", PUBLISHING_ID))
"""Headers that decide where a message goes, besides its key."""


class Routes:
    """The caches of one virtual host."""

    __slots__ = (
        "_by_envelope",
        "_by_key",
        "_check",
        "_dispose",
        "_exchanges",
        "_match_all",
        "_queues",
        "_shared",
        "_taps",
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
        dispose: Callable[[dict[str, Route]], None] = dict.clear,
    ) -> None:
        """``check`` raises ``PreconditionFailed`` for an envelope that the store cannot write.

        ``dispose`` frees a cache that may be large.
        """
        self._check = check
        self._dispose = dispose
        self._vhost = vhost
        self._exchanges = exchanges
        self._queues = queues
        self._by_key: dict[str, dict[str, Route]] = {}
        """By exchange, then by key."""
        self._by_envelope: dict[Envelope, Route] = {}
        self._match_all: dict[Envelope, MatchAll | None] = {}
        """By envelope, for messages that differ in their keys."""
        self._shared: dict[tuple[Destination, ...], Route] = {}
        """By the queues and sinks that a key matches at one exchange."""
        self._taps: list[BrokerTap] = []
        """Who watches messages pass, besides those that get them."""
        self.changes = 0
        """Counts changes of exchanges and bindings."""
        self.exchange_changes = 0
        """Counts changes of exchanges and permissions.  Publishers that cache what they may publish compare
        it."""

    def forget(self) -> None:
        """Clear everything: exchanges or permissions have changed."""
        self.exchange_changes += 1
        self.changes += 1
        for name in list(self._by_key):
            self._forget_exchange(name)
        self._by_envelope.clear()
        self._match_all.clear()
        self._shared.clear()

    def forget_binding(self, binding: Binding) -> None:
        """Clear what depends on a binding that was added or removed."""
        self.changes += 1
        self._by_envelope.clear()
        # Not because they are wrong: a queue that is deleted must not stay in memory.
        self._shared.clear()
        exchange = binding.source
        known = self._by_key.get(exchange.name)
        if known and not _forget_keys(known, exchange.kind, binding.key):
            self._forget_exchange(exchange.name)
        # The exchanges that lead here are looked for only if any other one has cached keys.
        if len(self._by_key) > (known is not None):
            for name in self._leading_to(exchange):
                self._forget_exchange(name)

    def _forget_exchange(self, name: str) -> None:
        known = self._by_key.pop(name, None)
        if known:
            self._dispose(known)

    def _leading_to(self, exchange: Exchange) -> set[str]:
        """Return the names of the other exchanges from which messages may reach this one."""
        # Alternates are names.  An exchange that is named so need not exist, so there is no link back.
        alternates = [each for each in self._exchanges.values() if each.alternate is not None]
        found: set[str] = set()
        # Exchanges may be bound in a circle, so each is visited once.
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
        """A queue was declared or deleted: routes of the default exchange have changed."""
        self._by_envelope.clear()

    def add_tap(self, tap: BrokerTap) -> None:
        """Have a tap see messages from now on."""
        self._taps.append(tap)
        self._by_envelope.clear()
        self._match_all.clear()

    def remove_tap(self, tap: BrokerTap) -> None:
        """Take a tap out."""
        self._taps.remove(tap)
        self._by_envelope.clear()
        self._match_all.clear()

    def _with_taps(self, envelope: Envelope, route: Route) -> Route:
        # Only in the answer for the envelope, so that nothing else has to know of taps.
        taps = tuple(tap for tap in self._taps if tap.watches(envelope, route.queues))
        return route._replace(sinks=(*route.sinks, *taps)) if taps else route

    def find(self, envelope: Envelope) -> Route:
        """Return the route of messages under this envelope.

        Raises ``NotFound`` if the exchange does not exist, and ``PreconditionFailed`` if the store cannot
        write it.
        """
        route = self._by_envelope.get(envelope)
        if route is not None:
            return route
        # Some protocols decode the properties at the first access.  So this is done for new envelopes only.
        headers = headers_of(envelope)
        if headers and ("CC" in headers or "BCC" in headers):
            route = self._from_many(envelope, headers)
        else:
            route = self._from(envelope.exchange, envelope.key, headers, envelope.properties)
        if headers and PUBLISHING_ID in headers:
            route = route._replace(
                delivered_as=_without_what_is_for_the_broker(envelope),
                publishing_id=publishing_id_of(headers),
            )
        # Checked once for each envelope and not once for each message.  What reaches no queue is not stored.
        if route.queues:
            self._check(route.delivered_as or envelope)
        if self._taps:
            route = self._with_taps(envelope, route)
        # Cleared as a whole: to find the entry that was used least would cost every look-up.
        if len(self._by_envelope) >= _MOST_ENVELOPES:
            self._by_envelope.clear()
        self._by_envelope[envelope] = route
        return route

    def match_keyed(self, batch: KeyedBatch) -> Sequence[tuple[Destination, ...]] | None:
        """Return what the key of each message matches, if nothing else decides where they go.

        None: look for each of them with ``find``.  The answers are those of one exchange: destinations may be
        exchanges, and a message may match nothing.  Nothing is cached by key, because keys
        may never come again.
        """
        envelope = batch.envelope
        match_all = self._match_all.get(envelope, _UNKNOWN)
        if match_all is _UNKNOWN:
            if len(self._match_all) >= _MOST_ENVELOPES:
                self._match_all.clear()
            match_all = self._match_all[envelope] = self._find_match_all(envelope)
        return None if match_all is None else match_all(batch.key_texts())

    def _find_match_all(self, envelope: Envelope) -> MatchAll | None:
        exchange = self._exchanges.get(envelope.exchange)
        if exchange is None or exchange.alternate is not None or self._taps:
            return None
        if not _FOR_THE_ROUTES.isdisjoint(headers_of(envelope)):
            return None
        try:
            self._check(envelope)
        except PreconditionFailed:
            # It may reach no queue.
            return None
        matcher: Any = exchange.matcher
        return getattr(matcher, "match_all", None) if matcher.looks_at == "key" else None

    def _from(self, name: str, key: str, headers: Mapping[str, Any], properties: Mapping[str, Any]) -> Route:
        # The default exchange: one look-up, which a cache could not make faster.
        if not name:
            queue = self._queues.get(key)
            return _NOTHING if queue is None else Route((queue,), None)
        known = self._by_key.get(name)
        found = None if known is None else known.get(key)
        if found is not None:
            return found
        exchange = self._exchanges.get(name)
        if exchange is None:
            raise missing_exchange(name, self._vhost)
        # That a key reaches nothing is cached as well: such keys would be searched for each message.
        matcher = exchange.matcher
        looks_at = matcher.looks_at
        matched = tuple(matcher.match(key, properties if looks_at == "properties" else headers))
        found = self._shared.get(matched)
        by_key_alone = looks_at == "key"
        if found is None:
            found, by_key_alone = self._walk(exchange, matched, (key,), headers, properties)
        if by_key_alone:
            if known is not None and len(known) >= _MOST_KEYS:
                self._forget_exchange(name)
                known = None
            if known is None:
                known = self._by_key[name] = {}
            known[key] = found
        return found

    def _from_many(self, envelope: Envelope, headers: Mapping[str, Any]) -> Route:
        """Route a message with several keys: CC and BCC, RabbitMQ's sender-selected distribution."""
        name, keys = envelope.exchange, [envelope.key, *copies_of(headers)]
        if not name:
            queues = dict.fromkeys(self._queues[key] for key in keys if key in self._queues)
            route = Route(tuple(queues), None)
        else:
            exchange = self._exchanges.get(name)
            if exchange is None:
                raise missing_exchange(name, self._vhost)
            matched = _match(exchange, keys, headers, envelope.properties)
            route, _ = self._walk(exchange, matched, keys, headers, envelope.properties)
        if "BCC" not in headers:
            return route
        return route._replace(delivered_as=_without_what_is_for_the_broker(envelope))

    def _walk(
        self,
        start: Exchange,
        matched: tuple[Destination, ...],
        keys: Sequence[str],
        headers: Mapping[str, Any],
        properties: Mapping[str, Any],
    ) -> tuple[Route, bool]:
        """Search from an exchange on, where the keys match ``matched``.

        Return also whether the answer depends on the keys alone.  At each exchange on the way a binding that
        any of the keys matches is followed (RabbitMQ).
        """
        # Dictionaries serve as sets that keep the order, so that simulated runs can be repeated exactly.
        queues: dict[Queue, None] = {}
        sinks: dict[Sink, None] = {}
        seen: dict[Exchange, None] = {start: None}
        waiting = [start]
        by_key_alone = by_match_alone = True
        while waiting:
            exchange = waiting.pop()
            # Never cache a search through the default exchange: it depends on the queues, and a declared
            # queue does not clear the cache by key.  An alternate exchange may be the default one.
            by_key_alone = by_key_alone and exchange.matcher.looks_at == "key" and bool(exchange.name)
            found = matched if exchange is start else _match(exchange, keys, headers, properties)
            # The alternate exchange gets what no binding here matches.  A binding that matches and leads to
            # an exchange without queues counts as a match (RabbitMQ).
            if not found and exchange.alternate is not None and exchange.alternate in self._exchanges:
                found = (self._exchanges[exchange.alternate],)
            for destination in found:
                if isinstance(destination, Queue):
                    queues[destination] = None
                elif not isinstance(destination, Exchange):
                    sinks[destination] = None
                else:
                    by_match_alone = False
                    if destination not in seen:
                        seen[destination] = None
                        waiting.append(destination)
        route = Route(tuple(queues), None, tuple(sinks))
        # What an exchange leads to depends on the key as well, and what is done with a key that matches
        # nothing depends on the exchange.
        if matched and by_match_alone:
            if len(self._shared) >= _MOST_SHARED:
                self._shared.clear()
            self._shared[matched] = route
        return route, by_key_alone


def _match(
    exchange: Exchange, keys: Iterable[str], headers: Mapping[str, Any], properties: Mapping[str, Any]
) -> tuple[Destination, ...]:
    """Return the destinations of the bindings of one exchange that any of the keys matches."""
    matcher = exchange.matcher
    looked_at = properties if matcher.looks_at == "properties" else headers
    return tuple([each for key in keys for each in matcher.match(key, looked_at)])


def _forget_keys(known: dict[str, Route], kind: str, pattern: str) -> bool:
    """Remove the keys from a cache that a binding with this pattern may match.

    Return False if that may be all.

    To remove too many costs a search for each.  To leave one would route messages wrongly.
    """
    if kind == "direct":
        known.pop(pattern, None)
        return True
    # Of other types nothing is known, so their bindings may match any key, like "#".
    words = pattern.split(".") if kind == "topic" else ["#"]
    wild = next((index for index, word in enumerate(words) if word in ("*", "#")), None)
    if wild is None:
        known.pop(pattern, None)
    elif wild == 0 or len(known) > _MOST_SEARCHED:
        return False
    else:
        # Without the dot behind it: "a.#" matches "a" as well.
        start = ".".join(words[:wild])
        for key in [key for key in known if key.startswith(start)]:
            del known[key]
    return True


def check_publishable(exchange: Exchange | None, name: str, vhost: str) -> None:
    """Raise the error for publishing to an exchange that does not exist or is internal."""
    if exchange is None:
        raise missing_exchange(name, vhost)
    if exchange.internal:
        raise AccessRefused(f"cannot publish to internal exchange '{name}' in vhost '{vhost}'")


def copies_of(headers: Mapping[str, Any]) -> list[str]:
    """Return the additional keys in the headers CC and BCC (RabbitMQ's sender-selected distribution)."""
    keys: list[str] = []
    for name in ("CC", "BCC"):
        value = headers.get(name)
        if isinstance(value, list):
            keys += [key for key in value if isinstance(key, str)]
    return keys


def _without_what_is_for_the_broker(envelope: Envelope) -> Envelope:
    """Return the envelope without the headers that must not reach a consumer.

    BCC takes part in routing (RabbitMQ, sender-selected distribution).
    """
    return msgspec.structs.replace(envelope, properties=changed(envelope.properties, without=FOR_THE_BROKER))
