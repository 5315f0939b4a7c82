"""Connection host: one client's socket, its protocol conversation and its session, hosted passively.

All that a turn brings for the client is written at its end in one go.  While the socket is full,
the queues hand over no more (the session's window) and, beyond a mark, no more requests are read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from kernel.contracts.errors import LocalProtocolError
from kernel.contracts.message import Buffer
from kernel.hosting.read_size import FIRST_READ_SIZE, next_read_size
from kernel.hosting.unwritten import Unwritten
from kernel.hosting.wire import TlsWire, Wire
from plugins.engines.amqp.inspection import Row, inspect
from plugins.engines.amqp.session import WINDOW_BYTES, Session
from plugins.engines.broker.host.rates import Bucket
from plugins.protocols.amqp091.connection import ServerConnection
from plugins.protocols.amqp091.events import Event
from plugins.protocols.amqp091.frames import HEARTBEAT_FRAME
from plugins.protocols.amqp091.methods import connection as connection_methods
from plugins.protocols.amqp091.states import ConnectionState

if TYPE_CHECKING:
    from plugins.engines.broker.host.engine import BrokerEngine

UNWRITTEN_BYTES = 4 * WINDOW_BYTES
"""A client that leaves so much unread is not read itself: its requests make more."""


TURN_SECONDS = 0.005
"""How long the others may have to wait for what one read brings."""

SMALLEST_READ = 4096


def fair_read_size(size: int, got: int, seconds: float) -> int:
    """Return how many bytes to ask for next: ``size`` were, ``got`` came and took ``seconds`` to deal with.

    256 KiB of equal messages take a millisecond; of methods, or of messages with a key each, a fifth of a second.
    """
    following = next_read_size(size, got, size)
    if seconds <= 0:
        return following
    return min(following, max(SMALLEST_READ, int(got * TURN_SECONDS / seconds)))


class ConnectionHost:
    """One connection of the engine."""

    def __init__(
        self,
        engine: BrokerEngine,
        wire: Wire,
        connection: ServerConnection,
        make_session: Callable[[ServerConnection, Callable[[], None]], Session],
        peer: str,
        publish_rate: float = 0.0,
    ) -> None:
        """``publish_rate``: messages a second that the client may publish; 0: any number."""
        self.peer = peer
        self.ended = False
        self.bytes_in = self.bytes_out = 0
        self._engine = engine
        self._host = engine.host
        self._wire = wire
        self._connection = connection
        self.session = make_session(connection, partial(engine.is_busy, self))
        self._out = Unwritten()
        self._held_back = False
        """Whether reading waits for the routes."""
        self.blocked = False
        """Whether reading waits for an alarm to be lifted."""
        self._watched: tuple[bool, bool] = (False, False)
        self._armed: float | None = None
        self._armed_when_open = False
        self._read_size = FIRST_READ_SIZE
        self._rate = Bucket(publish_rate, self._host.now()) if publish_rate else None
        self.paused = False
        """Whether reading waits because it publishes faster than it may."""

    def __repr__(self) -> str:
        return f"<ConnectionHost {self.peer} {self.session!r}, {self._out.size} bytes unwritten>"

    @property
    def tls(self) -> bool:
        """Whether the client came over TLS."""
        return isinstance(self._wire, TlsWire)

    @property
    def _waits(self) -> bool:
        """Whether it is for us to say when it is read again."""
        return self._held_back or self.blocked or self.paused

    @property
    def unwritten(self) -> int:
        """Bytes that the socket has not taken yet."""
        return self._out.size

    @property
    def messages_in(self) -> int:
        """How many messages the client has published."""
        return self.session.messages_in

    @property
    def messages_out(self) -> int:
        """How many messages were delivered to the client."""
        return self.session.messages_out

    @property
    def held_bytes(self) -> int:
        """About how many bytes the bodies have that the client has not acknowledged."""
        return self.session.held_bytes()

    @property
    def published(self) -> bool:
        """Whether this turn brought messages to publish."""
        return self.session.published

    @property
    def confirming(self) -> bool:
        """Whether a publisher waits to be told."""
        return self.session.confirming

    def inspect(self, what: str) -> list[Row]:
        """Return rows for an operator."""
        return inspect(what, self)

    def start(self) -> None:
        """Begin to listen to the client."""
        self._watch()
        self._arm()

    def hang_up(self, reason: str) -> None:
        """Say good-bye as far as it goes at once, and end."""
        if not self.ended:
            self._connection.close(320, f"CONNECTION_FORCED - {reason}")
            self._write(self._connection.data_to_send())
            if not self.ended:
                self._end(reason)

    def hold_back(self) -> None:
        """The routes are full: read no more for now."""
        self._held_back = True
        self._watch()

    def go_on(self) -> None:
        """The routes have room again."""
        if self._held_back:
            self._held_back = False
            self._watch()

    def block(self, reason: str) -> None:
        """Something runs low: tell the publisher, and read no more of what it sends."""
        if not self.blocked:
            self.blocked = True
            self.session.tell(connection_methods.Blocked(reason=reason))

    def unblock(self) -> None:
        """There is enough again."""
        if self.blocked:
            self.blocked = False
            self.session.tell(connection_methods.Unblocked())

    def finish(self, now: float) -> None:
        """Write what this turn brought."""
        if self.ended:
            return
        try:
            self.session.finish()
        except LocalProtocolError as error:
            # A mistake of ours costs this client its connection, and nobody else anything.
            self._connection.close(541, f"INTERNAL_ERROR - {error}")
            self.session.end(now)
        waits = self.session.waits_for_store()
        self._write(() if waits else self._connection.data_to_send())
        if self.ended:
            return
        if waits:
            self._watch()
            self._arm()
            return
        if self._connection.closed() and not self._out:
            self._end("closed")
            return
        self.session.window.refill(WINDOW_BYTES - self._out.size, now)
        self._watch()
        self._arm()

    # From the thread

    def _on_readable(self) -> None:
        try:
            data = self._wire.receive(self._read_size)
        except OSError as error:
            self._lost(str(error))
            return
        if data is None:
            return
        now = self._host.now()
        if not data:
            self._take([self._connection.receive_eof(now)], now)
            self._lost("the client hung up")
            return
        self.bytes_in += len(data)
        self._take(self._connection.receive_in_steps(data, now), now)
        self._read_size = fair_read_size(self._read_size, len(data), self._host.now() - now)
        if self._rate is not None:
            self._read_size = SMALLEST_READ

    def _keep_rate(self, rate: Bucket, published: int, now: float) -> None:
        seconds = rate.take(published, now)
        if seconds > 0 and not self.ended:
            self.paused = True
            self._host.set_timer(now + seconds, self._on_rate, rate)

    def _on_rate(self) -> None:
        self.paused = False
        self._watch()

    def _take(self, steps: Iterable[list[Event]], now: float) -> None:
        self._engine.is_busy(self)
        before = self.session.messages_in
        for events in steps:
            self.session.handle(events, now)
        if self._rate is not None:
            self._keep_rate(self._rate, self.session.messages_in - before, now)
        self._engine.finish_turn(now)

    def _on_writable(self) -> None:
        self._excuse()  # it takes what we write: a slow client is no dead one
        self._engine.is_busy(self)
        self._engine.finish_turn(self._host.now())

    def _on_timer(self) -> None:
        self._armed = None
        if self._waits:
            self._excuse()
        if self._is_due() and self._watched[0]:
            self._on_readable()  # a thread that was busy must not call its peer silent
        if self.ended:
            return
        if self._is_due():
            now = self._host.now()
            self._take([self._connection.handle_timeout(now)], now)
            self._beat()
        else:
            self._arm()

    def _is_due(self) -> bool:
        deadline = self._connection.next_deadline()
        return deadline is not None and deadline <= self._host.now()

    # To the socket

    def _beat(self) -> None:
        """What waits for the disk comes later; a sign of life does not."""
        is_open = self._connection.state is ConnectionState.OPEN
        if not self.ended and is_open and self.session.waits_for_store():
            self._write((HEARTBEAT_FRAME,))
            self._watch()

    def _write(self, chunks: Sequence[Buffer]) -> None:
        try:
            self.bytes_out += self._out.write(chunks, self._wire)
        except OSError as error:
            self._lost(str(error))

    def _watch(self) -> None:
        readable = not self._waits and self._out.size < UNWRITTEN_BYTES
        wanted = (readable, bool(self._out))
        if wanted != self._watched and not self.ended:
            if readable:
                self._excuse()
            self._watched = wanted
            self._host.poller.watch(
                self._wire.fileno(),
                readable=self._on_readable if readable else None,
                writable=self._on_writable if self._out else None,
            )

    def _excuse(self) -> None:
        """A client that was not read was not silent."""
        if not self._watched[0]:
            self._connection.is_not_read(self._host.now())

    def _arm(self) -> None:
        """Set a timer, unless one is set for earlier: the deadline moves with every read, the timer need not."""
        is_open = self._connection.state is ConnectionState.OPEN
        if self._armed is not None and self._armed_when_open and is_open:
            return  # it only moves away: but for the end of the handshake, after which heartbeats are due
        self._armed_when_open = is_open
        deadline = self._connection.next_deadline()
        if deadline is not None and (self._armed is None or deadline < self._armed):
            self._armed = deadline
            self._host.set_timer(deadline, self._on_timer, self)

    def _lost(self, reason: str) -> None:
        if not self.ended:
            self._end(reason)
            self._engine.finish_soon()  # it may have been found out in the middle of a turn's end

    def _end(self, reason: str) -> None:
        self.ended = True
        self.session.end(self._host.now())
        self._host.poller.watch(self._wire.fileno(), readable=None, writable=None)
        self._host.set_timer(None, self._on_timer, self)
        if self.paused:
            self._host.set_timer(None, self._on_rate, self._rate)
        self._wire.close()
        self._out.clear()
        self._engine.has_ended(self, reason)
