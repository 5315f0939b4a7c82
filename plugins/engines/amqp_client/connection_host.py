"""Connection host: connects a connection to a server, its protocol conversation and its session."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernel.hosting.connection import Connection, ConnectionOwner, Pause
from kernel.hosting.wire import Wire
from plugins.protocols.amqp091.connection import ClientConnection

if TYPE_CHECKING:
    from plugins.engines.amqp_client.link import Link


class ConnectionHost(ConnectionOwner):
    """One connection, from the moment when the wire is connected."""

    def __init__(self, link: Link, wire: Wire, conversation: ClientConnection) -> None:
        self._link = link
        self._host = link.host
        self._connection = Connection(link.host, wire, self)
        self._conversation = conversation
        self.session = link.make_session(link, conversation, self.finish)
        self._finish_scheduled = False

    def __repr__(self) -> str:
        return f"<ConnectionHost {self.session!r}, {self._connection.unwritten} bytes unwritten>"

    @property
    def ended(self) -> bool:
        """Whether the connection has ended."""
        return self._connection.ended

    def start(self) -> None:
        """Start reading, and send the protocol header."""
        self._connection.start()
        self.finish()

    def pending(self) -> bool:
        """Whether the server still has to read or confirm something."""
        return self._connection.writing or self.session.unconfirmed > 0

    def hang_up(self, reason: str) -> None:
        """Close the conversation and the connection."""
        if not self.ended:
            self.session.end(reason)
            self._conversation.close(200, reason)
            self._connection.close(reason, self._conversation.data_to_send())

    def finish(self) -> None:
        """End a turn: send consumed messages to the routes, publish, write.

        While the socket is full nothing more is published: messages wait in the pipes, where they are
        limited.
        """
        connection, conversation = self._connection, self._conversation
        if connection.ended:
            return
        # Consumed messages first, then publishing, then one write for everything that both have queued.
        more = self.session.finish(publish=not connection.writing)
        data = conversation.data_to_send()
        if data:
            self._link.counters.bytes_out += sum(map(len, data))
            connection.send(data)
            if connection.ended:
                return
        # ``close`` still writes what is queued, so that close-ok reaches the server.
        if conversation.closed():
            connection.close(self.session.reason)
            return
        if self.session.stops_reading:
            connection.pause(Pause.ROUTES_FULL)
        else:
            connection.resume(Pause.ROUTES_FULL)
        connection.arm(conversation.next_deadline())
        # The rest is published in the next turn of the thread, so that other engines have theirs.  If the
        # socket is full, ``on_written`` goes on.
        if more and not self._finish_scheduled and not connection.writing:
            self._finish_scheduled = True
            self._host.soon(self._finish_later)

    def _finish_later(self) -> None:
        self._finish_scheduled = False
        self.finish()

    # Called by the connection.

    def on_data(self, data: bytes, now: float) -> None:
        """The server has sent something."""
        self._link.counters.bytes_in += len(data)
        self.session.handle(self._conversation.receive_data(data, now))
        self.finish()

    def on_eof(self, now: float) -> None:
        """The server has hung up."""
        self.session.handle(self._conversation.receive_eof(now))
        self._connection.close("the server hung up")

    def on_written(self) -> None:
        """The socket has room again: go on publishing."""
        self.finish()

    def next_deadline(self) -> float | None:
        """Return when a heartbeat is due, or the server counts as lost."""
        return self._conversation.next_deadline()

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
        self._link.has_ended(self.session.reason or reason, refused=self.session.login_refused)
