"""Client engine: keeps one connection to a server up, and knows its state.

For engines with one port to the routes and one connection, which is opened again when it is lost.  The port
exists as long as the engine: its pipes keep the messages that come while there is no connection.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

import trio

from kernel.contracts.engine import EngineEvent, Host, Port
from kernel.contracts.errors import ConnectionLost
from kernel.contracts.message import Buffer
from kernel.hosting.address import Address
from kernel.hosting.backoff import Backoff, BackoffOptions
from kernel.hosting.client_host import ByteCounters, ClientHost, ClientSession
from kernel.hosting.connecting import connect
from kernel.hosting.handshakes import Handshakes
from kernel.hosting.wire import Wire

_MOST_REASONS = 100
"""Reasons of refused messages that are reported on one connection."""


class SubscribingSession(ClientSession, Protocol):
    """What a client engine needs of the conversation on one connection."""

    usable: bool
    """Whether the server has accepted the connection and answered the subscriptions."""
    login_refused: bool
    next_try: float | None
    """Seconds of the wait after which refused subscriptions are tried again; None: none is."""

    @property
    def refusals(self) -> Mapping[str, str]:
        """Subscriptions that the server has refused, and why."""
        ...

    @property
    def in_flight(self) -> int:
        """Messages that were sent and that the server has to confirm."""
        ...

    def begin(self) -> None:
        """Send what begins the conversation."""
        ...

    def receive(self, data: bytes, now: float) -> None:
        """Process what the server has sent."""
        ...

    def on_deadline(self, now: float) -> None:
        """Send what is due, or give up a silent server."""
        ...

    def is_not_read(self, now: float) -> None:
        """The socket was not read, so that the silence of the server says nothing."""
        ...

    def end(self, reason: str) -> None:
        """The conversation has ended, or has to."""
        ...

    def last_words(self) -> Sequence[Buffer]:
        """Return what is still to be sent, and what ends the conversation in good order."""
        ...


S = TypeVar("S", bound=SubscribingSession)


class ClientEngine(ABC, Generic[S]):
    """The engine.  All methods are called in the thread that hosts it, unless they say otherwise."""

    host: Host
    port: Port
    counters: ByteCounters

    def __init__(
        self,
        name: str,
        address: Address,
        handshakes: Handshakes,
        connect_timeout: float,
        reconnect: BackoffOptions,
    ) -> None:
        self.name: str = name
        self.peer: str = str(address)
        """The server's address, for reports."""
        self.connection: ClientConnection[S] | None = None
        self.reconnects: int = 0
        self._address = address
        self._handshakes = handshakes
        self._connect_timeout = connect_timeout
        self._backoff = Backoff(reconnect)
        self._subscribe_backoff = Backoff(reconnect)
        self._over = trio.Event()
        self._usable_since: float | None = None
        self._last_error = ""
        self._login_refused = False
        self._next_try: float | None = None
        self._reported: set[str] = set()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}, {self.state}>"

    # For subclasses

    @abstractmethod
    def use_host(self, host: Host, port: Port) -> None:
        """Take what the thread gives to the engine."""

    @abstractmethod
    def make_session(self) -> S:
        """Return the conversation for a new connection."""

    @abstractmethod
    def lost(self, session: Any) -> None:
        """The connection has ended: forget what belongs to it."""

    @abstractmethod
    def subscribe(self, subscriptions: Any) -> None:
        """Ask again for what the server has refused."""

    # The connection

    async def run(self, host: Host, *, task_status: trio.TaskStatus[str]) -> None:
        """Keep a connection up until cancelled."""
        self.use_host(host, host.port(self.name, self))  # type: ignore[arg-type]  # subclasses are owners
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
            if self.connection is not None:
                # This task is cancelled and can wait for nothing.  The wire finishes writing by itself.
                self.connection.hang_up("the client is shut down")

    async def _one_connection(self) -> None:
        try:
            connected = await connect(self._address, self._connect_timeout)
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
        self.connection = ClientConnection(self, wire, self.make_session())
        self.connection.start()

    # The state.  These may be called by any thread.

    @property
    def state(self) -> str:
        """``connected``; ``refused``: the login or a subscription; ``connecting`` or ``waiting``."""
        # Read once: the engine's thread may set it to None meanwhile.
        connection = self.connection
        if connection is None:
            if self._login_refused:
                return "refused"
            return "connecting" if self._next_try is None else "waiting"
        if connection.session.refusals:
            return "refused"
        return "connected" if connection.session.usable else "connecting"

    def pending(self) -> bool:
        """Whether a connected server still has to read or confirm something."""
        connection = self.connection
        return connection is not None and connection.pending()

    def link_statistics(self) -> dict[str, Any]:
        """Return the figures of the connection."""
        connection, next_try, error = self.connection, self._next_try, self._last_error
        usable = False
        if connection is not None:
            session = connection.session
            usable, next_try = session.usable, session.next_try
            error = next(iter(list(session.refusals.values())), "")
        attempts = 0 if usable else self._backoff.attempts
        return {
            "connections": int(usable),
            "reconnects": self.reconnects,
            "attempts": attempts,
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

    # Called by the session and the connection.

    def is_usable(self) -> None:
        """The server has accepted the connection and answered the subscriptions."""
        self._usable_since = self.host.now()
        self._login_refused = False
        self.report("connected")

    def has_ended(self, session: SubscribingSession) -> None:
        """The connection has ended."""
        self.connection = None
        self._last_error = session.reason
        self._login_refused = session.login_refused
        self.lost(session)
        self._reported.clear()
        self.host.set_timer(None, _nothing, self)
        if self._usable_since is not None:
            # Only a connection that was of use resets the wait.
            self._backoff.lasted(self.host.now() - self._usable_since)
            self._usable_since = None
            self.reconnects += 1
            self.report("disconnected", session.reason)
        elif session.login_refused:
            self.report("refused", session.reason)
        self._over.set()

    def subscribe_later(self, subscriptions: Any) -> float:
        """Ask again for what the server has refused, after a wait; return its seconds."""
        wait = self._subscribe_backoff.next_wait()
        self.host.set_timer(self.host.now() + wait, partial(self.subscribe, subscriptions), self)
        return wait

    def all_subscribed(self) -> None:
        """The server has accepted all subscriptions."""
        self._subscribe_backoff.succeeded()

    def has_refused(self, key: str, reason: str) -> None:
        """Messages with this key were refused: report the first one with each reason on a connection."""
        # The counter has the number.
        if reason not in self._reported and len(self._reported) < _MOST_REASONS:
            self._reported.add(reason)
            self.report("refused", f"a message with key {key[:80]!r}: {reason}")

    def report(self, what: str, detail: str = "", next_try: float | None = None) -> None:
        """Report an event to the operator."""
        self.host.report(
            EngineEvent(engine=self.name, what=what, peer=self.peer, detail=detail, next_try=next_try)
        )

    # Called by the port.

    def on_output(self) -> None:
        """Messages wait in the pipes: publish them if there is a connection."""
        if self.connection is not None:
            self.connection.finish()


class ClientConnection(ClientHost[S]):
    """One connection of a client engine, from the moment when the wire is connected."""

    def __init__(self, engine: ClientEngine[S], wire: Wire, session: S) -> None:
        super().__init__(engine.host, wire, engine.counters)
        self._engine = engine
        self.session: S = session

    def __repr__(self) -> str:
        return f"<ClientConnection of {self._engine.name}, {self.connection.unwritten} bytes unwritten>"

    def start(self) -> None:
        """Start reading, and send what begins the conversation."""
        self.session.begin()
        super().start()

    def pending(self) -> bool:
        """Whether the server still has to read or confirm something."""
        return self.connection.writing or self.session.in_flight > 0

    def hang_up(self, reason: str) -> None:
        """End the conversation in good order, and close the connection."""
        if not self.ended:
            self.session.end(reason)
            self.connection.close(reason, self.session.last_words())

    # Called by the connection.

    def on_data(self, data: bytes, now: float) -> None:
        """The server has sent something."""
        self._engine.counters.bytes_in += len(data)
        written = self.connection.bytes_out
        self.session.receive(data, now)
        self.finish()
        if self.connection.bytes_out == written:
            # What the server sends next may wait until it knows that we have this.
            self.connection.acknowledge()

    def on_eof(self, now: float) -> None:
        """The server has hung up."""
        self.session.end(self.session.reason or f"{self._engine.peer} hung up")
        self.connection.close(self.session.reason)

    def on_deadline(self, now: float) -> None:
        """Send what is due, or give up a silent server."""
        self.session.on_deadline(now)
        self.finish()

    def on_not_read(self, now: float) -> None:
        """The socket was not read, so that the silence of the server says nothing."""
        self.session.is_not_read(now)

    def on_ended(self, reason: str) -> None:
        """The connection has ended."""
        self.session.end(reason)
        self._engine.has_ended(self.session)


def _nothing() -> None:
    """A callback for a timer that is only cancelled."""
