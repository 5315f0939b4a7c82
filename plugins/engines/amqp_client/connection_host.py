"""Connection host: connects a connection to a server, its protocol conversation and its session."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernel.hosting.client_host import ClientHost
from kernel.hosting.wire import Wire
from plugins.engines.amqp_client.session import Session
from plugins.protocols.amqp091.connection import ClientConnection

if TYPE_CHECKING:
    from plugins.engines.amqp_client.link import Link


class ConnectionHost(ClientHost[Session]):
    """One connection, from the moment when the wire is connected."""

    def __init__(self, link: Link, wire: Wire, conversation: ClientConnection) -> None:
        super().__init__(link.host, wire, link.counters)
        self._link = link
        self._conversation = conversation
        self.session = link.make_session(link, conversation, self.finish)

    def __repr__(self) -> str:
        return f"<ConnectionHost {self.session!r}, {self.connection.unwritten} bytes unwritten>"

    def pending(self) -> bool:
        """Whether the server still has to read or confirm something."""
        return self.connection.writing or self.session.unconfirmed > 0

    def hang_up(self, reason: str) -> None:
        """Close the conversation and the connection."""
        if not self.ended:
            self.session.end(reason)
            self._conversation.close(200, reason)
            self.connection.close(reason, self._conversation.data_to_send())

    # Called by the connection.

    def on_data(self, data: bytes, now: float) -> None:
        """The server has sent something."""
        self._link.counters.bytes_in += len(data)
        self.session.handle(self._conversation.receive_data(data, now))
        self.finish()

    def on_eof(self, now: float) -> None:
        """The server has hung up."""
        self.session.handle(self._conversation.receive_eof(now))
        self.connection.close("the server hung up")

    def on_deadline(self, now: float) -> None:
        """Send a heartbeat, or give up a silent server."""
        self.session.handle(self._conversation.handle_timeout(now))
        self.finish()

    def on_not_read(self, now: float) -> None:
        """The socket was not read, so that the silence of the server says nothing."""
        self._conversation.is_not_read(now)

    def on_ended(self, reason: str) -> None:
        """The connection has ended."""
        self.session.end(reason)
        self._link.has_ended(self.session.reason or reason, self.session.refused_with)
