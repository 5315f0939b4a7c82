"""Engine: an MQTT client with one port to the routes, and one connection, which it opens again when it is lost.

The port exists as long as the engine: its pipes keep the messages that come while there is no connection.  So
do ``Outgoing`` and ``Incoming``, which have this side's part of the session (MQTT 5.0, 4.1).
"""

from __future__ import annotations

import socket
from functools import partial
from typing import Any

import msgspec
import trio

from kernel.contracts.engine import EngineEvent, Host, Port
from kernel.contracts.errors import ConnectionLost
from kernel.hosting.address import WIRE_TRANSPORTS, parse_address
from kernel.hosting.backoff import Backoff
from kernel.hosting.connecting import connect
from kernel.hosting.handshakes import Handshakes
from kernel.hosting.wire import Wire
from plugins.engines.mqtt_client.connection_host import ConnectionHost
from plugins.engines.mqtt_client.counters import Counters
from plugins.engines.mqtt_client.incoming import Incoming
from plugins.engines.mqtt_client.options import MqttClientOptions, SubscriptionOptions
from plugins.engines.mqtt_client.outgoing import Outgoing
from plugins.engines.mqtt_client.session import Session
from plugins.protocols.mqtt.packet_types import SUBPROTOCOLS


class MqttClientEngine:
    """The client engine.  All methods are called in the thread that hosts it, unless they say otherwise."""

    host: Host
    port: Port

    def __init__(self, name: str, options: MqttClientOptions) -> None:
        self.name = name
        self.options = options
        # The same after each restart, so that the broker finds the session.
        self.client_id = options.client_id or f"{name}@{socket.gethostname()}"
        self.counters = Counters()
        self.outgoing = Outgoing(options.in_flight, self.counters, self._has_refused)
        self.incoming = Incoming(options, self.counters)
        self.had_session = False
        """Whether a connection of this engine was accepted."""
        self.has_subscribed = False
        """Whether the broker has accepted all subscriptions in its present session."""
        self._address = parse_address(options.address, WIRE_TRANSPORTS, "mqtt")
        self.peer = str(self._address)
        """The broker's address, for reports."""
        self._handshakes = Handshakes(
            self._address,
            server_side=False,
            tls=options.tls,
            seconds=options.connect_timeout,
            web=options.web,
            subprotocols=SUBPROTOCOLS,
        )
        self._backoff = Backoff(options.reconnect)
        self._subscribe_backoff = Backoff(options.reconnect)
        self._connection: ConnectionHost | None = None
        self._over = trio.Event()
        self._usable_since: float | None = None
        self._reconnects = 0
        self._last_error = ""
        self._login_refused = False
        self._next_try: float | None = None
        self._refusals_reported: set[str] = set()

    def __repr__(self) -> str:
        return f"<MqttClientEngine {self.name}, {self.state}>"

    async def run(self, host: Host, *, task_status: trio.TaskStatus[str]) -> None:
        """Keep a connection up until cancelled."""
        self.use_host(host, host.port(self.name, self))
        task_status.started(self.peer)
        try:
            while True:
                await self._one_connection()
                wait = self._backoff.next_wait()
                self._next_try = wait
                self.report("retrying", self._last_error, wait)
                await trio.sleep(wait)
                self._next_try = None
        finally:
            if self._connection is not None:
                # This task is cancelled and can wait for nothing.  The wire finishes writing by itself.
                self._connection.hang_up("the client is shut down")

    def use_host(self, host: Host, port: Port) -> None:
        """Take what the thread gives to the engine."""
        self.host = host
        self.port = self.outgoing.port = self.incoming.port = port

    async def _one_connection(self) -> None:
        try:
            connected = await connect(self._address, self.options.connect_timeout)
            wire = await self._handshakes.shake(connected)
        except ConnectionLost as error:
            self._last_error = str(error)
            self._login_refused = False
            return
        # A new event before the connection starts, because it may end at once.
        self._over = trio.Event()
        self.use_wire(wire)
        await self._over.wait()

    def use_wire(self, wire: Wire) -> None:
        """Start a conversation over a wire that is connected."""
        self._connection = ConnectionHost(self, wire)
        self._connection.start()

    # The state.  These may be called by any thread.

    @property
    def state(self) -> str:
        """``connected``; ``refused``: the login or a subscription; ``connecting`` or ``waiting``."""
        # Read once: the engine's thread may set it to None meanwhile.
        connection = self._connection
        if connection is None:
            if self._login_refused:
                return "refused"
            return "connecting" if self._next_try is None else "waiting"
        if connection.session.refusals:
            return "refused"
        return "connected" if connection.session.usable else "connecting"

    def pending(self) -> bool:
        """Whether a connected broker still has to read or acknowledge something."""
        connection = self._connection
        return connection is not None and connection.pending()

    def statistics(self) -> dict[str, Any]:
        """The current figures."""
        connection, next_try, error = self._connection, self._next_try, self._last_error
        usable = False
        if connection is not None:
            session = connection.session
            usable, next_try = session.usable, session.next_try
            error = next(iter(list(session.refusals.values())), "")
        attempts = 0 if usable else self._backoff.attempts
        return {
            **msgspec.structs.asdict(self.counters),
            "connections": int(usable),
            "reconnects": self._reconnects,
            "attempts": attempts,
            "in_flight": self.outgoing.in_flight,
            "unconfirmed": self.outgoing.unfinished,
            "links": [
                {
                    "link": "session",
                    "state": self.state,
                    "peer": self.peer,
                    "attempts": attempts,
                    "next_try": None if next_try is None else round(next_try, 1),
                    "last_error": error,
                }
            ],
        }

    # Called by the session and the connection host.

    def is_usable(self) -> None:
        """The broker has accepted the connection and answered the subscriptions."""
        self._usable_since = self.host.now()
        self._login_refused = False
        self.report("connected")

    def has_ended(self, session: Session) -> None:
        """The connection has ended."""
        self._connection = None
        self._last_error = session.reason
        self._login_refused = session.login_refused
        self.counters.refusals += session.login_refused
        self.outgoing.lost()
        self.incoming.lost()
        # What came in the last turn of the connection.
        self.incoming.flush()
        self._refusals_reported.clear()
        self.host.set_timer(None, _nothing, self)
        if self._usable_since is not None:
            # Only a connection that was of use resets the wait.
            self._backoff.lasted(self.host.now() - self._usable_since)
            self._usable_since = None
            self._reconnects += 1
            self.report("disconnected", session.reason)
        elif session.login_refused:
            self.report("refused", session.reason)
        self._over.set()

    def subscribe_later(self, subscriptions: tuple[SubscriptionOptions, ...]) -> float:
        """Ask again for what the broker has refused, after a wait; return its seconds."""
        wait = self._subscribe_backoff.next_wait()
        self.host.set_timer(self.host.now() + wait, partial(self._subscribe, subscriptions), self)
        return wait

    def subscribed(self) -> None:
        """The broker has accepted all subscriptions."""
        self.has_subscribed = True
        self._subscribe_backoff.succeeded()

    def _subscribe(self, subscriptions: tuple[SubscriptionOptions, ...]) -> None:
        if self._connection is not None:
            self._connection.session.subscribe(subscriptions)
            self._connection.finish()

    def _has_refused(self, key: str, reason: str) -> None:
        # The first one with each reason on a connection.  The counter has the number.
        if reason not in self._refusals_reported and len(self._refusals_reported) < 100:
            self._refusals_reported.add(reason)
            self.report("refused", f"a message with key {key[:80]!r}: {reason}")

    def report(self, what: str, detail: str = "", next_try: float | None = None) -> None:
        """Report an event to the operator."""
        self.host.report(
            EngineEvent(engine=self.name, what=what, peer=self.peer, detail=detail, next_try=next_try)
        )

    # Called by the port.

    def on_output(self) -> None:
        """Messages wait in the pipes: publish them if there is a connection."""
        self._finish()

    def on_writable(self) -> None:
        """The pipes have room again: go on with messages of the broker."""
        self.incoming.going = True
        if self._connection is None:
            # What came on the last connection.
            self.incoming.flush()
        self._finish()

    def on_confirmed(self, position: int) -> None:
        """The routes have confirmed everything up to ``position``: acknowledge it to the broker."""
        self.incoming.confirmed(position)
        self._finish()

    def _finish(self) -> None:
        if self._connection is not None:
            self._connection.finish()


def _nothing() -> None:
    """A callback for a timer that is only cancelled."""
