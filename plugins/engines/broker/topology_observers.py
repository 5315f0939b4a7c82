"""Topology observers: other engines of this kernel observe the exchanges and queues of a broker.

A federation link does.  An observer is told the present state of a thing and not the changes.  So one that
has missed a change is correct again after the next notification.

The ``TopologyObservers`` of a broker are in the kernel's rendezvous under ``topology_observers_key(engine)``.
Whoever comes first creates the object, the observer or the broker.  So an observer may start before the
broker, and stays registered when the broker restarts.

Threads: observers are added and removed by any thread.  Everything else is the broker's thread, which also
calls the callbacks; an observer posts to its own thread from there.  A broker that restarts may come back in
another thread while the old one is still closing, hence the lock.
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


class BindingState(msgspec.Struct, frozen=True):
    """Key and arguments of a binding, without its destination.  Equal ones are one."""

    key: str
    arguments: Mapping[str, Any]

    def __hash__(self) -> int:
        # Arguments may have lists and tables, which cannot be hashed.
        return hash((self.key, repr(sorted(self.arguments.items()))))


class ExchangeState(msgspec.Struct, frozen=True, kw_only=True):
    """An exchange and its bindings."""

    kind: str
    durable: bool
    auto_delete: bool
    internal: bool
    arguments: Mapping[str, Any]
    bindings: frozenset[BindingState]


class QueueState(msgspec.Struct, frozen=True, kw_only=True):
    """A queue, as an observer sees it."""

    durable: bool
    auto_delete: bool
    arguments: Mapping[str, Any]
    wants_more: bool
    """Whether it is empty and a consumer with a priority of at least 0 could take a message."""


class BrokerState(msgspec.Struct, frozen=True, kw_only=True):
    """The name and virtual host of a broker."""

    cluster_name: str
    """The name of the broker among others; empty: none."""
    vhost: str
    """The virtual host that is observed: the one that messages from routes are published to."""


class TopologyObserver(msgspec.Struct, eq=False):
    """One observer of one thing."""

    what: Literal["broker", "exchange", "queue"]
    name: str
    callback: Callable[[Any], None]
    """Called in the broker's thread with the new state of the thing; None: it does not exist."""
    last_state: Any = None
    """The state that the callback was called with last."""
    last_changes: int = -1
    """The count of changes of bindings (``Routes.changes``) when an exchange was examined last."""


class TopologyObservers:
    """All observers of one broker."""

    def __init__(self) -> None:
        self.observers: dict[TopologyObserver, None] = {}
        """All observers.  While there are none, ``notify`` need not be called."""
        self._vhost: VirtualHost | None = None
        self._state: BrokerState | None = None
        self._post: Callable[[Callable[[], Any]], None] = _ignore
        self._lock = Lock()

    # For observers, from any thread

    def add(self, observer: TopologyObserver) -> None:
        """Call the observer's callback now if the thing exists, and after each change."""
        # In this order, so that no observer is missed beside a broker that starts: either ``open`` finds the
        # observer in the dictionary, or this thread finds ``_post`` of the broker.
        self.observers[observer] = None
        self._post(self.notify)

    def remove(self, observer: TopologyObserver) -> None:
        """Do not call the callback any more."""
        self.observers.pop(observer, None)

    # For the broker, in its thread

    def open(self, vhost: VirtualHost, cluster_name: str, post: Callable[[Callable[[], Any]], None]) -> None:
        """The broker has started.  ``post`` has a function called in the broker's thread."""
        with self._lock:
            self._vhost = vhost
            self._state = BrokerState(cluster_name=cluster_name, vhost=vhost.name)
            self._post = post
        # The counts are those of the broker before.  The last states are kept: an observer is not told again
        # what has not changed.
        for observer in list(self.observers):
            observer.last_changes = -1
        self.notify()

    def close(self, vhost: VirtualHost) -> None:
        """The broker stops.

        If its successor, in another thread, has called ``open`` already, nothing changes.
        """
        with self._lock:
            if self._vhost is not vhost:
                return
            self._vhost = self._state = None
            self._post = _ignore
        self.notify()

    def notify(self) -> None:
        """Call the observers of things that have changed.  The engine calls this at the end of each turn."""
        # A copy, because other threads add and remove observers.
        for observer in list(self.observers):
            if observer.what == "exchange":
                # Without a change of bindings, the set of them is not built again: it may be large.
                changes = -1 if self._vhost is None else self._vhost.routes.changes
                if changes == observer.last_changes >= 0:
                    continue
                observer.last_changes = changes
            # Queues are examined each turn: what they want changes with the messages, which nothing counts.
            state = self._state_of(observer)
            if state != observer.last_state:
                observer.last_state = state
                observer.callback(state)

    def _state_of(self, observer: TopologyObserver) -> BrokerState | ExchangeState | QueueState | None:
        if self._vhost is None or observer.what == "broker":
            return self._state
        if observer.what == "exchange":
            exchange = self._vhost.exchanges.get(observer.name)
            return None if exchange is None else _exchange_state(exchange)
        queue = self._vhost.queues.get(observer.name)
        return None if queue is None else _queue_state(queue)


def _ignore(_: Callable[[], Any]) -> None:
    """There is no broker: the next one notifies all observers when it starts."""


def topology_observers_key(engine: str) -> str:
    """Return the key in the rendezvous for the observers of this engine's broker."""
    return f"topology observers of {engine}"


def _exchange_state(exchange: Exchange) -> ExchangeState:
    return ExchangeState(
        kind=exchange.kind,
        durable=exchange.durable,
        auto_delete=exchange.auto_delete,
        internal=exchange.internal,
        arguments=exchange.arguments,
        bindings=frozenset(BindingState(each.key, each.arguments) for each in exchange.bindings.values()),
    )


def _queue_state(queue: Queue) -> QueueState:
    # Consumers with a negative priority are links that pass messages on, see ``LOW_PRIORITY`` in federation.
    # Two brokers that are each other's upstream would otherwise move messages to and fro.
    return QueueState(
        durable=queue.durable,
        auto_delete=queue.auto_delete,
        arguments=queue.arguments,
        wants_more=not queue.backlog.count
        and any(each.priority >= 0 and each.has_room() for each in queue.all_consumers()),
    )
