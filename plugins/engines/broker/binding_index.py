"""Binding index: which bindings of a queue a message matches.

A queue gets one copy of a message however many of its bindings match (AMQP 0-9-1, section 3.1.3.1). A
protocol that tells its client which subscriptions a message matched asks this index, once for each envelope.

A delivery does not say which bindings it came by: the routes are cached, and to note it for each message
would cost all protocols.  The index makes matchers of its own, with the bindings of this queue alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from kernel.contracts.message import Batch, Envelope
from plugins.engines.broker.binding import Binding, Identity
from plugins.engines.broker.dead_letters import headers_of
from plugins.engines.broker.matchers.kinds import ExchangeTypes, make_matcher

if TYPE_CHECKING:
    from plugins.engines.broker.contract import Matcher
    from plugins.engines.broker.queue import Queue

_MOST_ENVELOPES = 1000


class BindingIndex:
    """Finds the bindings of one queue that an envelope matches.

    It finds bindings from the exchange of the envelope to the queue, and none that pass through another
    exchange. Used by the broker's thread.
    """

    def __init__(self, queue: Queue, exchange_types: ExchangeTypes) -> None:
        """``exchange_types``: those of the broker (``Broker.exchange_types``)."""
        self._queue = queue
        self._exchange_types = exchange_types
        self._changes = -1
        self._matchers: dict[str, Matcher] = {}
        self._found: dict[Envelope, tuple[Binding, ...]] = {}

    def find(self, envelope: Envelope) -> tuple[Binding, ...]:
        """Return the bindings that match, in no particular order."""
        # Any change of bindings in the virtual host makes the index read the bindings of its queue again.
        changes = self._queue.vhost.routes.changes
        if changes != self._changes:
            self._changes = changes
            self._read()
        found = self._found.get(envelope)
        if found is None:
            if len(self._found) >= _MOST_ENVELOPES:
                self._found.clear()
            found = self._found[envelope] = self._match(envelope)
        return found

    def _read(self) -> None:
        self._found.clear()
        self._matchers.clear()
        for binding in self._queue.incoming.values():
            source = binding.source
            matcher = self._matchers.get(source.name)
            if matcher is None:
                matcher = make_matcher(source.kind, source.arguments, self._exchange_types)
                self._matchers[source.name] = matcher
            # Each binding gets its own destination, because a matcher returns destinations and not bindings.
            matcher.add(msgspec.structs.replace(binding, destination=_Found(binding)))

    def _match(self, envelope: Envelope) -> tuple[Binding, ...]:
        matcher = self._matchers.get(envelope.exchange)
        if matcher is None:
            return ()
        properties = envelope.properties
        # What a matcher looks at is decided here as in ``Routes``, so that both find the same bindings.
        found = matcher.match(
            envelope.key, properties if matcher.looks_at == "properties" else headers_of(envelope)
        )
        return tuple({each.binding: None for each in found if isinstance(each, _Found)})


class _Found:
    """The destination that stands for one binding."""

    durable = False

    def __init__(self, binding: Binding) -> None:
        self.name = binding.key
        self.binding = binding
        self.incoming: dict[Identity, Binding] = {}

    def publish(self, batch: Batch, now: float) -> bool:
        """Nothing is published here."""
        return False
