"""Upstream exchange: what a link declares upstream for one exchange, and how it follows the bindings here.

The upstream has a durable queue for the link, which keeps what the link has not acknowledged.  An internal
fanout exchange (A) leads to it.  The bindings that are wanted here are made upstream from the federated
exchange to A:

    publishers ──► federated exchange ══ wanted bindings ══► A ──► queue ──► link

Bindings may have changed while the link was away, and AMQP has no way to ask which bindings exist.  So each
new connection makes A anew, without the old bindings.  Meanwhile a second internal exchange (B) leads to the
queue with all wanted bindings, so that no message is missed.  While both exist, no message comes twice: a
queue gets one copy of a message, however many ways lead to it.

The states of an object, for one connection:

    ``_bound`` is None     it is not known what is bound: the next requests make everything anew
    ``_bound`` is a set    these bindings exist, or are on their way: the next requests make the difference
    ``_removing``          the exchange was deleted here, and what belongs to it upstream is being deleted
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from plugins.engines.amqp_client.declarations import Request
from plugins.engines.broker.topology_observers import BindingState, ExchangeState
from plugins.engines.federation.options import FederationOptions
from plugins.engines.federation.trace import Place
from plugins.protocols.amqp091.methods import exchange, queue

PURPOSE = {"x-internal-purpose": "federation"}


class UpstreamExchange:
    """One federated exchange on one connection."""

    def __init__(self, name: str, here: Place, options: FederationOptions, as_they_are: set[str]) -> None:
        """``as_they_are``: what is declared passively, since it exists with other properties."""
        self.name = name
        self.queue = queue_name(name, here, options.vhost)
        self._options = options
        self._as_they_are = as_they_are
        self._bound: frozenset[BindingState] | None = None
        """The bindings that were asked for on this connection; None: not known."""
        self._asked = self._removing = False
        """Whether something was declared on this connection, and whether it is being deleted."""

    def forget(self) -> None:
        """Forget what is declared: it has to be declared again."""
        self._bound = None

    def leave(self) -> None:
        """Leave what is declared as it is: the broker here has stopped, and may come back."""
        self._bound = None
        self._asked = self._removing = False

    def removal(self) -> list[Request]:
        """Return the requests that delete everything that this connection may have made for the link."""
        self._bound = None
        # Deleted only if this connection has declared it.  An exchange that never existed here, as far as
        # this connection knows, may be one that its broker will declare later: its messages wait upstream.
        # The deletion is repeated until it is confirmed, in case another request is refused before it.
        self._removing = self._asked
        if not self._asked:
            return []
        return [
            (f"deleting queue {self.queue!r}", queue.Delete(queue=self.queue)),
            *(_delete(self._inner(suffix)) for suffix in "AB"),
        ]

    def declared(self) -> None:
        """All requests have been confirmed."""
        if self._removing:
            self.leave()

    def requests(self, state: ExchangeState, wanted: frozenset[BindingState]) -> list[Request]:
        """Return the requests that lead from what is declared to what is wanted."""
        before, self._bound = self._bound, wanted
        self._asked, self._removing = True, False
        if before is None:
            return self._anew(state, wanted)
        inner = self._inner("A")
        # New bindings first, so that a changed one is replaced without a gap.
        return [
            *(self._bind(each, inner) for each in wanted - before),
            *(self._unbind(each, inner) for each in before - wanted),
        ]

    def _anew(self, state: ExchangeState, wanted: Iterable[BindingState]) -> list[Request]:
        first, interim = self._inner("A"), self._inner("B")
        return [
            self._declare(state),
            self._declare_queue(),
            *self._make_inner(interim, wanted),
            # From here until A is bound again, messages come through B alone.  A's bindings go with it.
            _delete(first),
            *self._make_inner(first, wanted),
            _delete(interim),
        ]

    def _declare(self, state: ExchangeState) -> Request:
        # A passive declaration only asks whether it exists, whatever its properties (exchange.declare).
        what = f"declaring exchange {self.name!r}"
        return what, exchange.Declare(
            exchange=self.name,
            type=state.kind,
            passive=what in self._as_they_are,
            durable=state.durable,
            auto_delete=state.auto_delete,
            internal=state.internal,
            arguments=state.arguments,
        )

    def _declare_queue(self) -> Request:
        what = f"declaring queue {self.queue!r}"
        # Durable, whatever the exchange is: it keeps messages while the link is disconnected.
        limits = {"x-expires": self._options.expires, "x-message-ttl": self._options.message_ttl}
        arguments: dict[str, Any] = {name: value for name, value in limits.items() if value is not None}
        return what, queue.Declare(
            queue=self.queue,
            passive=what in self._as_they_are,
            durable=True,
            arguments={**arguments, **PURPOSE},
        )

    def _make_inner(self, inner: str, wanted: Iterable[BindingState]) -> list[Request]:
        # The queue is bound last: what the new exchange gets before that reaches the queue by the other one.
        declare = exchange.Declare(
            exchange=inner, type="fanout", durable=True, internal=True, arguments=PURPOSE
        )
        return [
            (f"declaring exchange {inner!r}", declare),
            *(self._bind(each, inner) for each in wanted),
            (f"binding queue {self.queue!r}", queue.Bind(queue=self.queue, exchange=inner)),
        ]

    def _bind(self, wanted: BindingState, inner: str) -> Request:
        return f"binding to exchange {self.name!r}", exchange.Bind(
            destination=inner, source=self.name, routing_key=wanted.key, arguments=wanted.arguments
        )

    def _unbind(self, wanted: BindingState, inner: str) -> Request:
        return f"unbinding from exchange {self.name!r}", exchange.Unbind(
            destination=inner, source=self.name, routing_key=wanted.key, arguments=wanted.arguments
        )

    def _inner(self, suffix: str) -> str:
        return f"{self.queue} {suffix}"


def queue_name(name: str, here: Place, upstream_vhost: str) -> str:
    """Return the name of the link's queue upstream.  RabbitMQ names its own by the same rule."""
    part = "" if here.vhost == upstream_vhost else f":{here.vhost}:{name}"
    return f"federation: {name} -> {here.cluster}{part}"


def _delete(name: str) -> Request:
    return f"deleting exchange {name!r}", exchange.Delete(exchange=name)
