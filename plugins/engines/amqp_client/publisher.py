"""Publisher: takes batches from the routes and publishes them with publisher confirms.

States of a message
-------------------

1. It waits in a pipe.  ``pump`` takes whole batches from the port, about as many messages as may be in
   flight.
2. It waits in ``_waiting``: it was taken, but is beyond what may be in flight; or it has to be published
   again.
3. It is in flight (``in_flight.py``): published, and the server has not answered yet.
4. It is done: the server has confirmed it, or it was dropped, which is counted and reported.  Done messages
   are confirmed to the port, if a route asks for that.

Messages go from state 3 back to state 2 in two cases: the server answers basic.nack (after a wait of the
back-off all nacked messages are published again), or the channel or connection ends.  In the second case the
port gives back what it has not been told to be done (``Port.take_again``), so that nothing is lost; what no
route wants confirmed is counted as lost.

A message that the server refuses
---------------------------------

The server closes the channel when it refuses a message (the exchange does not exist, the message is too
large), and it does not say which message it was.  So everything that was in flight is published again one by
one (``_one_by_one``).  When the server then closes the channel again, the only message in flight is the
refused one.

Nothing is published while: the channel is not open, the server blocks publishers (connection.blocked), it has
asked to wait (channel.flow), or nacked messages wait.  See ``_room``.
"""

from __future__ import annotations

from struct import error as StructError
from typing import TYPE_CHECKING

import msgspec

from kernel.contracts.counts import counted
from kernel.contracts.engine import Taken
from kernel.contracts.errors import LocalProtocolError
from kernel.contracts.message import Batch, Envelope
from kernel.contracts.properties import changed
from kernel.hosting.lazy_timer import LazyTimer
from kernel.hosting.taken_messages import UNTRACKED, Unsent
from plugins.engines.amqp_client.channel_handler import ChannelHandler
from plugins.engines.amqp_client.in_flight import Flight, InFlight
from plugins.engines.amqp_client.options import AmqpClientOptions
from plugins.protocols.amqp091.content import PERSISTENT, raw_properties
from plugins.protocols.amqp091.events import Acknowledged, Rejected, Returned
from plugins.protocols.amqp091.fields import short_string
from plugins.protocols.amqp091.methods import channel, confirm
from plugins.protocols.amqp091.methods.method import Method
from plugins.protocols.amqp091.reply_codes import ReplyCode

if TYPE_CHECKING:
    from plugins.engines.amqp_client.session import Session

_ENVELOPES = 1024
"""Envelopes whose form for publishing is cached; when the cache is full, it is cleared."""

_NO_SUCH_EXCHANGE = (ReplyCode.NOT_FOUND, ReplyCode.ACCESS_REFUSED)
_TOO_LARGE = (ReplyCode.PRECONDITION_FAILED, ReplyCode.CONTENT_TOO_LARGE)


