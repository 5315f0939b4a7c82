"""Publisher: batches from the routes on their way to the server, with confirms."""

from __future__ import annotations

from collections import deque
from struct import error as StructError
from typing import TYPE_CHECKING

import msgspec

from kernel.contracts.engine import Taken
from kernel.contracts.errors import LocalProtocolError
from kernel.contracts.message import Batch, Envelope
from kernel.hosting.lazy_timer import LazyTimer
from plugins.engines.amqp_client.in_flight import NOWHERE, Flight, InFlight
from plugins.engines.amqp_client.options import AmqpClientOptions
from plugins.engines.amqp_client.role import Role
from plugins.protocols.amqp091.content import PERSISTENT, raw_properties
from plugins.protocols.amqp091.events import Acknowledged, Rejected, Returned
from plugins.protocols.amqp091.fields import short_string
from plugins.protocols.amqp091.methods import channel, confirm
from plugins.protocols.amqp091.methods.method import Method
from plugins.protocols.amqp091.reply_codes import ReplyCode

if TYPE_CHECKING:
    from plugins.engines.amqp_client.session import Session

_ENVELOPES = 1024
"""How many envelopes are kept as they are to be sent; with more flows the table begins anew."""

_PIECE = 1024
"""Messages of a batch that is longer than what may be in flight."""

_NO_SUCH_EXCHANGE = (ReplyCode.NOT_FOUND, ReplyCode.ACCESS_REFUSED)
_TOO_LARGE = (ReplyCode.PRECONDITION_FAILED, ReplyCode.CONTENT_TOO_LARGE)


