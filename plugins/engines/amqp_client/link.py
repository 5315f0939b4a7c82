"""Link: one connection to one of several servers, dialled again whenever it is lost."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

import trio

from kernel.contracts.engine import EngineEvent, Host
from kernel.contracts.errors import ConnectionLost
from kernel.hosting.address import Address
from kernel.hosting.backoff import Backoff
from plugins.engines.amqp_client.connect_options import ConnectOptions
from plugins.engines.amqp_client.connection_host import ConnectionHost
from plugins.engines.amqp_client.counters import Counters
from plugins.engines.amqp_client.dialling import Dialling
from plugins.protocols.amqp091.connection import ClientConnection
from plugins.protocols.amqp091.credentials import amqplain_response, plain_response
from plugins.protocols.amqp091.options import ClientOptions

if TYPE_CHECKING:
    from plugins.engines.amqp_client.session import Session

MakeSession: TypeAlias = "Callable[[Link, ClientConnection, Callable[[], None]], Session]"


class Link:
    """Dials, holds one connection, and knows how it stands with it."""

    host: Host

    def __init__(
        self,
        name: str,
        purpose: str,
        options: ConnectOptions,
        make_session: MakeSession,
        on_usable: Callable[[], None] = lambda: None,
    ) -> None:
        """``name``: the engine's.  ``purpose``: what this connection is for, as the operator reads it."""
        self.name = name
        self.purpose = purpose
        self.options = options
        self.make_session = make_session
        self.counters = Counters()
        self.connection: ConnectionHost | None = None
        self.usable = False
        """Logged in, and everything is declared."""
        self.reconnects = 0
        self.last_error = ""
        self.dialling = Dialling(options)
        self._on_usable = on_usable
        self._protocol_options = _protocol_options(options)
        self._backoff = Backoff(options.reconnect)
        self.peer = ""
        self._usable_since = 0.0
        self._next_try: float | None = None
        self._refused = False
        self._over = trio.Event()

    def __repr__(self) -> str:
        return f"<Link of {self.name}, {self.purpose}, {self.state}>"

    async def run(self, host: Host) -> None:
        """Hold a connection until cancelled."""
        self.host = host
        try:
            while True:
                for address in self.dialling.addresses:
                    await self._one_connection(address)
                wait = self._backoff.next_wait()
                self._next_try = wait
                self.report("retrying", self.last_error, wait)
                await trio.sleep(wait)
                self._next_try = None
        finally:
            if self.connection is not None:
                self.connection.hang_up("the client is shut down")

    async def _one_connection(self, address: Address) -> None:
        self.peer = str(address)
        try:
            wire = await self.dialling.connect(address)
        except ConnectionLost as error:
            self.last_error = str(error)
            self._refused = False
            return
        self._over = trio.Event()
        conversation = ClientConnection(self._protocol_options, self.host.now())
        self.hold(ConnectionHost(self, wire, conversation))
        await self._over.wait()
        self.reconnects += 1
        self.report("disconnected", self.last_error)

    def hold(self, connection: ConnectionHost) -> None:
        """Go on with this connection."""
        self.connection = connection
        connection.start()

    # How it stands

    @property
    def state(self) -> str:
        """``connected``, ``blocked`` or ``refused`` by the server, ``connecting``, or ``waiting`` to try again."""
        connection = self.connection
        if connection is None:
            if self._refused:
                return "refused"
            return "connecting" if self._next_try is None else "waiting"
        if connection.session.blocked:
            return "blocked"
        if connection.session.refusal:
            return "refused"
        return "connected" if self.usable else "connecting"

    def row(self) -> dict[str, Any]:
        """What ``kernel status`` shows of it.  Any thread."""
        connection, next_try = self.connection, self._next_try
        error = self.last_error
        if connection is not None:
            error = connection.session.blocked or connection.session.refusal
            next_try = connection.session.next_try
        return {
            "link": self.purpose,
            "state": self.state,
            "peer": self.peer,
            "attempts": 0 if self.usable else self._backoff.attempts,
            "next_try": None if next_try is None else round(next_try, 1),
            "last_error": error,
        }

    # From the connection

    def is_usable(self) -> None:
        """Logged in, and everything is declared."""
        if not self.usable:
            self.usable = True
            self._usable_since = self.host.now()
            self._refused = False
            self.report("connected", self.purpose)
            self._on_usable()

    def has_ended(self, reason: str, *, refused: bool) -> None:
        """The connection is over; ``refused``: the server would not let us in."""
        self.connection = None
        self.last_error = reason
        self._refused = refused
        self.counters.refusals += refused
        if self.usable:
            self.usable = False
            self._backoff.lasted(self.host.now() - self._usable_since)
        self._over.set()

    def finish(self) -> None:
        """End a turn in which something came for the connection."""
        if self.connection is not None:
            self.connection.finish()

    def report(self, what: str, detail: str = "", next_try: float | None = None) -> None:
        """Tell the operator."""
        self.host.report(
            EngineEvent(engine=self.name, what=what, peer=self.peer, detail=detail, next_try=next_try)
        )


def _protocol_options(options: ConnectOptions) -> ClientOptions:
    responses = {
        "PLAIN": plain_response(options.user, options.password),
        "AMQPLAIN": amqplain_response(options.user, options.password),
        "EXTERNAL": b"",
    }
    return ClientOptions(
        frame_max=options.frame_max,
        heartbeat=options.heartbeat,
        handshake_timeout=options.connect_timeout,
        max_body_size=options.max_body_bytes,
        mechanism=options.mechanism,
        response=responses[options.mechanism],
        virtual_host=options.vhost,
    )
