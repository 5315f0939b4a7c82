"""Stream client: what a client over a stream socket does whatever its protocol, for front ends to derive from.

The client is passive.  Its connection reads and calls ``received``; that calls operations of the broker and ``send``s
answers.  At the end of the turn ``flush`` encodes what the broker has for the client, and everything is written in one go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kernel.contracts.message import Buffer
from kernel.hosting.connection import Connection, ConnectionOwner, Pause
from kernel.hosting.lazy_timer import LazyTimer
from kernel.hosting.read_size import SMALLEST_READ
from plugins.engines.broker.host.rates import Bucket
from plugins.engines.broker.receiver import Window

if TYPE_CHECKING:
    from plugins.engines.broker.host.engine import BrokerEngine
    from plugins.engines.broker.host.listening import Accepted

WINDOW_BYTES = 512 * 1024
"""Bodies that are handed to a client before it has written some: about what a socket takes at once."""


class StreamClient(ConnectionOwner):
    """A client of a front end over a stream socket.

    Derive, and override ``received``, ``flush`` and ``ended``.
    """

    farewell: bytes = b""
    """What the protocol says when the broker hangs up; empty: nothing."""

    def __init__(self, engine: BrokerEngine, accepted: Accepted, *, publish_rate: float = 0.0) -> None:
        """``publish_rate``: messages a second that the client may publish, by ``messages_in``.

        0: any number.
        """
        self.engine = engine
        self.host = engine.host
        self.peer = accepted.peer
        self.window = Window(WINDOW_BYTES)
        """For the receivers of this connection."""
        self.published = False
        """Set it when messages were published: the client may then have to wait."""
        self.messages_in = self.messages_out = 0
        self.closing = ""
        """Why the connection is to be closed at the end of the turn; empty: it stays."""
        self._connection = Connection(engine.host, accepted.wire, self, answers_limit=4 * WINDOW_BYTES)
        self._unsent: list[Buffer] = []
        self._rate = Bucket(publish_rate, engine.host.now()) if publish_rate else None
        self._rated = 0
        """How many messages have been counted against the rate."""
        self._rate_timer = LazyTimer(engine.host, self._on_rate)
        if publish_rate:
            self._connection.largest_read = SMALLEST_READ

    # To be overridden

    def received(self, data: bytes, now: float) -> None:
        """Take what was read, in any pieces, and do what it asks for.  Must not raise, whatever was sent."""
        raise NotImplementedError

    def flush(self, now: float) -> None:
        """The turn ends: ``send`` deliveries, and the confirmations that are due."""
        raise NotImplementedError

    def ended(self, now: float) -> None:
        """The connection is over: give back what the client held.  Called once."""
        raise NotImplementedError

    @property
    def unacked_bytes(self) -> int:
        """About how many bytes the bodies have that the client has not acknowledged."""
        return 0

    @property
    def confirming(self) -> bool:
        """Whether it waits for a confirmation that the routes may bring."""
        return False

    def inspect(self, what: str) -> list[dict[str, Any]]:
        """Return rows for an operator; a front end adds what it knows besides."""
        return [self.row()] if what == "connections" else []

    # To be called

    def send(self, data: Buffer) -> None:
        """Have bytes written at the end of this turn."""
        self._unsent.append(data)
        self.engine.is_busy(self)

    def close(self, reason: str) -> None:
        """Close the connection at the end of this turn, after what was sent."""
        self.closing = self.closing or reason
        self.engine.is_busy(self)

    def row(self, **more: Any) -> dict[str, Any]:
        """Return what ``kernel connections`` shows; ``more`` takes precedence."""
        paused = self._connection.paused
        state = "blocked" if paused & Pause.ALARM else "flow" if paused else "running"
        return {
            "name": self.peer,
            "user": "",
            "vhost": "",
            "state": state,
            "client": "",
            "ssl": False,
            "channels": 1,
            "recv_oct": self.bytes_in,
            "send_oct": self.bytes_out,
            "send_pend": self.unwritten,
            "messages_in": self.messages_in,
            "messages_out": self.messages_out,
            **more,
        }

    # What the broker calls

    @property
    def bytes_in(self) -> int:
        """Bytes that came from the client."""
        return self._connection.bytes_in

    @property
    def bytes_out(self) -> int:
        """Bytes for the client, written or not."""
        return self._connection.bytes_out

    @property
    def unwritten(self) -> int:
        """Bytes that the socket has not taken yet."""
        return self._connection.unwritten

    def start(self) -> None:
        """Begin to read."""
        self._connection.start()

    def finish(self, now: float) -> None:
        """Write what this turn brought."""
        connection = self._connection
        if connection.ended:
            return
        self.published = False
        self.flush(now)
        unsent, self._unsent = self._unsent, []
        if self.closing:
            connection.close(self.closing, unsent)
            return
        if unsent:
            connection.send(unsent)
        if self._rate is not None and self.messages_in > self._rated:
            self._keep_rate(self._rate, now)
        if not connection.ended:
            self.window.refill(WINDOW_BYTES - connection.unwritten, now)

    def _keep_rate(self, rate: Bucket, now: float) -> None:
        seconds = rate.take(self.messages_in - self._rated, now)
        self._rated = self.messages_in
        if seconds > 0 and not self._connection.ended:
            self._connection.pause(Pause.RATE)
            self._rate_timer.arm(now + seconds)

    def _on_rate(self) -> None:
        self._connection.resume(Pause.RATE)

    def hold_back(self) -> None:
        """The routes are full, or the disk is behind."""
        self._connection.pause(Pause.ROUTES_FULL)

    def go_on(self) -> None:
        """There is room again."""
        self._connection.resume(Pause.ROUTES_FULL)

    def block(self, reason: str) -> None:
        """An alarm is raised."""
        self._connection.pause(Pause.ALARM)

    def unblock(self) -> None:
        """The last alarm is over."""
        self._connection.resume(Pause.ALARM)

    def hang_up(self, reason: str) -> None:
        """Say good-bye, and end."""
        if not self._connection.ended:
            self._connection.close(reason, [self.farewell] if self.farewell else ())

    # What the connection calls

    def on_data(self, data: bytes, now: float) -> None:
        """The client has sent something."""
        self.engine.is_busy(self)
        if not self.closing:
            self.received(data, now)
        self.engine.finish_turn(now)

    def on_eof(self, now: float) -> None:
        """The client has hung up."""
        self._connection.close("the client hung up")

    def on_written(self) -> None:
        """There is room for more deliveries."""
        self.engine.is_busy(self)
        self.engine.finish_turn(self.host.now())

    def on_ended(self, reason: str) -> None:
        """The connection is over."""
        self._rate_timer.cancel()
        self.ended(self.host.now())
        self.engine.has_ended(self, reason)
        self.engine.finish_soon()  # this may be the middle of a turn's end