class Publisher(Role):
    """One channel in confirm mode.

    A server that refuses a message closes the channel and does not say for which.  So what was in flight is sent
    again one by one: then it is the one that is in flight when the channel is closed again.
    """

    def __init__(self, session: Session, channel: int, options: AmqpClientOptions) -> None:
        super().__init__(session, channel, "publishing")
        self._options = options
        self._flow = True
        """False while the server has asked to wait (channel.flow)."""
        self._probe = False
        """Whether the server refused a message when the channel was closed."""
        self._one_by_one = 0
        """How many of the next messages are sent singly."""
        self._refused_until: dict[str, float] = {}
        """Exchanges for which messages are dropped, and when they are tried again."""
        self._in_flight = InFlight()
        self._again: deque[tuple[int, Batch]] = deque()
        """What is to be sent before anything new: refused by the server, in flight when the channel ended, or taken beyond
        what may be in flight."""
        self._answered_at = 0.0
        """When the server answered last, or nothing was in flight."""
        self._timeout = LazyTimer(session.link.host, self._look_for_answers)
        self._resting = False
        self._returned = False
        self._sent_as: dict[Envelope, Envelope | None] = {}

    @property
    def unconfirmed(self) -> int:
        """Messages that the server has not answered for."""
        return self._in_flight.count + sum(len(batch.bodies) for _, batch in self._again)

    def opened(self) -> None:
        """Ask for confirms."""
        self.send(confirm.Select())

    def received(self, method: Method) -> None:
        """Confirms are on, or the server asks to wait."""
        if isinstance(method, confirm.SelectOk):
            self._begin()
        elif isinstance(method, channel.Flow):
            self._flow = method.active
            self.send(channel.FlowOk(active=method.active))

    def _begin(self) -> None:
        self.up = True
        self._in_flight = InFlight()
        self._put_behind(self.session.port.rewind())
        self._one_by_one = sum(len(batch.bodies) for _, batch in self._again) if self._probe else 0
        self._probe = False
        if not self._one_by_one:
            self.refusal = ""

    def refused(self, code: int) -> None:
        """The server has closed the channel: for a message, if one was in flight."""
        self._probe = self._in_flight.count > 0
        culprit = self._in_flight.only() if self._one_by_one else None
        if culprit is None:
            return
        envelope = culprit.batch.envelope
        if code in _NO_SUCH_EXCHANGE and self._options.when_refused == "drop":
            most = self._options.reconnect.most
            self._refused_until[envelope.exchange] = self.session.link.host.now() + most
        elif code not in _TOO_LARGE:
            return
        self.session.report(
            "dropped",
            f"publishing: the server will not have a message of {culprit.batch.size} bytes with key "
            f"{envelope.key[:80]!r} for exchange {envelope.exchange!r}; it is dropped",
        )
        self.session.counters.messages_refused += 1
        self._confirm(culprit.position, 1)
        self.works()

    def lost(self) -> None:
        """What is in flight comes back from the port, if anybody waits for it."""
        super().lost()
        again = sum(len(batch.bodies) for position, batch in self._again if position == NOWHERE)
        self.session.counters.messages_lost += self._in_flight.nobodys() + again
        self._in_flight = InFlight()
        self._timeout.cancel()
        self._again.clear()
        self._resting = False
        self._flow = True

    # To the server

    def pump(self, most: int) -> bool:
        """Publish about ``most`` messages; return whether there is more to do at once."""
        if not self._again:
            self._take(self._room(most))
        while self._again and (room := self._room(most)) > 0:
            position, batch = self._again.popleft()
            if len(batch.bodies) > room:
                rest = position if position == NOWHERE else position + room
                self._again.appendleft((rest, batch.slice(room, len(batch.bodies))))
                batch = batch.slice(0, room)
            self._publish(batch, position)
            most -= len(batch.bodies)
        return (bool(self._again) or self.session.port.has_input()) and self._room(1) > 0

    def _take(self, most: int) -> None:
        """Take about so many messages from the routes: whole batches, of which the last may have to wait in part."""
        if most <= 0:
            return
        self._put_behind(self.session.port.take(most), most)

    def _put_behind(self, taken: Taken, most: int = 0) -> None:
        """Have what was taken wait for its turn; runs of more than ``most`` messages in pieces."""
        position = NOWHERE
        if taken.batches and taken.position is not None:
            position = taken.position - taken.count + 1
            self._in_flight.expect(position, taken.position)
        for batch in taken.batches:
            for piece in _pieces(batch) if len(batch.bodies) > most > 0 else (batch,):
                self._again.append((position, piece))
                if position != NOWHERE:
                    position += len(piece.bodies)

    def _room(self, most: int) -> int:
        if not self.up or self.session.blocked or self._resting or not self._flow:
            return 0
        limit = 1 if self._one_by_one else self._options.in_flight
        return min(most, limit - self._in_flight.count)

    def _publish(self, batch: Batch, position: int) -> None:
        session = self.session
        envelope = batch.envelope
        as_sent = self._sent_as.get(envelope)
        if as_sent is None:
            if envelope not in self._sent_as:
                as_sent = self._admit(envelope)
            if as_sent is None:  # it would be refused each time
                self._drop(batch, position)
                return
        if self._refused_until and self._is_refused(as_sent.exchange):
            self._drop(batch, position)
            return
        if as_sent is not envelope:
            batch = batch.under(as_sent)
        session.connection.publish(self.channel, batch, mandatory=self._options.mandatory)
        session.counters.messages_out += len(batch.bodies)
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
        """Return the envelope to publish under; None if AMQP cannot say it."""
        options = self._options
        changes: dict[str, object] = {}
        if options.exchange is not None and options.exchange != envelope.exchange:
            changes["exchange"] = options.exchange
        if options.key is not None and options.key != envelope.key:
            changes["key"] = options.key
        if options.persistent and not envelope.persistent:
            # The octets of properties that came over AMQP say the mode themselves.
            changes["persistent"] = True
            changes["properties"] = {**envelope.properties, "delivery_mode": PERSISTENT}
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

    # From the server

    def acknowledged(self, event: Acknowledged) -> None:
        """The server answers for messages."""
        self.works()
        self._answered_at = self.session.link.host.now()
        for flight in self._in_flight.answered(
            event.first_delivery_tag, event.last_delivery_tag, event.multiple
        ):
            count = len(flight.batch.bodies)
            self._one_by_one = max(0, self._one_by_one - count)
            self._confirm(flight.position, count)

    def rejected(self, event: Rejected) -> None:
        """The server does not take messages: a queue of it is full, or it has a fault.  Try again later."""
        refused = self._in_flight.answered(event.first_delivery_tag, event.last_delivery_tag, event.multiple)
        if not refused:
            return
        self._answered_at = self.session.link.host.now()
        self._again.extend(map(_position_and_run, refused))
        count = sum(len(flight.batch.bodies) for flight in refused)
        self.session.counters.messages_nacked += count
        if not self._resting:
            self._resting = True
            wait = self.backoff.next_wait()
            self.session.report("retrying", f"publishing: the server refused {count} messages", wait)
            self.session.set_timer(wait, self._rested, self)

    def _look_for_answers(self) -> None:
        """A server may be alive and answer for nothing: a quorum queue of RabbitMQ that has no leader takes messages in silence."""
        count, now = self._in_flight.count, self.session.link.host.now()
        if not count:
            return
        blocked_until = now if self.session.blocked else self.session.unblocked_at
        self._answered_at = max(self._answered_at, blocked_until)
        timeout = self._options.confirm_timeout
        if now < self._answered_at + timeout:
            self._timeout.arm(self._answered_at + timeout)
        else:
            self.session.give_up(f"the server answered for none of {count} messages within {timeout:g} s")

    def _rested(self) -> None:
        self._resting = False

    def returned(self, event: Returned) -> None:
        """No queue wanted a message.  The server confirms it all the same."""
        self.session.counters.messages_returned += len(event.batch.bodies)
        if not self._returned:  # the first tells what is wrong; the counter tells how often
            self._returned = True
            envelope = event.batch.envelope
            self.session.report(
                "returned",
                f"{event.reply_code} {event.reply_text}: exchange {envelope.exchange!r} leads messages with key "
                f"{envelope.key!r} to no queue; bind one, or set mandatory = false",
            )

    def _confirm(self, position: int, count: int) -> None:
        if position != NOWHERE:
            self.session.port.confirm_through(self._in_flight.settle(position, count))


def _pieces(batch: Batch) -> list[Batch]:
    """Cut a long batch, so that each time that it goes on by a few messages the rest of one piece is copied, not of all."""
    return [batch.slice(start, start + _PIECE) for start in range(0, len(batch.bodies), _PIECE)]


def _position_and_run(flight: Flight) -> tuple[int, Batch]:
    return flight.position, flight.batch
