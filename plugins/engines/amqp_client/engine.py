"""Engine: an AMQP 0-9-1 client with one port to the routes, and a link for each direction that is used.

The port exists as long as the engine: its pipes keep the messages that come while there is no connection.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import trio

from kernel.contracts.engine import Host, Port
from plugins.engines.amqp_client.client_sessions import ConsumeSession, PublishSession
from plugins.engines.amqp_client.consumer import Quota
from plugins.engines.amqp_client.link import Link
from plugins.engines.amqp_client.options import AmqpClientOptions
from plugins.protocols.amqp091.connection import ClientConnection


class AmqpClient:
    """The client engine.  All methods are called in the thread that hosts it."""

    host: Host
    port: Port

    def __init__(self, name: str, options: AmqpClientOptions) -> None:
        self.name = name
        self.options = options
        self.publishing = Link(name, "publishing", options, self._publish)
        self.consuming: Link | None = None
        # Quotas outlive connections: ``stop_after`` counts over all of them.
        self._quotas = [Quota(each.stop_after) for each in options.consume]
        # A client that only consumes needs no second connection.  One that does both publishes only after the
        # consuming connection has declared everything, so that messages find their exchanges and queues.
        self._may_publish = self._has_output = not options.consume
        if options.consume:
            self.consuming = Link(name, "consuming", options, self._consume, self._consuming_usable)
        self._publishing_wanted = trio.Event()

    def __repr__(self) -> str:
        return f"<AmqpClient {self.name}, {self.links()}>"

    def links(self) -> list[Link]:
        """Return the links in use."""
        links = [self.consuming] if self.consuming is not None else []
        return [*links, self.publishing] if self._may_publish and self._has_output else links

    async def run(self, host: Host, *, task_status: trio.TaskStatus[str]) -> None:
        """Keep the connections up until cancelled."""
        self.host = host
        for link in (self.publishing, self.consuming):
            if link is not None:
                link.host = host
        self.port = host.port(self.name, self)
        task_status.started(str(self.publishing.dialling.addresses[0]))
        if self.consuming is not None:
            host.nursery.start_soon(self.consuming.run, host)
        self._start_publishing_if_wanted()
        # A client that consumes opens this connection only when messages come for it.
        await self._publishing_wanted.wait()
        await self.publishing.run(host)

    def pending(self) -> bool:
        """Whether a connected server still has to read or confirm something."""
        connections = [link.connection for link in self.links()]
        return any(connection is not None and connection.pending() for connection in connections)

    def statistics(self) -> dict[str, Any]:
        """The current figures, summed over both links."""
        links = self.links()
        connection = self.publishing.connection
        sums: dict[str, Any] = msgspec.structs.asdict(self.publishing.counters)
        if self.consuming is not None:
            for name, count in msgspec.structs.asdict(self.consuming.counters).items():
                sums[name] += count
        rows = [link.row() for link in links]
        return {
            **sums,
            "connections": sum(link.usable for link in links),
            "reconnects": sum(link.reconnects for link in links),
            "attempts": max((row["attempts"] for row in rows), default=0),
            "in_flight": connection.session.unconfirmed if connection is not None else 0,
            "blocked": any(row["state"] == "blocked" for row in rows),
            "finished": sum(quota.finished for quota in self._quotas),
            "links": rows,
        }

    def _publish(
        self, link: Link, connection: ClientConnection, finish: Callable[[], None]
    ) -> PublishSession:
        return PublishSession(link, connection, finish, self.port, self.options)

    def _consume(
        self, link: Link, connection: ClientConnection, finish: Callable[[], None]
    ) -> ConsumeSession:
        return ConsumeSession(link, connection, finish, self.port, self.options, self._quotas)

    def _start_publishing_if_wanted(self) -> None:
        if self._may_publish and self._has_output:
            self._publishing_wanted.set()

    def _consuming_usable(self) -> None:
        self._may_publish = True
        self._start_publishing_if_wanted()

    # Called by the port.

    def on_output(self) -> None:
        """Messages wait in the pipes: publish them if there is a connection."""
        # The first messages for a client that consumes: now it needs the publishing connection.
        if not self._has_output:
            self._has_output = True
            self._start_publishing_if_wanted()
        self.publishing.finish()

    def on_writable(self) -> None:
        """The pipes have room again: go on with consumed messages."""
        if self.consuming is not None and self.consuming.connection is not None:
            self.consuming.connection.session.inbound.going = True
            self.consuming.connection.finish()

    def on_confirmed(self, position: int) -> None:
        """The routes have confirmed everything up to ``position``: acknowledge it to the server."""
        if self.consuming is not None and self.consuming.connection is not None:
            self.consuming.connection.session.inbound.confirmed(position)
            self.consuming.connection.finish()
