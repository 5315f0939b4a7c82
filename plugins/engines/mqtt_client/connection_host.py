"""Connection host: connects a connection to the broker and its session."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernel.hosting.connection import Connection, ConnectionOwner, Pause
from kernel.hosting.wire import Wire
from plugins.engines.mqtt_client.session import Session

if TYPE_CHECKING:
    from plugins.engines.mqtt_client.engine import MqttClientEngine


class ConnectionHost(ConnectionOwner):
    """One connection, from the moment when the wire is connected."""

    def __init__(self, engine: MqttClientEngine, wire: Wire) -> None:
        self._engine = engine
        self._host = engine.host
        self._connection = Connection(engine.host, wire, self)
        self.session = Session(engine, engine.host.now())
        self._finish_scheduled = False

    def __repr__(self) -> str:
        return f"<ConnectionHost of {self._engine.name}, {self._connection.unwritten} bytes unwritten>"

    @property
    def ended(self) -> bool:
        """Whether the connection has ended."""
        return self._connection.ended

    def start(self) -> None:
        """Start reading, and send CONNECT."""
        self.session.begin()
        self._connection.start()
        self.finish()

    def pending(self) -> bool:
        """Whether the broker still has to read or acknowledge something."""
        return self._connection.writing or self._engine.outgoing.in_flight > 0

    def hang_up(self, reason: str) -> None:
        """Say DISCONNECT, and close the connection."""
        if not self.ended:
            self.session.end(reason)
            self._connection.close(reason, self.session.last_words())

    def finish(self) -> None:
        """End a turn: send messages to the routes, publish, write.

        While the socket is full nothing more is published: messages wait in the pipes, where they are
        limited.
        """
        connection, session = self._connection, self.session
        if connection.ended:
            return
        now = self._host.now()
        # Messages for the routes first, then publishing, then one write for everything.
        out, more = session.take_output(publish=not connection.writing, now=now)
        if out:
            self._engine.counters.bytes_out += sum(map(len, out))
            connection.send(out)
            if connection.ended:
                return
        if not connection.writing:
            self._engine.outgoing.written()
        # ``close`` still writes what is queued, so that a DISCONNECT reaches the broker.
        if session.ended:
            connection.close(session.reason)
            return
        if self._engine.incoming.stops_reading:
            connection.pause(Pause.ROUTES_FULL)
        else:
            connection.resume(Pause.ROUTES_FULL)
        connection.arm(session.next_deadline())
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
        """The broker has sent something."""
        self._engine.counters.bytes_in += len(data)
        self.session.receive(data, now)
        self.finish()

    def on_eof(self, now: float) -> None:
        """The broker has hung up."""
        self.session.end(self.session.reason or f"{self._engine.peer} hung up")
        self._connection.close(self.session.reason)

    def on_written(self) -> None:
        """The socket has room again: go on publishing."""
        self.finish()

    def next_deadline(self) -> float | None:
        """Return when a ping is due, or the broker counts as lost."""
        return self.session.next_deadline()

    def on_deadline(self, now: float) -> None:
        """Send a ping, or give up a silent broker."""
        self.session.on_deadline(now)
        self.finish()

    def on_not_read(self, now: float) -> None:
        """The socket was not read, so that the silence of the broker says nothing."""
        self.session.is_not_read(now)

    def on_ended(self, reason: str) -> None:
        """The connection has ended."""
        self.session.end(reason)
        self._engine.has_ended(self.session)
