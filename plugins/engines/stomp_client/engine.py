"""Engine: a STOMP client with one port to the routes, and one connection that is opened again when lost."""

from __future__ import annotations

from typing import Any

import msgspec

from kernel.contracts.engine import Host, Port
from kernel.hosting.address import WIRE_TRANSPORTS, parse_address
from kernel.hosting.client_engine import ClientEngine
from kernel.hosting.handshakes import Handshakes
from plugins.engines.stomp_client.counters import Counters
from plugins.engines.stomp_client.incoming import Incoming
from plugins.engines.stomp_client.options import StompClientOptions, SubscriptionOptions
from plugins.engines.stomp_client.outgoing import Outgoing
from plugins.engines.stomp_client.session import Session
from plugins.protocols.stomp.versions import SUBPROTOCOLS


class StompClientEngine(ClientEngine[Session]):
    """The client engine.  All methods are called in the thread that hosts it, unless they say otherwise."""

    def __init__(self, name: str, options: StompClientOptions) -> None:
        address = parse_address(options.address, WIRE_TRANSPORTS, "stomp")
        handshakes = Handshakes(
            address,
            server_side=False,
            tls=options.tls,
            seconds=options.connect_timeout,
            web=options.web,
            subprotocols=_subprotocols(options),
        )
        super().__init__(name, address, handshakes, options.connect_timeout, options.reconnect)
        self.options = options
        self.counters: Counters = Counters()
        self.outgoing = Outgoing(options.in_flight, self.counters, self.has_refused)
        self.incoming = Incoming(options, self.counters, self.has_refused)
        self.refusals: dict[str, str] = {}
        """Subscriptions that the broker has refused, by their identifiers, and why.  They are left out on the
        next connection, because an ERROR frame ends a connection, and are tried again later."""

    def use_host(self, host: Host, port: Port) -> None:
        """Take what the thread gives to the engine."""
        self.host = host
        self.port = self.outgoing.port = self.incoming.port = port

    def make_session(self) -> Session:
        """Return the conversation for a new connection."""
        return Session(self, self.host.now())

    def statistics(self) -> dict[str, Any]:
        """The current figures.  Any thread."""
        return {
            **msgspec.structs.asdict(self.counters),
            **self.link_statistics(),
            "in_flight": self.outgoing.in_flight,
            "unconfirmed": self.outgoing.unfinished,
        }

    # Called by the session and the connection.

    def lost(self, session: Session) -> None:
        """The connection has ended: forget what belongs to it."""
        self.counters.refusals += session.login_refused
        self.outgoing.lost()
        self.incoming.lost()

    def subscribe(self, subscriptions: tuple[SubscriptionOptions, ...]) -> None:
        """Ask again for what the broker has refused."""
        if self.connection is not None:
            self.connection.session.subscribe(subscriptions)
            self.connection.finish()

    # Called by the port.

    def on_writable(self) -> None:
        """The pipes have room again: go on with messages of the broker."""
        self.incoming.going = True
        self.on_output()

    def on_confirmed(self, position: int) -> None:
        """The routes have confirmed everything up to ``position``: acknowledge it to the broker."""
        self.incoming.confirmed(position)
        self.on_output()


def _subprotocols(options: StompClientOptions) -> tuple[str, ...]:
    """Return the names for WebSocket's handshake of the versions that are offered."""
    names = {f"v{version.replace('.', '')}.stomp" for version in options.versions}
    return tuple(name for name in SUBPROTOCOLS if name in names)
