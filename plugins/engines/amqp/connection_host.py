"""Connection host: connects one client's socket, its protocol conversation and its session.

All that a turn brings for the client is written at its end in one go.  The socket, the turns and the reasons
to pause are ``StreamClient``'s, as in every front end.  What is AMQP's is here: the conversation reads the
bytes and collects the output, the session does what the client asks for, and the conversation's deadlines are
heartbeats, the time to log in and the time to answer connection.close.
"""

from __future__ import annotations

from collections.abc import Sequence

from kernel.contracts.errors import LocalProtocolError
from kernel.contracts.message import Buffer
from plugins.engines.amqp.inspection import Row, inspect
from plugins.engines.amqp.session import Session
from plugins.engines.broker.public import GATHERED, Accepted, BrokerEngine, StreamClient
from plugins.protocols.amqp091.connection import ServerConnection
from plugins.protocols.amqp091.events import Acknowledged, Published
from plugins.protocols.amqp091.frames import HEARTBEAT_FRAME
from plugins.protocols.amqp091.methods import connection as connection_methods
from plugins.protocols.amqp091.states import CONNECTION_OPEN


class ConnectionHost(StreamClient):
    """One connection of the engine."""

    def __init__(
        self,
        engine: BrokerEngine,
        accepted: Accepted,
        conversation: ServerConnection,
        *,
        anonymous: str = "",
        publish_rate: float = 0.0,
    ) -> None:
        super().__init__(engine, accepted, publish_rate=publish_rate)
        # Called once a turn: bound here, it costs no call in between.
        self.take_output = conversation.data_to_send
        self._conversation = conversation
        self.session = Session(
            conversation,
            self,
            engine.broker,
            engine.users,
            engine.feed,
            loopback=accepted.loopback,
            certified=accepted.certified,
            anonymous=anonymous,
        )
        self._incomplete = conversation.incomplete
        self._armed_when_open = False
        """Whether the deadline was told since the connection is open."""

    def __repr__(self) -> str:
        return f"<ConnectionHost {self.peer} {self.session!r}, {self.unwritten} bytes unwritten>"

    def to_acknowledge(self) -> int:
        """Return how many messages are unacknowledged; 0 in a transaction, because a commit is waited for."""
        channels = self.session.channels
        if len(channels) > GATHERED:
            # Too many to look at in each turn.
            return GATHERED
        return sum(len(each.receiver.unacked) for each in channels.values() if each.transaction is None)

    @property
    def unacked_bytes(self) -> int:
        """About how many bytes the bodies have that the client has not acknowledged."""
        return self.session.unacked_bytes()

    @property
    def unpublished_bytes(self) -> int:
        """How many bytes there are of messages that are not complete, or not committed."""
        return self._conversation.incomplete_bytes() + self.session.uncommitted_bytes()

    @property
    def confirming(self) -> bool:
        """Whether a publisher waits for confirmations."""
        return self.session.confirming

    def inspect(self, what: str) -> list[Row]:
        """Return rows for an operator."""
        return inspect(what, self)

    def closing_message(self, reason: str) -> Sequence[Buffer]:
        """Return connection.close.  The client's close-ok is read and dropped."""
        # The connection ends without waiting for close-ok.  ``StreamClient`` has taken the output of before.
        self._conversation.close(320, f"CONNECTION_FORCED - {reason}")
        return self._conversation.data_to_send()

    def block(self, reason: str) -> None:
        """An alarm is raised: tell the client, and do not read from it."""
        if not self.blocked:
            super().block(reason)
            self.session.tell(connection_methods.Blocked(reason=reason))

    def unblock(self) -> None:
        """The last alarm was lifted."""
        if self.blocked:
            super().unblock()
            self.session.tell(connection_methods.Unblocked())

    def received(self, data: bytes, now: float) -> bool:
        """Do what the client asks for.  Return whether it was an acknowledgement, and was good.

        In steps: a login or a close has to be answered before what comes after it is decoded.
        """
        alone = self._conversation.receive_alone(data, now)
        if alone is None:
            for events in self._conversation.receive_in_steps(data, now):
                self.session.handle(events, now)
                if self.login_refused or self.closing:
                    return False
        elif isinstance(alone, Published):
            self.session.published(alone, now)
        elif isinstance(alone, Acknowledged):
            return self.session.acknowledged(alone, now)
        else:
            self.session.rejected(alone, now)
        if self._incomplete:
            # In the middle of a message it publishes as well, and an alarm has to stop it.
            self.published = True
        return False

    def flush(self, now: float) -> None:
        """Encode what this turn brought; close the connection when all of it was written."""
        conversation = self._conversation
        try:
            self.session.finish(now)
        except LocalProtocolError as error:
            # An error in this server ends this connection, and no other one.
            conversation.close(541, f"INTERNAL_ERROR - {error}")
            self.session.end(now)
        is_open = conversation.state is CONNECTION_OPEN
        # A deadline that only moves away need not be told.  It does so with every read once the connection is
        # open.  Before that, and after it, each state has a deadline of its own, which may be earlier than
        # the last one.
        if is_open and self._armed_when_open:
            return
        # A connection that is closed in good order waits for a client that is slow to read: the few seconds
        # of ``ClosingWire`` are for the output of the last turn only.
        if conversation.closed() and not self.writing:
            self.closing = self.closing or conversation.closed_with or "closed"
            # Close-ok tells the client that it is safe to close the socket.  RabbitMQ leaves that to it, so
            # amqp091-go takes an end that comes before for a lost connection.
            self.closes_first = self.session.closed_by_client
        self._armed_when_open = is_open
        self.arm(conversation.next_deadline())

    def next_deadline(self) -> float | None:
        """When a heartbeat is due, or the client is silent for too long."""
        return self._conversation.next_deadline()

    def on_due(self, now: float) -> None:
        """Send a heartbeat, or close the connection of a silent client."""
        self.session.handle(self._conversation.handle_timeout(now), now)
        if self._conversation.closed():
            # Silent for too long.  ``flush`` would wait until the socket has taken all, which it may never
            # do.
            self.closing = self.closing or self._conversation.closed_with or "closed"

    def on_deadline(self, now: float) -> None:
        """Unlike answers, a heartbeat need not wait for the disk."""
        super().on_deadline(now)
        # Without it, a client that waits for a slow disk would take the broker for dead: the answers that
        # wait hold up the heartbeats behind them.
        is_open = self._conversation.state is CONNECTION_OPEN
        if self.is_open and is_open and self.waits_for_store:
            self.write_now(HEARTBEAT_FRAME)

    def on_not_read(self, now: float) -> None:
        """The client was not read, so it does not count as silent."""
        self._conversation.is_not_read(now)

    def on_eof(self, now: float) -> None:
        """The client has hung up, without connection.close."""
        # What came before it was handled, in turns of its own.  Messages that were begun and not finished are
        # dropped.
        self.session.handle(self._conversation.receive_eof(now), now)
        # Clients hang up when they are told that the connection is closed: operators want to know why.
        self._connection.close(self._conversation.closed_with or "the client hung up")

    def ended(self, now: float) -> None:
        """Give back what the client held."""
        self.session.end(now)
