"""Watches: what others in this kernel want to be told of a broker: an exchange's bindings, a queue's wish for more.

They are told how things stand, not what happened: whoever missed something is right again after the next word.  A
``Watches`` waits under ``place_of(engine)`` in the kernel's rendezvous, made by whoever comes first; so a watcher may
be there before its broker, and stay when the broker comes anew.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from threading import Lock
from typing import TYPE_CHECKING, Any, Literal

import msgspec

if TYPE_CHECKING:
    from plugins.engines.broker.exchange import Exchange
    from plugins.engines.broker.queue import Queue
    from plugins.engines.broker.virtual_host import VirtualHost


class Wanted(msgspec.Struct, frozen=True):
    """A binding, whatever it leads to.  Two that ask for the same are equal."""

    key: str
    arguments: Mapping[str, Any]

    def __hash__(self) -> int:
        return hash((self.key, repr(sorted(self.arguments.items()))))


class ExchangeState(msgspec.Struct, frozen=True, kw_only=True):
    """An exchange, and what is wanted of it."""

    kind: str
    durable: bool
    auto_delete: bool
    internal: bool
    arguments: Mapping[str, Any]
    bindings: frozenset[Wanted]


class QueueState(msgspec.Struct, frozen=True, kw_only=True):
    """A queue."""

    durable: bool
    auto_delete: bool
    arguments: Mapping[str, Any]
    wants_more: bool
    """Whether it is empty while a consumer of its own could take a message (one of a priority not below 0)."""


class BrokerState(msgspec.Struct, frozen=True, kw_only=True):
    """The broker itself."""

    cluster_name: str
    """What other brokers call it; empty: it has no name."""
    vhost: str
    """The virtual host in which things are watched: the one that messages from routes go to."""


class Watch(msgspec.Struct, eq=False):
    """What one watcher wants to know."""

    what: Literal["broker", "exchange", "queue"]
    name: str
    tell: Callable[[Any], None]
    """Called in the broker's thread with the state of the thing; with None when it is not there."""
    told: Any = None
    seen: int = -1
    """Up to which change of bindings it has been looked at."""


class Watches:
    """All watchers of one broker."""

    def __init__(self) -> None:
        self._watches: dict[Watch, None] = {}
        self._vhost: VirtualHost | None = None
        self._state: BrokerState | None = None
        self._post: Callable[[Callable[[], Any]], None] = _nowhere
        self._changing = Lock()

    # For watchers, from any thread

    def add(self, watch: Watch) -> None:
        """Begin to tell."""
        self._watches[watch] = None
        self._post(self.look)

    def remove(self, watch: Watch) -> None:
        """Tell no more."""
        self._watches.pop(watch, None)

    # For the front-end, in its thread

    def open(self, vhost: VirtualHost, cluster_name: str, post: Callable[[Callable[[], Any]], None]) -> None:
        """The broker is there."""
        with self._changing:
            self._vhost = vhost
            self._state = BrokerState(cluster_name=cluster_name, vhost=vhost.name)
            self._post = post
        for watch in list(self._watches):  # what was seen was another one's
            watch.seen = -1
        self.look()

    def close(self, vhost: VirtualHost) -> None:
        """The broker goes; one that came in its place, in another thread, may be there before it is gone."""
        with self._changing:
            if self._vhost is not vhost:
                return
            self._vhost = self._state = None
            self._post = _nowhere
        self.look()

    def look(self) -> None:
        """Tell everybody what is not as they were told; at the end of each turn."""
        if not self._watches:
            return
        for watch in list(self._watches):
            if watch.what == "exchange":
                changes = -1 if self._vhost is None else self._vhost.routes.changes
                if changes == watch.seen >= 0:
                    continue
                watch.seen = changes
            state = self._look_at(watch)
            if state != watch.told:
                watch.told = state
                watch.tell(state)

    def _look_at(self, watch: Watch) -> BrokerState | ExchangeState | QueueState | None:
        if self._vhost is None or watch.what == "broker":
            return self._state
        if watch.what == "exchange":
            exchange = self._vhost.exchanges.get(watch.name)
            return None if exchange is None else _exchange_state(exchange)
        queue = self._vhost.queues.get(watch.name)
        return None if queue is None else _queue_state(queue)


def _nowhere(_: Callable[[], Any]) -> None:
    """There is no broker that could be asked."""


def place_of(engine: str) -> str:
    """Return where in the rendezvous the watches of this engine's broker are."""
    return f"watches of {engine}"


def _exchange_state(exchange: Exchange) -> ExchangeState:
    return ExchangeState(
        kind=exchange.kind,
        durable=exchange.durable,
        auto_delete=exchange.auto_delete,
        internal=exchange.internal,
        arguments=exchange.arguments,
        bindings=frozenset(Wanted(each.key, each.arguments) for each in exchange.bindings.values()),
    )


def _queue_state(queue: Queue) -> QueueState:
    return QueueState(
        durable=queue.durable,
        auto_delete=queue.auto_delete,
        arguments=queue.arguments,
        wants_more=not queue.backlog.count
        and any(each.priority >= 0 and each.room() > 0 for each in queue.all_consumers()),
    )
