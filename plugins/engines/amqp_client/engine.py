"""Engine: an AMQP 0-9-1 client.  It dials, holds one connection, and has one port to the routes.

The port lives as long as the engine: its pipes keep what comes while there is no connection.
"""

from __future__ import annotations

from typing import Any

import msgspec
import trio

from kernel.contracts.engine import EngineEvent, Host, Port
from kernel.contracts.errors import ConnectionLost
from kernel.hosting.address import Address
from kernel.hosting.backoff import Backoff
from plugins.engines.amqp_client.connection_host import ConnectionHost
from plugins.engines.amqp_client.dialling import Dialling
from plugins.engines.amqp_client.options import AmqpClientOptions
from plugins.protocols.amqp091.connection import ClientConnection
from plugins.protocols.amqp091.credentials import plain_response
from plugins.protocols.amqp091.options import ClientOptions


class Counters(msgspec.Struct, gc=False):
    """Sums over all connections so far."""

    messages_in: int = 0
    messages_out: int = 0
    messages_nacked: int = 0
    """Refused by the server, and sent again."""
    messages_returned: int = 0
    """Confirmed by the server although no queue wanted them."""
    messages_refused: int = 0
    """Dropped here: AMQP has no way to say their envelope."""
    bytes_in: int = 0
    bytes_out: int = 0


class AmqpClient:
    """The client.  ``run`` dials; all else is called by the thread that hosts it."""

    host: Host
    port: Port

    def __init__(self, name: str, options: AmqpClientOptions) -> None:
        self.name = name
        self.options = options
        self.counters = Counters()
        self._dialling = Dialling(options)
        self._protocol_options = ClientOptions(
            frame_max=options.frame_max,
            heartbeat=options.heartbeat,
            handshake_timeout=options.connect_timeout,
            max_body_size=options.max_body_bytes,
            response=plain_response(options.user, options.password),
            virtual_host=options.vhost,
        )
        self._backoff = Backoff(options.reconnect)
        self._connection: ConnectionHost | None = None
        self._peer = ""
        self._usable = False
        self._over = trio.Event()
        self._reason = ""
        self._reconnects = 0

    def __repr__(self) -> str:
        return f"<AmqpClient {self.name}, {self._connection or 'not connected'}>"

    async def run(self, host: Host, *, task_status: trio.TaskStatus[str]) -> None:
        """Hold a connection until cancelled."""
        self.host = host
        self.port = host.port(self.name, self)
        task_status.started(str(self._dialling.addresses[0]))
        try:
            while True:
                for address in self._dialling.addresses:
                    await self._one_connection(address)
                wait = self._backoff.next_wait()
                self.report("retrying", self._reason, wait)
                await trio.sleep(wait)
        finally:
            if self._connection is not None:
                self._connection.hang_up("the client is shut down")

    def pending(self) -> bool:
        """Whether something waits for a server that is there."""
        return self._connection is not None and self._connection.pending()

    def statistics(self) -> dict[str, Any]:
        """Counters of this moment."""
        connection = self._connection
        return {
            **msgspec.structs.asdict(self.counters),
            "connections": int(self._usable),
            "reconnects": self._reconnects,
            "attempts": self._backoff.attempts,
            "in_flight": connection.session.publisher.unconfirmed if connection is not None else 0,
        }

    async def _one_connection(self, address: Address) -> None:
        self._peer = str(address)
        try:
            wire = await self._dialling.connect(address)
        except ConnectionLost as error:
            self._reason = str(error)
            return
        self._over = trio.Event()
        conversation = ClientConnection(self._protocol_options, self.host.now())
        self._connection = ConnectionHost(self, wire, conversation)
        self._connection.start()
        await self._over.wait()
        self._reconnects += 1
        self.report("disconnected", self._reason)

    # From the connection

    def is_usable(self) -> None:
        """Logged in, and everything is declared."""
        if not self._usable:
            self._usable = True
            self._backoff.succeeded()
            self.report("connected")

    def has_ended(self, reason: str) -> None:
        """The connection is over."""
        self._connection = None
        self._usable = False
        self._reason = reason
        self._over.set()

    def report(self, what: str, detail: str = "", next_try: float | None = None) -> None:
        """Tell the operator."""
        self.host.report(
            EngineEvent(engine=self.name, what=what, peer=self._peer, detail=detail, next_try=next_try)
        )

    # The port's owner

    def on_output(self) -> None:
        """The routes have something: for the connection, if there is one."""
        if self._connection is not None:
            self._connection.finish()

    def on_writable(self) -> None:
        """The routes have room."""
        if self._connection is not None:
            self._connection.session.intake.going = True
            self._connection.finish()

    def on_confirmed(self, count: int) -> None:
        """The routes have confirmed."""
        if self._connection is not None:
            self._connection.session.intake.confirmed(count)
            self._connection.finish()
