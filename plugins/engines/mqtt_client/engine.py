"""Engine: an MQTT client with one port to the routes, and one connection that is opened again when lost.

``Outgoing`` and ``Incoming`` live as long as the engine: they have this side's part of the session (MQTT 5.0,
4.1).
"""

from __future__ import annotations

import socket
from typing import Any

import msgspec

from kernel.contracts.engine import Host, Port
from kernel.hosting.address import WIRE_TRANSPORTS, parse_address
from kernel.hosting.client_engine import ClientEngine
from kernel.hosting.handshakes import Handshakes
from plugins.engines.mqtt_client.counters import Counters
from plugins.engines.mqtt_client.incoming import Incoming
from plugins.engines.mqtt_client.options import MqttClientOptions, SubscriptionOptions
from plugins.engines.mqtt_client.outgoing import Outgoing
from plugins.engines.mqtt_client.session import Session
from plugins.protocols.mqtt.packet_types import SUBPROTOCOLS


class MqttClientEngine(ClientEngine[Session]):
    """The client engine.  All methods are called in the thread that hosts it, unless they say otherwise."""

    def __init__(self, name: str, options: MqttClientOptions) -> None:
        address = parse_address(options.address, WIRE_TRANSPORTS, "mqtt")
        handshakes = Handshakes(
            address,
            server_side=False,
            tls=options.tls,
            seconds=options.connect_timeout,
            web=options.web,
            subprotocols=SUBPROTOCOLS,
        )
        super().__init__(name, address, handshakes, options.connect_timeout, options.reconnect)
        self.options = options
        # The same after each restart, so that the broker finds the session.
        self.client_id = options.client_id or f"{name}@{socket.gethostname()}"
        self.counters: Counters = Counters()
        self.outgoing = Outgoing(options.in_flight, self.counters, self.has_refused)
        self.incoming = Incoming(options, self.counters)
        self.had_session = False
        """Whether a connection of this engine was accepted."""
        self.has_subscribed = False
        """Whether the broker has accepted all subscriptions in its present session."""

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
        # A broker of version 5 says what it complains of.
        if (why := self.outgoing.lost()) and self.options.version == 4:
            self._last_error = f"{self._last_error}; {why}"
        self.incoming.lost()
        # What came in the last turn of the connection.
        self.incoming.flush()

    def subscribed(self) -> None:
        """The broker has accepted all subscriptions."""
        self.has_subscribed = True
        self.all_subscribed()

    def subscribe(self, subscriptions: tuple[SubscriptionOptions, ...]) -> None:
        """Ask again for what the broker has refused."""
        if self.connection is not None:
            self.connection.session.subscribe(subscriptions)
            self.connection.finish()

    # Called by the port.

    def on_writable(self) -> None:
        """The pipes have room again: go on with messages of the broker."""
        self.incoming.going = True
        if self.connection is None:
            # What came on the last connection.
            self.incoming.flush()
        else:
            self.connection.finish()

    def on_confirmed(self, position: int) -> None:
        """The routes have confirmed everything up to ``position``: acknowledge it to the broker."""
        self.incoming.confirmed(position)
        if self.connection is not None:
            self.connection.finish()
