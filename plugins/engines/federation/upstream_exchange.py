"""Upstream exchange: what a link declares upstream for one exchange, and how it follows the bindings here.

The upstream has a durable queue for the link, which keeps what the link has not acknowledged, and an internal
exchange that leads to it; the bindings wanted here are made between the federated exchange and that internal
one.  Which there are from before nobody can ask over AMQP, so a new connection makes the internal exchange
anew.  Meanwhile a second one leads to the queue: at no moment is something wanted and not bound.
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
        """``as_they_are``: what only has to exist, with whatever arguments (``declaring exchange 'feed'``)."""
        self.name = name
        self.queue = queue_name(name, here, options.vhost)
        self._options = options
        self._as_they_are = as_they_are
        self._bound: frozenset[BindingState] | None = None
        self._asked = self._removing = False
        """Whether something was declared on this connection, and whether it is being deleted."""

    def forget(self) -> None:
        """Forget what is declared: it has to be declared again."""
        self._bound = None

    def leave(self) -> None:
        """Leave what is declared as it is."""
        self._bound = None
        self._asked = self._removing = False

    def removal(self) -> list[Request]:
        """Return the requests that delete everything that this connection may have made for the link."""
        self._bound = None
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
            _delete(first),
            *self._make_inner(first, wanted),
            _delete(interim),
        ]

    def _declare(self, state: ExchangeState) -> Request:
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
        limits = {"x-expires": self._options.expires, "x-message-ttl": self._options.message_ttl}
        arguments: dict[str, Any] = {name: value for name, value in limits.items() if value is not None}
        return what, queue.Declare(
            queue=self.queue,
            passive=what in self._as_they_are,
            durable=True,
            arguments={**arguments, **PURPOSE},
        )

    def _make_inner(self, inner: str, wanted: Iterable[BindingState]) -> list[Request]:
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
    """Return the name of the link's queue upstream, which is RabbitMQ's."""
    part = "" if here.vhost == upstream_vhost else f":{here.vhost}:{name}"
    return f"federation: {name} -> {here.cluster}{part}"


def _delete(name: str) -> Request:
    return f"deleting exchange {name!r}", exchange.Delete(exchange=name)
