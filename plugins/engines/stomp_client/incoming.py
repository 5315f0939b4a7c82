"""Incoming: messages of the broker on their way to the routes, and their acknowledgements.

A message is acknowledged when the routes have confirmed it; if no route confirms, when the port has taken it.
The routes confirm in order, so ACK frames go in the order in which the messages came, over all subscriptions.
So a broker for which ``ack:client`` is cumulative in the whole connection (RabbitMQ) gets the same meaning as
one for which it is cumulative in its subscription (STOMP 1.2).

While the port is full, messages wait here without being acknowledged, and a broker with a prefetch stops by
itself.  So the socket can be read, and receipts of what this engine publishes are processed.  Only if more
waits than that it is not read.

A message that cannot be one here (a priority that is no number) is refused with NACK, in its order: where
``ack:client`` is cumulative, so is NACK.  STOMP 1.0 has no NACK, and the message is acknowledged.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

import msgspec

from kernel.contracts.engine import Port
from kernel.contracts.message import PLAIN, Batch, Buffer, Envelope
from plugins.engines.stomp_client.counters import Counters
from plugins.engines.stomp_client.options import StompClientOptions, SubscriptionOptions
from plugins.protocols.stomp.destinations import parse_destination
from plugins.protocols.stomp.errors import Fault
from plugins.protocols.stomp.frames import Flow, Frames, encode_acknowledgements
from plugins.protocols.stomp.properties import envelope_of
from plugins.protocols.stomp.versions import Version

_MOST_WAITING = 10_000
"""Messages of a broker without prefetch that wait for the port before the socket is not read."""
_MOST_WAITING_BYTES = 64 * 1024 * 1024
"""Bytes that wait for the port before the socket is not read."""
_MOST_FLOWS = 1024
"""Flows whose envelope is remembered."""
_NOTHING = Batch((), 0, PLAIN)
"""Stands for messages that are refused here, and not sent to the routes."""


class _Arrived(msgspec.Struct, gc=False):
    """Messages of one run of MESSAGE frames."""

    batch: Batch
    subscription: SubscriptionOptions
    ids: Sequence[str]
    """What ACK has to name; without those that are acknowledged."""
    end: int = 0
    """The port's count behind them."""


