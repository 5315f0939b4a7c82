"""Engine: a federation link.

It is a client of the upstream broker, and has a port whose route leads to the broker here (downstream).
Messages go that way.  What is wanted goes the other way: the topology observers of the broker here report
which exchanges and queues exist, how they are bound, and whether consumers have room.  The link declares
and consumes upstream accordingly.

Observers report states and not changes, so a report that comes late, or twice, does no harm.  They call from
the broker's thread; the link posts what follows to its own.  So broker and link may live in different
threads.  Decision 8 has the reasons.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec
import trio

from kernel.contracts.engine import Host, Port
from plugins.engines.amqp_client.link import Link
from plugins.engines.broker.topology_observers import (
    BrokerState,
    ExchangeState,
    QueueState,
    TopologyObserver,
    TopologyObservers,
    topology_observers_key,
)
from plugins.engines.federation.options import FederationOptions
from plugins.engines.federation.session import FederationSession
from plugins.engines.federation.trace import Place
from plugins.protocols.amqp091.connection import ClientConnection


class Federation:
    """The link.  ``run`` connects; all other methods are called by the thread that hosts it."""

    host: Host
    port: Port

    def __init__(self, name: str, options: FederationOptions) -> None:
        self.name = name
        self.options = options
        self.here = Place("", "/")
        # None: it does not exist here, or the broker has not reported it yet.
        self.exchanges: dict[str, ExchangeState | None] = dict.fromkeys(options.exchanges)
        self.queues: dict[str, QueueState | None] = dict.fromkeys(options.queues)
        self.broker_is_there = False
        self.as_they_are: set[str] = set()
        """What exists upstream with other arguments, by the descriptions of its declarations.

        An example is ``declaring queue 'orders'``.  It is used as it is.  This outlives connections, so that
        each new one is not refused again.
        """
        self.messages_stopped = 0
        """Messages that were not passed on: they have been here before, or have passed too many links."""
        self.link = Link(name, _purpose(options), options, self._make_session)
        self._named = trio.Event()

    def __repr__(self) -> str:
        return f"<Federation {self.name}, {self.link}>"

    async def run(self, host: Host, *, task_status: trio.TaskStatus[str]) -> None:
        """Keep the link connected until cancelled."""
        self.host = self.link.host = host
        self.port = host.port(self.name, self)
        observers: TopologyObservers = host.rendezvous.setdefault(
            topology_observers_key(self.options.broker), TopologyObservers()
        )
        # Registered before the link connects: the broker may be in another thread, and may start later.
        mine = self._make_observers()
        for observer in mine:
            observers.add(observer)
        task_status.started(str(self.link.dialling.addresses[0]))
        try:
            # The name of the broker here is part of the names of everything that is declared upstream.
            await self._named.wait()
            await self.link.run(host)
        finally:
            for observer in mine:
                observers.remove(observer)

    def pending(self) -> bool:
        """Return False: nothing has to be written before the engine ends."""
        return False

    def statistics(self) -> dict[str, Any]:
        """Return the present counters."""
        return {
            **msgspec.structs.asdict(self.link.counters),
            "messages_stopped": self.messages_stopped,
            "connections": int(self.link.usable),
            "reconnects": self.link.reconnects,
            "links": [self.link.row()],
        }

    def _make_session(
        self, link: Link, connection: ClientConnection, finish: Callable[[], None]
    ) -> FederationSession:
        return FederationSession(self, link, connection, finish)

    def _session(self) -> FederationSession | None:
        # The link makes a session for each connection, and has none while it waits or dials.
        connection = self.link.connection
        session = connection.session if connection is not None else None
        return session if isinstance(session, FederationSession) else None

    # The broker's thread calls the observers.  Each posts its state to the thread of this engine.

    def _make_observers(self) -> list[TopologyObserver]:
        def observer(what: Any, name: str, take: Callable[..., None]) -> TopologyObserver:
            return TopologyObserver(what, name, lambda state: self.host.post(partial(take, name, state)))

        return [
            observer("broker", "", self._on_broker),
            *(observer("exchange", name, self._on_exchange) for name in self.exchanges),
            *(observer("queue", name, self._on_queue) for name in self.queues),
        ]

    def _on_broker(self, _: str, state: BrokerState | None) -> None:
        self.broker_is_there = state is not None
        # The broker has stopped.  Its exchanges and queues are reported as absent, too.
        if state is None:
            return
        if not state.cluster_name:
            raise ValueError(
                f"give engine {self.options.broker!r} a cluster_name: upstreams must know it by one"
            )
        self.here = Place(state.cluster_name, state.vhost)
        self._named.set()

    def _on_exchange(self, name: str, state: ExchangeState | None) -> None:
        self.exchanges[name] = state
        self._on_change()

    def _on_queue(self, name: str, state: QueueState | None) -> None:
        appeared = (self.queues[name] is None) != (state is None)
        self.queues[name] = state
        session = self._session()
        # The queue was deleted, or its broker has stopped and may come back without it.
        if session is not None and state is None:
            session.deleted(name)
        # What a queue wants changes with every few messages.  Only when it appears or disappears is there
        # something to declare upstream.
        if session is not None and not appeared:
            session.look()
            self.link.finish()
        else:
            self._on_change()

    def _on_change(self) -> None:
        session = self._session()
        if session is not None:
            session.changed()
            self.link.finish()

    # The port's owner

    def on_output(self) -> None:
        """Never called: ``check_plan`` refuses routes that lead here."""

    def on_writable(self) -> None:
        """The broker has room again: send it what has arrived meanwhile."""
        session = self._session()
        if session is not None:
            session.inbound.going = True
            self.link.finish()

    def on_confirmed(self, position: int) -> None:
        """The broker has the messages: acknowledge them to the upstream."""
        session = self._session()
        # Without a session the connection was lost: the upstream delivers these messages again.
        if session is not None:
            session.inbound.confirmed(position)
            self.link.finish()


def _purpose(options: FederationOptions) -> str:
    parts = [
        f"{what} {', '.join(names)}"
        for what, names in (("exchanges", options.exchanges), ("queues", options.queues))
        if names
    ]
    return "; ".join(parts)