class Publisher(ChannelHandler):
    """Publishes on one channel in confirm mode."""

    def __init__(self, session: Session, channel: int, options: AmqpClientOptions) -> None:
        super().__init__(session, channel, "publishing")
        self._options = options
        self._flow = True
        """False while the server asks to wait (channel.flow)."""
        self._find_refused = False
        """Whether messages were in flight when the server closed the channel: one of them was refused."""
        self._one_by_one = 0
        """How many of the next messages are published one by one, to find the refused one."""
        self._refused_until: dict[str, float] = {}
        """Exchanges whose messages are dropped, and until when, in seconds of the host's clock."""
        self._in_flight = InFlight()
        self._waiting = Unsent()
        """What is published before new messages are taken from the port."""
        self._answered_at = 0.0
        """When the server last answered, or when the first message was put in flight."""
        self._timeout = LazyTimer(session.link.host, self._check_confirm_timeout)
        self._waiting_to_retry = False
        """Whether nacked messages wait for the back-off."""
        self._returned = False
        """Whether a returned message was reported."""
        self._sent_as: dict[Envelope, Envelope | None] = {}
        """Envelopes to the form in which they are published; None: AMQP cannot express it."""

    @property
    def unconfirmed(self) -> int:
        """Messages that were taken from the port and are not done."""
        return self._in_flight.count + self._waiting.messages()

    def opened(self) -> None:
        """Switch the channel to confirm mode."""
        self.send(confirm.Select())

    def received(self, method: Method) -> None:
        """The channel is in confirm mode, or the server asks to wait or to go on (channel.flow)."""
        if isinstance(method, confirm.SelectOk):
            self._begin()
        elif isinstance(method, channel.Flow):
            self._flow = method.active
            self.send(channel.FlowOk(active=method.active))

    def _begin(self) -> None:
        self.up = True
        # A new channel numbers from 1 again (confirm.select, RabbitMQ's publisher confirms).
        self._in_flight = InFlight()
        # What was taken and not confirmed, in order.  It goes out before anything new.
        self._enqueue(self.session.port.take_again())
        # After a refusal any of these may be the refused one.
        self._one_by_one = self._waiting.messages() if self._find_refused else 0
        self._find_refused = False
        if not self._one_by_one:
            self.refusal = ""

    def refused(self, code: int) -> None:
        """The server has closed the channel, because of a message if any was in flight."""
        # The server names the method (basic.publish) and not the message.  Earlier messages may be
        # unconfirmed, too, so any of those in flight may be the refused one.
        self._find_refused = self._in_flight.count > 0
        # Only while messages go one by one is the one in flight surely the refused one.
        refused = self._in_flight.only() if self._one_by_one else None
        if refused is None:
            return
        envelope = refused.batch.envelope
        # Other messages for this exchange are dropped at once, without another channel for each.  After the
        # longest wait of the back-off it is tried again: somebody may have declared the exchange.
        if code in _NO_SUCH_EXCHANGE and self._options.when_refused == "drop":
            most = self._options.reconnect.most
            self._refused_until[envelope.exchange] = self.session.link.host.now() + most
        elif code not in _TOO_LARGE:
            return
        self.session.report(
            "dropped",
            f"publishing: the server refuses a message of {refused.batch.size} bytes with key "
            f"{envelope.key[:80]!r} for exchange {envelope.exchange!r}; it is dropped",
        )
        self.session.counters.messages_refused += 1
        # A dropped message counts as done.  Otherwise the source would wait for it for ever.
        self._confirm(refused.position, 1)
        self.works()

    def lost(self) -> None:
        """The channel has ended.

        ``Port.take_again`` gives back what has to be confirmed; the rest is lost.
        """
        super().lost()
        # Tracked messages come back with ``take_again``, so only the others are lost.
        again = sum(len(batch.bodies) for _, batch in self._waiting.untracked())
        self.session.counters.messages_lost += self._in_flight.untracked() + again
        self._in_flight = InFlight()
        self._timeout.cancel()
        self._waiting.clear()
        self._waiting_to_retry = False
        self._flow = True

    # Publishing.

    def pump(self, most: int) -> bool:
        """Publish about ``most`` messages; return whether more can be published at once."""
        if not self._waiting:
            self._take(self._room(most))
        # ``_room`` is asked again for each batch: publishing changes what is in flight, and ``_drop`` does
        # not.
        while self._waiting and (room := self._room(most)) > 0:
            position, batch = self._waiting.take(room)
            self._publish(batch, position)
            most -= len(batch.bodies)
        return (bool(self._waiting) or self.session.port.has_input()) and self._room(1) > 0

    def _take(self, most: int) -> None:
        """Take about ``most`` messages from the port.  It gives whole batches, so that there may be more."""
        if most <= 0:
            return
        self._enqueue(self.session.port.take(most), most)

    def _enqueue(self, taken: Taken, most: int = 0) -> None:
        """Append what was taken to ``_waiting``; cut batches of more than ``most`` messages (0: none)."""
        if taken and taken.position is not None:
            self._in_flight.expect(taken.position - taken.count + 1, taken.position)
        self._waiting.add(taken, whole=most or taken.count)

    def _room(self, most: int) -> int:
        """Return how many messages may be published now, at most ``most``."""
        # connection.blocked is RabbitMQ's extension: the server stops reading a connection that publishes
        # while it is short of memory or disk.  So publishing would only fill the socket.
        if not self.up or self.session.blocked or self._waiting_to_retry or not self._flow:
            return 0
        limit = 1 if self._one_by_one else self._options.in_flight
        return min(most, limit - self._in_flight.count)

    def _publish(self, batch: Batch, position: int) -> None:
        session = self.session
        envelope = batch.envelope
        as_sent = self._sent_as.get(envelope)
        # None is also the entry of an envelope that was looked at and cannot be sent.
        if as_sent is None:
            if envelope not in self._sent_as:
                as_sent = self._admit(envelope)
            # AMQP cannot express it: no server would accept it.
            if as_sent is None:
                self._drop(batch, position)
                return
        if self._refused_until and self._is_refused(as_sent.exchange):
            self._drop(batch, position)
            return
        if as_sent is not envelope:
            batch = batch.under(as_sent)
        session.connection.publish(self.channel, batch, mandatory=self._options.mandatory)
        session.counters.messages_out += len(batch.bodies)
        # The time limit for confirmations runs only while the server has something to answer.
        if not self._in_flight.count:
            self._answered_at = session.link.host.now()
            self._timeout.arm(self._answered_at + self._options.confirm_timeout)
        self._in_flight.add(batch, position)

    def _drop(self, batch: Batch, position: int) -> None:
        count = len(batch.bodies)
        self.session.counters.messages_refused += count
        self._one_by_one = max(0, self._one_by_one - count)
        self._confirm(position, count)

    def _is_refused(self, exchange: str) -> bool:
        until = self._refused_until.get(exchange)
        if until is None:
            return False
        if self.session.link.host.now() >= until:
            del self._refused_until[exchange]
            return False
        return True

    def _admit(self, envelope: Envelope) -> Envelope | None:
        """Return the envelope in the form in which it is published; None if AMQP cannot express it."""
        options = self._options
        changes: dict[str, object] = {}
        if options.exchange is not None and options.exchange != envelope.exchange:
            changes["exchange"] = options.exchange
        if options.key is not None and options.key != envelope.key:
            changes["key"] = options.key
        if options.persistent and not envelope.persistent:
            # Properties that came over AMQP are sent as raw octets, so ``persistent`` alone would have no
            # effect.
            changes["persistent"] = True
            changes["properties"] = changed(envelope.properties, {"delivery_mode": PERSISTENT})
        as_sent: Envelope | None = msgspec.structs.replace(envelope, **changes) if changes else envelope
        try:
            assert as_sent is not None
            short_string(as_sent.key)
            short_string(as_sent.exchange)
            raw_properties(as_sent)
        except (LocalProtocolError, AttributeError, TypeError, ValueError, StructError) as error:
            as_sent = None
            self.session.report(
                "refused", f"an envelope with key {envelope.key[:80]!r} cannot be sent over AMQP: {error}"
            )
        if len(self._sent_as) >= _ENVELOPES:
            self._sent_as.clear()
        self._sent_as[envelope] = as_sent
        return as_sent

    # Answers of the server.

    def acknowledged(self, event: Acknowledged) -> None:
        """The server has confirmed messages."""
        # Progress: the next nack or refusal begins with the shortest wait again.
        self.works()
        self._answered_at = self.session.link.host.now()
        for flight in self._in_flight.answered(
            event.first_delivery_tag, event.last_delivery_tag, event.multiple
        ):
            count = len(flight.batch.bodies)
            self._one_by_one = max(0, self._one_by_one - count)
            self._confirm(flight.position, count)

    def rejected(self, event: Rejected) -> None:
        """The server has refused messages, because of a full queue or an internal error: try again later."""
        refused = self._in_flight.answered(event.first_delivery_tag, event.last_delivery_tag, event.multiple)
        if not refused:
            return
        self._answered_at = self.session.link.host.now()
        # They keep their positions and get new tags.  Messages that were published behind them may arrive
        # first: basic.nack changes the order.
        self._waiting.extend(map(_position_and_batch, refused))
        count = sum(len(flight.batch.bodies) for flight in refused)
        self.session.counters.messages_nacked += count
        if not self._waiting_to_retry:
            self._waiting_to_retry = True
            wait = self.backoff.next_wait()
            self.session.report(
                "retrying", f"publishing: the server refused {counted(count, 'message')}", wait
            )
            self.session.set_timer(wait, self._retry, self)

    def _check_confirm_timeout(self) -> None:
        """Give up the connection if the server has answered nothing for ``confirm_timeout`` seconds.

        It may be alive all the same: a quorum queue of RabbitMQ without a leader accepts messages and never
        answers.
        """
        count, now = self._in_flight.count, self.session.link.host.now()
        if not count:
            return
        # A blocked server does not read, and so answers nothing.  That is no reason to give it up.
        blocked_until = now if self.session.blocked else self.session.unblocked_at
        self._answered_at = max(self._answered_at, blocked_until)
        timeout = self._options.confirm_timeout
        # The timer is not moved at each answer.  It looks whether it rings too early.
        if now < self._answered_at + timeout:
            self._timeout.arm(self._answered_at + timeout)
        else:
            self.session.give_up(
                f"the server answered for none of {counted(count, 'message')} within {timeout:g} s"
            )

    def _retry(self) -> None:
        # ``Session.set_timer`` ends the turn after this call, and ``pump`` publishes again.
        self._waiting_to_retry = False

    def returned(self, event: Returned) -> None:
        """The server returns messages that no queue got.  It confirms them all the same."""
        self.session.counters.messages_returned += len(event.batch.bodies)
        # Report only the first one.  The counter has the number.
        if not self._returned:
            self._returned = True
            envelope = event.batch.envelope
            self.session.report(
                "returned",
                f"{event.reply_code} {event.reply_text}: exchange {envelope.exchange!r} routes messages with "
                f"key {envelope.key!r} to no queue; bind one, or set mandatory = false",
            )

    def _confirm(self, position: int, count: int) -> None:
        if position != UNTRACKED:
            self.session.port.confirm_through(self._in_flight.complete(position, count))


def _position_and_batch(flight: Flight) -> tuple[int, Batch]:
    return flight.position, flight.batch
