"""Connection host: connects a connection to the broker and its session."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernel.hosting.client_host import ClientHost
from kernel.hosting.wire import Wire
from plugins.engines.stomp_client.session import Session

if TYPE_CHECKING:
    from plugins.engines.stomp_client.engine import StompClientEngine


class ConnectionHost(ClientHost[Session]):
    """One connection, from the moment when the wire is connected."""

    def __init__(self, engine: StompClientEngine, wire: Wire) -> None:
        super().__init__(engine.host, wire, engine.counters)
        self._engine = engine
        self.session = Session(engine, engine.host.now())

    def __repr__(self) -> str:
        return f"<ConnectionHost of {self._engine.name}, {self.connection.unwritten} bytes unwritten>"

    def start(self) -> None:
        """Start reading, and send CONNECT."""
        self.session.begin()
        super().start()

    def pending(self) -> bool:
        """Whether the broker still has to read or confirm something."""
        return self.connection.writing or self._engine.outgoing.in_flight > 0

    def hang_up(self, reason: str) -> None:
        """Say DISCONNECT, and close the connection."""
        if not self.ended:
            self.session.end(reason)
            self.connection.close(reason, self.session.last_words())

    # Called by the connection.

    def on_data(self, data: bytes, now: float) -> None:
        """The broker has sent something."""
        self._engine.counters.bytes_in += len(data)
        self.session.receive(data, now)
        self.finish()

    def on_eof(self, now: float) -> None:
        """The broker has hung up."""
        self.session.end(self.session.reason or f"{self._engine.peer} hung up")
        self.connection.close(self.session.reason)

    def on_deadline(self, now: float) -> None:
        """Send a heart-beat, or give up a silent broker."""
        self.session.on_deadline(now)
        self.finish()

    def on_not_read(self, now: float) -> None:
        """The socket was not read, so that the silence of the broker says nothing."""
        self.session.is_not_read(now)

    def on_ended(self, reason: str) -> None:
        """The connection has ended."""
        self.session.end(reason)
        self._engine.has_ended(self.session)
