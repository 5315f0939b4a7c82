"""Subscriptions: SUBSCRIBE, UNSUBSCRIBE, ACK and NACK, and the messages that are delivered.

A subscription is a receiver with one consumer.  So delivery tags are numbered in the subscription, and
``ack:client`` is cumulative in it (STOMP 1.2, SUBSCRIBE ack Header).  The identifier of a message has the tag
of its subscription, the session and the delivery tag, as RabbitMQ's has.

What a subscription has left unacknowledged when it ends can still be acknowledged.  Another subscription
under the same identifier goes on with the receiver, so that tags stay unique.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

from plugins.engines.broker.public import Consumer, Queue, Receiver, Span
from plugins.engines.stomp.session import Session, number_of
from plugins.protocols.stomp.destinations import (
    TEMP_QUEUE,
    Destination,
    destination_of,
    parse_destination,
    reply_destination_of,
)
from plugins.protocols.stomp.errors import CannotCarry, Fault
from plugins.protocols.stomp.frames import Frames
from plugins.protocols.stomp.message_template import MessageTemplate
from plugins.protocols.stomp.properties import headers_of, is_true
from plugins.protocols.stomp.versions import Version

SEPARATOR = "@@"
_ACK_MODES = ("auto", "client", "client-individual")
# Limits for one subscription: envelopes may never come twice, and their headers may be long.
_MOST_TEMPLATES = 256
_MOST_OCTETS = 1 << 19
# Digits.  To convert a number of any length would cost a client nothing, and the broker its time.
_LONGEST_TAG = 18


class Subscription:
    """One subscription of a client."""

    def __init__(self, tag: str, identifier: str | None, mode: str, kind: str) -> None:
        self.tag = tag
        """``T_`` and the identifier; without one ``Q_`` and the destination (STOMP 1.0)."""
        self.identifier = identifier
        self.mode = mode
        self.kind = kind
        """The kind of its destination."""
        self.templates: dict[tuple[object, bool], MessageTemplate | str] = {}
        """By envelope and redelivery; a text says why the message cannot be carried."""
        self.octets = 0
        self.receiver: Receiver
        self.consumer: Consumer

    @property
    def cumulative(self) -> bool:
        """Whether an acknowledgement is for all messages before it, too."""
        return self.mode == "client"


class Subscriptions:
    """The subscriptions of one session."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._open: dict[str, Subscription] = {}
        self._left: dict[str, Subscription] = {}
        """Subscriptions that have ended, and have messages that are not acknowledged."""
        self._delivering: list[Subscription] = []
        self._undeliverable: list[tuple[Subscription, Consumer, int, Span, str]] = []
        self._reply_queues: dict[str, str] = {}
        """The names of temporary queues, by the names that the client gives them."""

    def __iter__(self) -> Iterator[Subscription]:
        """Iterate over the subscriptions that are open."""
        return iter(self._open.values())

    @property
    def count(self) -> int:
        """How many are open."""
        return len(self._open)

    def unacked_bytes(self) -> int:
        """Return an estimate of the octets of bodies that the client has not acknowledged."""
        every = (*self._open.values(), *self._left.values())
        return sum([each.receiver.unacked.estimated_size() for each in every])

    # Begin and end

    def subscribe(self, frames: Frames, now: float) -> None:
        """Begin a subscription."""
        headers = frames.headers
        session = self._session
        if "selector" in headers:
            raise Fault(
                "Selectors not supported",
                "There are no selectors here: bind a queue to a headers exchange, or subscribe to a topic\n",
            )
        if "destination" not in headers:
            raise Fault("Missing destination", "'SUBSCRIBE' must include a 'destination' header\n")
        tag, _ = _tag_of(frames, session.version)
        if tag in self._open:
            raise Fault(
                "Duplicated subscription identifier",
                f"A subscription identified by '{tag}' already exists.\n",
            )
        most = session.options.max_subscriptions
        if len(self._open) >= most:
            raise Fault("Too many subscriptions", f"A connection may have {most}\n")
        mode = headers.get("ack", "auto")
        if mode not in _ACK_MODES:
            raise Fault("Invalid header", f"ack must be one of {', '.join(_ACK_MODES)}, and not '{mode}'\n")
        prefetch = number_of(headers, "prefetch-count") if "prefetch-count" in headers else 0
        arguments = {"x-priority": number_of(headers, "x-priority")} if "x-priority" in headers else {}
        # The queue is made when all headers are known to be right, so that a wrong one leaves none behind.
        destination = parse_destination(headers["destination"])
        queue = self._queue_of(destination, headers, now)
        subscription = Subscription(tag, headers.get("id"), mode, destination.kind)
        self._start(subscription, queue, arguments, max(prefetch, 0), now)

    def _queue_of(self, destination: Destination, headers: Mapping[str, str], now: float) -> Queue:
        session = self._session
        kind, name = destination.kind, destination.name
        if kind == "temp-queue":
            raise Fault(
                "Invalid destination",
                f"'{headers['destination']}' is not a valid destination for 'SUBSCRIBE'\n",
            )
        if kind in ("topic", "exchange"):
            return session.declare_subscription_queue(destination, headers.get("id", ""), headers, now)
        session.login.require("read", "queue", name, session.vhost.name)
        if kind == "queue":
            return session.declare_queue(name, headers, now)
        # Of the other kinds the queue has to be there.
        return session.vhost.find_queue(name, session)

    def _start(
        self,
        subscription: Subscription,
        queue: Queue,
        arguments: Mapping[str, int],
        prefetch: int,
        now: float,
    ) -> None:
        left = self._left.get(subscription.tag)
        # One of the same tag may have left messages that can still be acknowledged.  Its receiver goes on,
        # and with it the numbers of deliveries, so that none is used twice.
        receiver = Receiver(self._session.client.window, lambda: None, self._on_cancelled)
        if left is not None:
            receiver = left.receiver
        receiver.on_deliveries = partial(self._on_deliveries, subscription)
        subscription.receiver = receiver
        subscription.consumer = Consumer(
            subscription.tag,
            queue,
            receiver,
            auto_ack=subscription.mode == "auto",
            exclusive=False,
            prefetch=prefetch,
            arguments=arguments,
        )
        self._session.vhost.subscribe(subscription.consumer, now)
        self._open[subscription.tag] = subscription
        # Only now: the queue may have refused the consumer, and then ``end_all`` returns what was left.
        self._left.pop(subscription.tag, None)

    def reply_queue(self, destination: Destination, now: float) -> str:
        """Return the name of the queue behind /temp-queue/NAME; make it at the first use."""
        name = self._reply_queues.get(destination.name)
        if name is None:
            session = self._session
            # The client reads a temporary queue without having subscribed to it, and may name any number of
            # them.
            if len(self._open) >= session.options.max_subscriptions:
                raise Fault("Too many subscriptions", "There are too many temporary queues\n")
            queue = session.make_temporary_queue(now)
            session.login.require("read", "queue", queue.name, session.vhost.name)
            identifier = TEMP_QUEUE + destination.name
            subscription = Subscription(f"T_{identifier}", identifier, "auto", destination.kind)
            self._start(subscription, queue, {}, 0, now)
            name = self._reply_queues[destination.name] = queue.name
        return name

    def unsubscribe(self, frames: Frames, now: float) -> None:
        """End a subscription.  What was delivered to it is sent first."""
        tag, description = _tag_of(frames, self._session.version)
        subscription = self._open.get(tag)
        if subscription is None:
            raise Fault(
                "No subscription found",
                "UNSUBSCRIBE must refer to an existing subscription.\n"
                f"Subscription to {description} not found.\n",
            )
        self._send(subscription)
        # All that was delivered to it is sent, so the end of the turn has nothing to do for it.
        self._delivering = [each for each in self._delivering if each is not subscription]
        self._end(subscription, now)
        if subscription.receiver.unacked:
            self._left[tag] = subscription
        durable = is_true(frames.headers, "durable") or is_true(frames.headers, "persistent")
        # As RabbitMQ: with this header UNSUBSCRIBE also ends what the queue keeps for later connections.
        if durable and subscription.kind == "topic":
            self._session.delete_queue(subscription.consumer.queue.name, now)

    def _end(self, subscription: Subscription, now: float) -> None:
        del self._open[subscription.tag]
        self._session.vhost.unsubscribe(subscription.consumer, now)

    def end_all(self, now: float) -> None:
        """End every subscription, and return what is unacknowledged."""
        receivers = [each.receiver for each in (*self._open.values(), *self._left.values())]
        # Before anything is returned: it would be delivered to these consumers again.
        for subscription in list(self._open.values()):
            self._end(subscription, now)
        self._left.clear()
        self._delivering.clear()
        for receiver in receivers:
            # Not to be sent any more.  They count as unacknowledged, so ``recover`` returns them as well.
            receiver.take_deliveries()
            receiver.recover()

    def _on_cancelled(self, consumer: Consumer) -> None:
        """The queue was deleted."""
        # Removed here, so that ``end_all`` does not unsubscribe a consumer whose queue is gone.
        subscription = self._open.pop(consumer.tag, None)
        if subscription is not None:
            # Its receiver may have messages of another queue: of the subscription that had this tag before.
            if subscription.receiver.unacked:
                self._left[consumer.tag] = subscription
            name = subscription.identifier or consumer.tag
            self._session.client.fail(
                Fault(
                    "Server cancelled subscription",
                    "The server has canceled a subscription.\n"
                    f"No more messages will be delivered for '{name}': its queue was deleted.\n",
                )
            )

    # Acknowledgements

    def acknowledged(self, frames: Frames, index: int = 0) -> tuple[Subscription, int]:
        """Return the subscription and the delivery tag that an ACK or NACK names.

        ``index``: which of them.
        """
        version = self._session.version
        name = "id" if version is Version.V1_2 else "message-id"
        if not frames.acknowledged:
            raise Fault("Missing header", f"'{frames.command}' must include the '{name}' header\n")
        text = frames.acknowledged[index]
        # From the right: the tag has a name that the client has chosen, and may have the separator in it.
        tag, session, number = [*text.rsplit(SEPARATOR, 2), "", ""][:3]
        if session != self._session.name or not (
            number.isascii() and number.isdigit() and 0 < len(number) <= _LONGEST_TAG and int(number)
        ):
            raise Fault("Invalid header", f"'{frames.command}' must include a valid '{name}' header\n")
        # The open one first: it has the receiver of the one that has ended (``_start``).
        subscription = self._open.get(tag) or self._left.get(tag)
        if subscription is None:
            raise Fault("Subscription not found", f"Message with id '{text}' has no subscription\n")
        # STOMP 1.1 has the subscription in a header of its own, too.
        named = frames.headers.get("subscription")
        if version is Version.V1_1 and named is not None and named != subscription.identifier:
            raise Fault("Invalid header", f"Message with id '{text}' is not of subscription '{named}'\n")
        return subscription, int(number)

    def acknowledge(self, frames: Frames) -> None:
        """Acknowledge messages, or all up to each of them."""
        index = 0
        while True:
            subscription, tag = self.acknowledged(frames, index)
            last = tag
            if not subscription.cumulative:
                # One call of the receiver for all that count up, which is mostly all that came in one read.
                last = _last_in_order(frames.acknowledged, index, tag)
            subscription.receiver.acknowledge(tag, last, multiple=subscription.cumulative)
            self._forget(subscription)
            index += last - tag + 1
            if index >= len(frames.acknowledged):
                return

    def reject(self, frames: Frames, now: float) -> None:
        """Requeue or reject a message, or all up to it."""
        subscription, tag = self.acknowledged(frames)
        subscription.receiver.reject(
            tag, tag, multiple=subscription.cumulative, requeue=requeues(frames), now=now
        )
        self._forget(subscription)

    def _forget(self, subscription: Subscription) -> None:
        if not subscription.receiver.unacked and self._left.get(subscription.tag) is subscription:
            del self._left[subscription.tag]

    # Deliveries

    def _on_deliveries(self, subscription: Subscription) -> None:
        if not self._delivering:
            self._session.client.is_busy()
        self._delivering.append(subscription)

    def send_deliveries(self, now: float) -> None:
        """Send what was delivered in this turn, and give up what STOMP cannot carry."""
        # What is delivered from here on is for the next turn, which ``_on_deliveries`` asks for.
        delivering, self._delivering = self._delivering, []
        for subscription in delivering:
            self._send(subscription)
        if self._undeliverable:
            # Behind the loop: a message that is given up may be dead-lettered to a queue that is read here.
            undeliverable, self._undeliverable = self._undeliverable, []
            for subscription, consumer, first_tag, span, why in undeliverable:
                subscription.receiver.give_up(
                    consumer.queue, first_tag, span, why, now, auto_ack=consumer.auto_ack
                )

    def _send(self, subscription: Subscription) -> None:
        client = self._session.client
        for consumer, first_tag, span in subscription.receiver.take_deliveries():
            template = subscription.templates.get((span.envelope, span.redelivered))
            if template is None:
                template = self._make_template(subscription, span)
            if isinstance(template, str):
                self._undeliverable.append((subscription, consumer, first_tag, span, template))
                continue
            # A span is mostly a whole batch, which then need not be copied.
            batch = span.batch
            if span.stop - span.start != len(batch.bodies):
                batch = span.as_batch()
            client.messages_out += len(batch.bodies)
            for part in template.encode(first_tag, batch.bodies, batch.size):
                client.send(part)

    def _make_template(self, subscription: Subscription, span: Span) -> MessageTemplate | str:
        """Encode the headers of an envelope."""
        envelope = span.envelope
        identifier = subscription.identifier
        first = [] if identifier is None else [("subscription", identifier)]
        first.append(("destination", destination_of(envelope.exchange, envelope.key)))
        version = self._session.version
        made: MessageTemplate | str
        try:
            rest = [
                (name, reply_destination_of(value) if name == "reply-to" else value)
                for name, value in headers_of(envelope)
            ]
            made = MessageTemplate(
                first,
                f"{subscription.tag}{SEPARATOR}{self._session.name}{SEPARATOR}",
                [("redelivered", "true" if span.redelivered else "false"), *rest],
                version,
                # Before 1.2 the message is acknowledged by its message-id.
                ack=subscription.mode != "auto" and version is Version.V1_2,
            )
            octets = made.octets
        except CannotCarry as cannot:
            # Remembered as a template is, so that the next such message costs no attempt.
            made = str(cannot)
            octets = len(made)
        subscription.octets += octets
        # All at once: those in use are made again with their next messages.
        if len(subscription.templates) >= _MOST_TEMPLATES or subscription.octets > _MOST_OCTETS:
            subscription.templates.clear()
            subscription.octets = octets
        subscription.templates[envelope, span.redelivered] = made
        return made


