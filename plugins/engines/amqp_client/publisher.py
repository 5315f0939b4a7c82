"""Publisher: runs from the routes on their way to the server, with confirms."""

from __future__ import annotations

from collections import deque
from struct import error as StructError
from typing import TYPE_CHECKING

import msgspec

from kernel.contracts.errors import LocalProtocolError
from kernel.contracts.message import Envelope, Run
from plugins.engines.amqp_client.in_flight import NOWHERE, Flight, InFlight
from plugins.engines.amqp_client.role import Role
from plugins.protocols.amqp091.content import PERSISTENT, raw_properties
from plugins.protocols.amqp091.events import Acknowledged, Rejected, Returned
from plugins.protocols.amqp091.fields import short_string
from plugins.protocols.amqp091.methods import channel, confirm
from plugins.protocols.amqp091.methods.method import Method

if TYPE_CHECKING:
    from plugins.engines.amqp_client.session import Session

_ENVELOPES = 1024
"""How many envelopes are kept as they are to be sent; with more flows the table begins anew."""


class Publisher(Role):
    """One channel in confirm mode."""

    def __init__(self, session: Session, channel: int) -> None:
        super().__init__(session, channel, "publishing")
        self.blocked = False
        """The server has asked to wait: connection.blocked, channel.flow."""
        self._in_flight = InFlight()
        self._again: deque[tuple[int, Run]] = deque()
        """What is to be sent before anything new: refused by the server, or in flight when the channel ended."""
        self._resting = False
        self._returned = False
        self._sent_as: dict[Envelope, Envelope | None] = {}

    @property
    def unconfirmed(self) -> int:
        """Messages that the server has not answered for."""
        return self._in_flight.count + sum(len(run.bodies) for _, run in self._again)

    def opened(self) -> None:
        """Ask for confirms."""
        self.send(confirm.Select())

    def received(self, method: Method) -> None:
        """Confirms are on, or the server asks to wait."""
        if isinstance(method, confirm.SelectOk):
            self._begin()
        elif isinstance(method, channel.Flow):
            self.blocked = not method.active
            self.send(channel.FlowOk(active=method.active))

    def _begin(self) -> None:
        self.up = True
        self._in_flight = InFlight()
        for run in self.session.port.rewind():
            self._again.append((self._in_flight.new_place(len(run.bodies)), run))

    def lost(self) -> None:
        """What is in flight comes back from the port, if anybody waits for it."""
        super().lost()
        self._in_flight = InFlight()
        self._again.clear()
        self._resting = False

    # To the server

    def pump(self, most: int) -> bool:
        """Publish about ``most`` messages; return whether there is more to do at once."""
        port = self.session.port
        while self._again:
            room = self._room(most)
            if room <= 0:
                return self._room(1) > 0
            place, run = self._again.popleft()
            if len(run.bodies) > room:
                rest = place if place == NOWHERE else place + room
                self._again.appendleft((rest, run.slice(room, len(run.bodies))))
                run = run.slice(0, room)
            self._publish(run, place)
            most -= len(run.bodies)
        room = self._room(most)
        if room <= 0:
            return self._room(1) > 0
        # What no route confirms is not counted by the port either.
        counted = port.must_confirm
        for run in port.take(room):
            place = self._in_flight.new_place(len(run.bodies)) if counted else NOWHERE
            self._publish(run, place)
        return port.has_input() and self._room(1) > 0

    def _room(self, most: int) -> int:
        if not self.up or self.blocked or self._resting:
            return 0
        return min(most, self.session.options.in_flight - self._in_flight.count)

    def _publish(self, run: Run, place: int) -> None:
        session = self.session
        envelope = run.envelope
        as_sent = self._sent_as.get(envelope)
        if as_sent is None:
            if envelope not in self._sent_as:
                as_sent = self._admit(envelope)
            if as_sent is None:  # it would be refused each time
                session.counters.messages_refused += len(run.bodies)
                self._confirm(place, len(run.bodies))
                return
        if as_sent is not envelope:
            run = Run(run.bodies, run.size, as_sent, run.multipart)
        session.connection.publish(self.channel, run, mandatory=session.options.mandatory)
        session.counters.messages_out += len(run.bodies)
        self._in_flight.add(run, place)

    def _admit(self, envelope: Envelope) -> Envelope | None:
        """Return the envelope to publish under; None if AMQP cannot say it."""
        options = self.session.options
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
        self.backoff.succeeded()
        for flight in self._in_flight.answered(
            event.first_delivery_tag, event.last_delivery_tag, event.multiple
        ):
            self._confirm(flight.place, len(flight.run.bodies))

    def rejected(self, event: Rejected) -> None:
        """The server does not take messages: a queue of it is full, or it has a fault.  Try again later."""
        refused = self._in_flight.answered(event.first_delivery_tag, event.last_delivery_tag, event.multiple)
        if not refused:
            return
        self._again.extend(map(_place_and_run, refused))
        count = sum(len(flight.run.bodies) for flight in refused)
        self.session.counters.messages_nacked += count
        if not self._resting:
            self._resting = True
            wait = self.backoff.next_wait()
            self.session.report("retrying", f"publishing: the server refused {count} messages", wait)
            self.session.set_timer(wait, self._rested, self)

    def _rested(self) -> None:
        self._resting = False

    def returned(self, event: Returned) -> None:
        """No queue wanted a message.  The server confirms it all the same."""
        self.session.counters.messages_returned += len(event.run.bodies)
        if not self._returned:  # the first tells what is wrong; the counter tells how often
            self._returned = True
            envelope = event.run.envelope
            self.session.report(
                "returned",
                f"{event.reply_code} {event.reply_text}: exchange {envelope.exchange!r} leads messages with key "
                f"{envelope.key!r} to no queue; bind one, or set mandatory = false",
            )

    def _confirm(self, place: int, count: int) -> None:
        done = self._in_flight.settle(place, count)
        if done:
            self.session.port.confirm(done)


def _place_and_run(flight: Flight) -> tuple[int, Run]:
    return flight.place, flight.run
