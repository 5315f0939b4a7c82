"""Connection host: what one client's connection, its protocol conversation and its session do for each other.

All that a turn brings for the client is written at its end in one go.  While the socket is full, the queues
hand over no more (the session's window); the connection itself stops reading when too many answers wait.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING

from kernel.contracts.errors import LocalProtocolError
from kernel.hosting.connection import Connection, ConnectionOwner, Pause
from kernel.hosting.lazy_timer import LazyTimer
from kernel.hosting.read_size import SMALLEST_READ
from kernel.hosting.wire import TlsWire, Wire
from plugins.engines.amqp.inspection import Row, inspect
from plugins.engines.amqp.session import WINDOW_BYTES, Session
from plugins.engines.broker.public import Bucket
from plugins.protocols.amqp091.connection import ServerConnection
from plugins.protocols.amqp091.events import Event
from plugins.protocols.amqp091.frames import HEARTBEAT_FRAME
from plugins.protocols.amqp091.methods import connection as connection_methods
from plugins.protocols.amqp091.states import ConnectionState

if TYPE_CHECKING:
    from plugins.engines.broker.public import BrokerEngine

UNWRITTEN_BYTES = 4 * WINDOW_BYTES
"""Bytes of answers that a client may leave unread before it is not read any more."""


class ConnectionHost(ConnectionOwner):
    """One connection of the engine."""

    def __init__(
        self,
        engine: BrokerEngine,
        wire: Wire,
        conversation: ServerConnection,
        make_session: Callable[[ServerConnection, Callable[[], None]], Session],
        peer: str,
        publish_rate: float = 0.0,
    ) -> None:
        """``publish_rate``: messages a second that the client may publish; 0: any number."""
        self.peer = peer
        self._engine = engine
        self._host = engine.host
        self._connection = Connection(engine.host, wire, self, answers_limit=UNWRITTEN_BYTES)
        self._conversation = conversation
        self.session = make_session(conversation, partial(engine.is_busy, self))
        self._armed_when_open = False
        self._rate: Bucket | None = None
        if publish_rate:
            self._rate = Bucket(publish_rate, self._host.now())
            self._rate_timer = LazyTimer(engine.host, self._on_rate)
            self._connection.largest_read = SMALLEST_READ

    def __repr__(self) -> str:
        return f"<ConnectionHost {self.peer} {self.session!r}, {self.unwritten} bytes unwritten>"

    @property
    def ended(self) -> bool:
        """Whether the connection is over."""
        return self._connection.ended

    @property
    def tls(self) -> bool:
        """Whether the client came over TLS."""
        return isinstance(self._connection.wire, TlsWire)

    @property
    def blocked(self) -> bool:
        """Whether reading waits for an alarm to be lifted."""
        return bool(self._connection.paused & Pause.ALARM)

    @property
    def paused(self) -> bool:
        """Whether reading waits because it publishes faster than it may."""
        return bool(self._connection.paused & Pause.RATE)

    @property
    def unwritten(self) -> int:
        """Bytes that the socket has not taken yet."""
        return self._connection.unwritten

    @property
    def bytes_in(self) -> int:
        """Bytes that came from the client."""
        return self._connection.bytes_in

    @property
    def bytes_out(self) -> int:
        """Bytes for the client, written or not."""
        return self._connection.bytes_out

    @property
    def messages_in(self) -> int:
        """How many messages the client has published."""
        return self.session.messages_in

    @property
    def messages_out(self) -> int:
        """How many messages were delivered to the client."""
        return self.session.messages_out

    @property
    def unacked_bytes(self) -> int:
        """About how many bytes the bodies have that the client has not acknowledged."""
        return self.session.unacked_bytes()

    @property
    def published(self) -> bool:
        """Whether this turn brought messages to publish."""
        return self.session.published

    @property
    def confirming(self) -> bool:
        """Whether a publisher waits for confirmations."""
        return self.session.confirming

    def inspect(self, what: str) -> list[Row]:
        """Return rows for an operator."""
        return inspect(what, self)

    def start(self) -> None:
        """Begin to listen to the client."""
        self._connection.start()
        self._arm()

    def hang_up(self, reason: str) -> None:
        """Send connection.close, and close the connection."""
        if not self.ended:
            self._conversation.close(320, f"CONNECTION_FORCED - {reason}")
            self._connection.close(reason, self._conversation.data_to_send())

    def hold_back(self) -> None:
        """The routes are full: read no more for now."""
        self._connection.pause(Pause.ROUTES_FULL)

    def go_on(self) -> None:
        """The routes have room again."""
        self._connection.resume(Pause.ROUTES_FULL)

    def block(self, reason: str) -> None:
        """An alarm is raised: tell the client, and do not read from it."""
        if not self.blocked:
            self._connection.pause(Pause.ALARM)
            self.session.tell(connection_methods.Blocked(reason=reason))

    def unblock(self) -> None:
        """The last alarm was lifted."""
        if self.blocked:
            self._connection.resume(Pause.ALARM)
            self.session.tell(connection_methods.Unblocked())

    def finish(self, now: float) -> None:
        """Write what this turn brought."""
        connection, conversation = self._connection, self._conversation
        if connection.ended:
            return
        try:
            self.session.finish(now)
        except LocalProtocolError as error:
            # An error in this server ends this connection, and no other one.
            conversation.close(541, f"INTERNAL_ERROR - {error}")
            self.session.end(now)
        if not self.session.waits_for_store():
            data = conversation.data_to_send()
            if data:
                connection.send(data)
                if connection.ended:
                    return
            unwritten = connection.unwritten if connection.writing else 0
            if conversation.closed() and not unwritten:
                connection.close("closed")
                return
            self.session.window.refill(WINDOW_BYTES - unwritten, now)
        self._arm()

    def _arm(self) -> None:
        """Set the timer.  The deadline moves with every read; once heartbeats are due it only moves away."""
        is_open = self._conversation.state is ConnectionState.OPEN
        if not (is_open and self._armed_when_open):
            self._armed_when_open = is_open
            self._connection.arm(self._conversation.next_deadline())

    def _take(self, steps: Iterable[list[Event]], now: float) -> None:
        self._engine.is_busy(self)
        before = self.session.messages_in
        for events in steps:
            self.session.handle(events, now)
        if self._rate is not None:
            self._keep_rate(self._rate, self.session.messages_in - before, now)
        self._engine.finish_turn(now)

    def _keep_rate(self, rate: Bucket, published: int, now: float) -> None:
        seconds = rate.take(published, now)
        if seconds > 0 and not self.ended:
            self._connection.pause(Pause.RATE)
            self._rate_timer.arm(now + seconds)

    def _on_rate(self) -> None:
        self._connection.resume(Pause.RATE)

    # From the connection

    def on_data(self, data: bytes, now: float) -> None:
        """The client has sent something."""
        self._take(self._conversation.receive_in_steps(data, now), now)

    def on_eof(self, now: float) -> None:
        """The client has hung up."""
        self._take([self._conversation.receive_eof(now)], now)
        self._connection.close("the client hung up")

    def on_written(self) -> None:
        """There is room for more deliveries."""
        self._engine.is_busy(self)
        self._engine.finish_turn(self._host.now())

    def next_deadline(self) -> float | None:
        """When a heartbeat is due, or the client is silent for too long."""
        return self._conversation.next_deadline()

    def on_deadline(self, now: float) -> None:
        """Send a heartbeat, or close the connection of a silent client."""
        self._take([self._conversation.handle_timeout(now)], now)
        is_open = self._conversation.state is ConnectionState.OPEN
        if not self.ended and is_open and self.session.waits_for_store():
            self._connection.send(
                (HEARTBEAT_FRAME,)
            )  # unlike answers, a heartbeat need not wait for the disk

    def on_not_read(self, now: float) -> None:
        """The client was not read, so it does not count as silent."""
        self._conversation.is_not_read(now)

    def on_ended(self, reason: str) -> None:
        """The connection is over."""
        self.session.end(self._host.now())
        if self._rate is not None:
            self._rate_timer.cancel()
        self._engine.has_ended(self, reason)
        self._engine.finish_soon()  # this may be the middle of a turn's end
