"""Link: keeps one connection to one of several servers, and connects again when it is lost."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec
import trio

from kernel.contracts.engine import EngineEvent, Host
from kernel.contracts.errors import ConnectionLost
from kernel.hosting.address import WIRE_TRANSPORTS, Address, parse_address
from kernel.hosting.backoff import Backoff
from kernel.hosting.connecting import connect
from kernel.hosting.handshakes import Handshakes
from kernel.hosting.wire import Wire
from plugins.engines.amqp_client.connect_options import ConnectOptions
from plugins.engines.amqp_client.connection_host import ConnectionHost
from plugins.protocols.amqp091.connection import ClientConnection
from plugins.protocols.amqp091.credentials import amqplain_response, plain_response
from plugins.protocols.amqp091.options import SUBPROTOCOLS, ClientOptions

if TYPE_CHECKING:
    from plugins.engines.amqp_client.session import Session

MakeSession: TypeAlias = "Callable[[Link, ClientConnection, Callable[[], None]], Session]"


class Counters(msgspec.Struct, gc=False):
    """Sums over all connections of a link so far."""

    messages_in: int = 0
    messages_out: int = 0
    messages_nacked: int = 0
    """Refused by the server with basic.nack or basic.reject; they are sent again."""
    messages_returned: int = 0
    """Returned because no queue got them.  The server confirms them all the same."""
    messages_refused: int = 0
    """Dropped here: AMQP cannot express their envelope, or the server does not accept them."""
    messages_lost: int = 0
    """In flight when the connection or channel ended, on routes without confirmation."""
    refusals: int = 0
    """Logins, declarations, consumers and publishers that the server has refused."""
    bytes_in: int = 0
    bytes_out: int = 0


class Dialling:
    """The addresses of one link, with the handshakes of each."""

    def __init__(self, options: ConnectOptions) -> None:
        self.addresses = [parse_address(text, WIRE_TRANSPORTS, "amqp") for text in options.addresses]
        self._timeout = options.connect_timeout
        self._handshakes = {
            address: Handshakes(
                address,
                server_side=False,
                tls=options.tls,
                seconds=options.connect_timeout,
                web=options.web,
                subprotocols=SUBPROTOCOLS,
            )
            for address in self.addresses
        }

    async def connect(self, address: Address) -> Wire:
        """Return a connected wire.  Raises ``ConnectionLost`` with the reason."""
        return await self._handshakes[address].shake(await connect(address, self._timeout))


class Link:
    """Connects, keeps one connection, and knows its state."""

    host: Host

    def __init__(
        self,
        name: str,
        purpose: str,
        options: ConnectOptions,
        make_session: MakeSession,
        on_usable: Callable[[], None] = lambda: None,
    ) -> None:
        """``name``: of the engine.  ``purpose``: what the connection is for, in reports.

        ``on_usable``: called after each login when everything is declared.
        """
        self.name = name
        self.purpose = purpose
        self.options = options
        self.make_session = make_session
        self.counters = Counters()
        self.connection: ConnectionHost | None = None
        self.usable = False
        """Whether the login is complete and everything is declared."""
        self.reconnects = 0
        self.last_error = ""
        self.dialling = Dialling(options)
        self._on_usable = on_usable
        self._protocol_options = _protocol_options(options)
        self._backoff = Backoff(options.reconnect)
        self.peer = ""
        self._usable_since = 0.0
        self._next_try: float | None = None
        self._refused_with = ""
        """The reply code with which the server has refused the last login; empty: it has not."""
        self._over = trio.Event()

    def __repr__(self) -> str:
        return f"<Link of {self.name}, {self.purpose}, {self.state}>"

    async def run(self, host: Host) -> None:
        """Keep a connection up until cancelled."""
        self.host = host
        try:
            while True:
                # No wait between two addresses of a round: the wait is for when all have failed.  A
                # connection that lasted also ends its turn, and the next address is tried at once.
                for address in self.dialling.addresses:
                    await self._one_connection(address)
                wait = self._backoff.next_wait()
                self._next_try = wait
                self.report("retrying", self.last_error, wait)
                await trio.sleep(wait)
                self._next_try = None
        finally:
            if self.connection is not None:
                # This task is cancelled and can wait for nothing.  The wire finishes writing by itself
                # (``Connection.close``).
                self.connection.hang_up("the client is shut down")

    async def _one_connection(self, address: Address) -> None:
        self.peer = str(address)
        try:
            wire = await self.dialling.connect(address)
        except ConnectionLost as error:
            self.last_error = str(error)
            self._refused_with = ""
            return
        # A new event before the connection starts, because it may end at once.
        self._over = trio.Event()
        conversation = ClientConnection(self._protocol_options, self.host.now())
        self.use_connection(ConnectionHost(self, wire, conversation))
        await self._over.wait()
        self.reconnects += 1
        self.report("disconnected", self.last_error, code=self._refused_with)

    def use_connection(self, connection: ConnectionHost) -> None:
        """Start this connection, whose wire is connected."""
        self.connection = connection
        connection.start()

    # The state.

    @property
    def state(self) -> str:
        """``connected``, ``blocked`` or ``refused`` by the server, ``connecting`` or ``waiting``."""
        # Read once: another thread may ask for the state, and the engine's thread may set it to None
        # meanwhile.
        connection = self.connection
        if connection is None:
            if self._refused_with:
                return "refused"
            return "connecting" if self._next_try is None else "waiting"
        if connection.session.blocked:
            return "blocked"
        if connection.session.refusal:
            return "refused"
        return "connected" if self.usable else "connecting"

    def row(self) -> dict[str, Any]:
        """Return what ``kernel status`` shows.  May be called by any thread."""
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

    # Called by the session and the connection host.

    def is_usable(self) -> None:
        """The login is complete and everything is declared."""
        if not self.usable:
            self.usable = True
            self._usable_since = self.host.now()
            self._refused_with = ""
            self.report("connected", self.purpose)
            self._on_usable()

    def has_ended(self, reason: str, refused_with: str) -> None:
        """The connection has ended.

        ``refused_with``: the reply code with which the server has refused the login; empty: it has not.
        """
        self.connection = None
        self.last_error = reason
        self._refused_with = refused_with
        self.counters.refusals += bool(refused_with)
        if self.usable:
            self.usable = False
            # Only a usable connection resets the wait.  One that logs in and is thrown out at the
            # declarations does not.
            self._backoff.lasted(self.host.now() - self._usable_since)
        self._over.set()

    def finish(self) -> None:
        """End a turn in which messages came for the connection."""
        if self.connection is not None:
            self.connection.finish()

    def report(self, what: str, detail: str = "", next_try: float | None = None, code: str = "") -> None:
        """Report an event to the operator.  ``code``: a reply code of AMQP."""
        self.host.report(
            EngineEvent(
                engine=self.name, what=what, peer=self.peer, detail=detail, next_try=next_try, code=code
            )
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