class Incoming:
    """The messages that came on the present connection and are not acknowledged."""

    def __init__(
        self, options: StompClientOptions, counters: Counters, refused: Callable[[str, str], None]
    ) -> None:
        """``refused``: called with a destination and a reason when messages are refused."""
        self.port: Port
        self.going = True
        """Whether the port takes messages."""
        self._options = options
        self._counters = counters
        self._report_refused = refused
        self._version = Version.V1_2
        self._subscriptions = {each.identifier: each for each in options.subscriptions}
        prefetches = [each.prefetch for each in options.subscriptions]
        # A broker sends no more than the prefetches together without an ACK. If one of them is unlimited, so
        # is the sum.
        self._most_waiting = sum(prefetches) if all(prefetches) else _MOST_WAITING
        self._envelopes: dict[Flow, Envelope | str] = {}
        self._arrived: deque[_Arrived] = deque()
        self._waiting = 0
        """Messages in ``_arrived``."""
        self._waiting_bytes = 0
        self._unconfirmed: deque[_Arrived] = deque()
        self._answers: list[Buffer] = []

    @property
    def stops_reading(self) -> bool:
        """Whether the socket must not be read now."""
        return not self.going and (
            self._waiting > self._most_waiting or self._waiting_bytes > _MOST_WAITING_BYTES
        )

    def begin(self, version: Version) -> None:
        """The broker has accepted a connection."""
        self._version = version

    def lost(self) -> None:
        """The connection has ended: the broker delivers again what was not acknowledged."""
        self._envelopes.clear()
        self._arrived.clear()
        self._waiting = self._waiting_bytes = 0
        # What they name has no meaning on the next connection.
        self._unconfirmed.clear()
        self._answers.clear()

    def take_answers(self) -> list[Buffer]:
        """Return what has to be sent to the broker."""
        answers, self._answers = self._answers, []
        return answers

    # From the broker

    def _unnamed(self, frames: Frames) -> SubscriptionOptions | None:
        """Return the subscription of messages that name none, which some brokers of STOMP 1.0 leave out."""
        if self._version is not Version.V1_0 or "subscription" in frames.headers:
            return None
        there = list(self._subscriptions.values())
        destination = frames.headers.get("destination", "")
        # With a wildcard, messages have another destination than the subscription.
        return next(
            (each for each in there if each.destination == destination), there[0] if len(there) == 1 else None
        )

    def message(self, frames: Frames) -> None:
        """Messages have come: keep them until ``flush``, at the end of the turn.  Raises ``Fault``."""
        name = frames.headers.get("subscription", "")
        subscription = self._subscriptions.get(name) or self._unnamed(frames)
        if subscription is None:
            raise Fault("MESSAGE", f"there is no subscription {name[:80]!r}")
        # ``Head.receipt`` of MESSAGE is what its ACK has to name.
        ids = [identifier for _, identifier in frames.receipts]
        if len(ids) != len(frames.bodies):
            header = "ack" if self._version is Version.V1_2 else "message-id"
            raise Fault("MESSAGE", f"a message of subscription {name[:80]!r} has no header {header}")
        envelope = self._envelope_of(frames)
        self._counters.messages_in += len(ids)
        if isinstance(envelope, str):
            self._counters.messages_nacked += len(ids)
            self._report_refused(frames.headers.get("destination", ""), envelope)
            self._arrived.append(_Arrived(_NOTHING, subscription, ids))
            return
        batch = Batch(frames.bodies, frames.size, envelope, False, frames.width)
        self._arrived.append(_Arrived(batch, subscription, ids))
        self._waiting += len(ids)
        self._waiting_bytes += frames.size

    def _envelope_of(self, frames: Frames) -> Envelope | str:
        """Return the envelope, the same object for the same headers; a text: why there is none."""
        flow = frames.flow
        found = self._envelopes.get(flow)
        if found is None:
            if len(self._envelopes) >= _MOST_FLOWS:
                self._envelopes.clear()
            try:
                found = self._make_envelope(flow)
            except Fault as fault:
                found = str(fault)
            self._envelopes[flow] = found
        return found

    def _make_envelope(self, flow: Flow) -> Envelope:
        text = flow.headers.get("destination", "")
        exchange, key = "", text
        try:
            destination = parse_destination(text)
        except Fault:
            # A broker with other names than RabbitMQ's: the key is the whole destination.
            pass
        else:
            exchange, key = destination.exchange, destination.routing_key
        if self._options.exchange is not None:
            exchange = self._options.exchange
        return envelope_of(exchange, key, flow.headers)

    # To the routes

    def flush(self) -> None:
        """Send what has arrived to the port, unless it is full."""
        arrived = self._arrived
        if not arrived or not self.going:
            return
        self._arrived = deque()
        self._waiting = self._waiting_bytes = 0
        port = self.port
        confirms = port.confirms
        # Before ``send``: ``end`` then grows with each batch to the position behind it.
        end = port.sent()
        self.going = port.send([each.batch for each in arrived if each.batch is not _NOTHING])
        for each in arrived:
            end += len(each.batch.bodies) if confirms else 0
            each.end = end
        self._unconfirmed += arrived
        # Without confirmations it is done at once, but not before what waits from a time in which a route
        # confirmed.  The routes never confirm what they did not get.
        if not confirms or any(each.batch is _NOTHING for each in arrived):
            self.confirmed(port.confirmed())

    def confirmed(self, count: int) -> None:
        """The routes have confirmed the first ``count`` messages that the port was ever given."""
        waiting = self._unconfirmed
        last: dict[str, tuple[SubscriptionOptions, Sequence[str]]] = {}
        while waiting:
            each = waiting[0]
            if each.end > count:
                # ``ids`` has those that are not acknowledged yet, up to ``end``.
                done = len(each.ids) - (each.end - count)
                if done > 0 and each.batch is not _NOTHING:
                    self._acknowledge(last, each.subscription, each.ids[:done])
                    each.ids = each.ids[done:]
                break
            waiting.popleft()
            if each.batch is _NOTHING and self._version is not Version.V1_0:
                # Before it, because it may be cumulative.
                self._send_last(last)
                self._say("NACK", each.subscription, each.ids)
            else:
                self._acknowledge(last, each.subscription, each.ids)
        self._send_last(last)

    def _acknowledge(
        self,
        last: dict[str, tuple[SubscriptionOptions, Sequence[str]]],
        subscription: SubscriptionOptions,
        ids: Sequence[str],
    ) -> None:
        """Acknowledge messages.  ``last``: the last ones of subscriptions with cumulative ACK."""
        if subscription.ack == "client" and self._version is not Version.V1_0:
            # Behind the others, so that the order is that of the messages.
            last.pop(subscription.identifier, None)
            last[subscription.identifier] = (subscription, ids[-1:])
        else:
            self._send_last(last)
            self._say("ACK", subscription, ids)

    def _send_last(self, last: dict[str, tuple[SubscriptionOptions, Sequence[str]]]) -> None:
        for subscription, ids in last.values():
            self._say("ACK", subscription, ids)
        last.clear()

    def _say(self, command: str, subscription: SubscriptionOptions, ids: Sequence[str]) -> None:
        self._answers.append(encode_acknowledgements(command, ids, subscription.identifier, self._version))