def _last_in_order(names: list[str], index: int, tag: int) -> int:
    """Return the last delivery tag of the names that count up by one from that at ``index``.

    A client mostly acknowledges in the order of delivery.
    """
    prefix = names[index].removesuffix(str(tag))
    # By index: a copy of the rest would be made for each ACK that is out of order.
    for at in range(index + 1, len(names)):
        if names[at] != f"{prefix}{tag + at - index}":
            return tag + at - index - 1
    return tag + len(names) - index - 1


def requeues(frames: Frames) -> bool:
    """Whether a NACK returns the message to its queue."""
    # STOMP says nothing of it. As RabbitMQ: it does, unless the header says otherwise.
    return is_true(frames.headers, "requeue") is not False


def _tag_of(frames: Frames, version: Version) -> tuple[str, str]:
    """Return the tag of the subscription that a frame names, and the name for people."""
    headers = frames.headers
    identifier = headers.get("id")
    if identifier is not None:
        # Identifiers of this form belong to the subscriptions of temporary queues (``reply_queue``).
        if identifier.startswith(TEMP_QUEUE):
            raise Fault("Invalid id", f"{frames.command} 'id' may not start with {TEMP_QUEUE}\n")
        return f"T_{identifier}", f"id='{identifier}'"
    # A durable subscription is found again by its identifier, so it has to have one in 1.0, too, where the
    # header is optional.
    durable = is_true(headers, "durable") or is_true(headers, "persistent")
    if version is not Version.V1_0 or durable:
        raise Fault("Missing header", f"'{frames.command}' must include an 'id' header\n")
    if "destination" not in headers:
        raise Fault(
            "Missing destination or id",
            f"{frames.command} must include a 'destination' or 'id' header\n",
        )
    return f"Q_{headers['destination']}", f"destination='{headers['destination']}'"
