"""Client host: connects a connection of a client engine with its session, and ends their turns.

A client engine has one connection at a time, and a session for each: the conversation with the server.  After
whatever has happened (input, a deadline, messages on the routes) the turn is ended in one way (``finish``):
the session gives what it has to send, it is written at once, the connection is paused or resumed, and what is
left waits for the next turn of the thread.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, Protocol, TypeVar

from kernel.contracts.engine import Host
from kernel.contracts.message import Buffer
from kernel.hosting.connection import Connection, ConnectionOwner, Pause
from kernel.hosting.wire import Wire


class ClientSession(Protocol):
    """What a client host needs of the conversation with the server.

    ``finished`` and ``stops_reading`` are read right after ``take_output``, so that this may set them.
    """

    reason: str
    """Why the conversation has ended."""
    finished: bool
    """Whether the connection has to be closed when all output is written."""
    written: Callable[[], None] | None
    """Called in each turn in which the socket has taken all output; None: the session need not know."""

    @property
    def stops_reading(self) -> bool:
        """Whether the socket must not be read now, because the routes are full."""
        ...

    def take_output(self, *, publish: bool) -> tuple[Sequence[Buffer], bool]:
        """End a turn: send messages to the routes, and return what has to be written.

        ``publish``: whether the socket has room for messages.  Return also whether more of them wait.
        """
        ...

    @property
    def next_deadline(self) -> Callable[[], float | None]:
        """A function that returns when the session has to be called again; None: not at all."""
        ...


class ByteCounters(Protocol):
    """Where a client host counts what it reads and writes."""

    bytes_in: int
    bytes_out: int


S = TypeVar("S", bound=ClientSession)


class ClientHost(ConnectionOwner, Generic[S]):
    """One connection of a client, from the moment when the wire is connected.

    A subclass sets ``session`` in its constructor, and says what becomes of input, deadlines and the end.
    """

    session: S

    def __init__(self, host: Host, wire: Wire, counters: ByteCounters) -> None:
        self.connection: Connection = Connection(host, wire, self)
        self._host = host
        self._counters = counters
        self._finish_scheduled = False

    @property
    def ended(self) -> bool:
        """Whether the connection has ended."""
        return self.connection.ended

    def start(self) -> None:
        """Start reading, and send what begins the conversation."""
        self.connection.start()
        self.finish()

    def finish(self) -> None:
        """End a turn.

        While the socket is full nothing more is published: messages wait in the pipes, where they are
        limited.
        """
        connection, session = self.connection, self.session
        if connection.ended:
            return
        # Messages for the routes first, then publishing, then one write for everything.
        data, more = session.take_output(publish=not connection.writing)
        if data:
            self._counters.bytes_out += sum(map(len, data))
            connection.send(data)
            if connection.ended:
                return
        if session.written is not None and not connection.writing:
            session.written()
        # ``close`` still writes what is queued, so that the last frame reaches the server.
        if session.finished:
            connection.close(session.reason)
            return
        if session.stops_reading:
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

    def on_written(self) -> None:
        """The socket has room again: go on publishing."""
        self.finish()

    def next_deadline(self) -> float | None:
        """Return when something is due, or the server counts as lost."""
        return self.session.next_deadline()
