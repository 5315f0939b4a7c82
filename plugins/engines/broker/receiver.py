"""Receiver: one stream of numbered deliveries to a client (an AMQP channel, a STOMP subscription).

It has the unacknowledged messages, the credit that its consumers share, and the deliveries that the front end
has not encoded yet.  A queue calls ``deliver``, which adds a message to ``unacked`` (unless the consumer
acknowledges automatically) and to ``deliveries``.  The front end takes ``deliveries`` at the end of the turn.

Three limits bound what is delivered; ``Consumer.room`` computes how much all of them allow.

* ``Consumer.prefetch``: unacknowledged messages of one consumer.
* ``Receiver.prefetch``: unacknowledged messages of all consumers of a receiver.
* ``Window``: bytes that were delivered to a connection and that its socket has not taken.  It bounds the
  memory of a client that reads slowly, acknowledges automatically, or has no prefetch.

A queue that stops at a limit must be processed when the limit allows more.  An acknowledgement touches the
queues of the consumers for which it makes room.  The window remembers which queues it has stopped.

A receiver is attached to a connection, or detached while a session outlives its connection.  A detached
receiver is delivered nothing, and keeps what is unacknowledged.

Everything here is called by the broker's thread.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from plugins.engines.broker.errors import PreconditionFailed
from plugins.engines.broker.unacked import Unacked, UnackedRange, UnknownTag

if TYPE_CHECKING:
    from plugins.engines.broker.consumer import Consumer
    from plugins.engines.broker.queue import Queue
    from plugins.engines.broker.span import Span


LEAST_PER_MESSAGE = 64
"""Bytes that a message counts in a window at least: with a small body, most of what is written are frame
headers."""


class Window:
    """How many more bytes queues may deliver to a connection before it has written some.

    All its receivers share it.
    """

    __slots__ = ("left", "starved")

    def __init__(self, left: int) -> None:
        self.left = left
        self.starved: dict[Queue, None] = {}
        """Queues that had messages when the window was closed, in that order."""

    def refill(self, left: int, now: float) -> None:
        """Set the window to ``left`` bytes, and process queues that waited for it while it is open."""
        self.left = left
        starved = self.starved
        # Each queue is removed before it is processed.  If the window closes meanwhile, the queue adds itself
        # again, behind the others.  So queues take turns at a window that is too small for all of them.
        while starved and self.left > 0:
            queue = next(iter(starved))
            del starved[queue]
            queue.process(now)


Delivery: TypeAlias = "tuple[Consumer, int, Span]"
"""Consumer, first delivery tag and messages; the tags of the messages count up from the first."""


class Receiver:
    """The consuming side of one channel: delivery tags, credit, and deliveries of all its consumers."""

    __slots__ = (
        "_detached_in",
        "_served",
        "accepts_keyed",
        "active",
        "cancelled",
        "consumers",
        "deliveries",
        "detached",
        "on_cancelled",
        "on_deliveries",
        "outstanding",
        "prefetch",
        "unacked",
        "window",
    )

    def __init__(
        self,
        window: Window,
        on_deliveries: Callable[[], None],
        on_cancelled: Callable[[Consumer], None],
    ) -> None:
        self.window = window
        self.unacked = Unacked()
        self.consumers: dict[str, Consumer] = {}
        self.deliveries: list[Delivery] = []
        self.accepts_keyed = False
        """Whether messages that differ in their keys may be delivered in keyed batches."""
        self.prefetch = 0
        """How many messages all consumers together may have unacknowledged; 0: no limit."""
        self._served = ""
        """The tag of the consumer that was delivered to last.  Not the consumer, which
        may be gone by then."""
        self.outstanding = 0
        """How many messages the consumers have unacknowledged.  Those that ``get`` took do not count against
        the credit."""
        self.active = True
        """False while the client has paused deliveries, or is not connected."""
        self.detached = False
        """Whether its session waits for another connection."""
        self.cancelled: list[Consumer] = []
        """Consumers whose queue was deleted while there was no connection."""
        self._detached_in: dict[Receiver, int] | None = None
        """``Broker.detached``, while this receiver is in it."""
        self.on_deliveries = on_deliveries
        """Called when ``deliveries`` was empty and gets its first entry.

        A queue is in the middle of delivering then, so the callback may only say that its client is busy.
        """
        self.on_cancelled = on_cancelled
        """Called when the broker ends a consumer because its queue was deleted.

        The consumer is no longer in ``consumers`` then.  What it has unacknowledged still is in ``unacked``.
        """

    def deliver(self, consumer: Consumer, spans: list[Span], count: int, size: int) -> None:
        """Deliver spans of a queue to a consumer: ``count`` messages with ``size`` octets of bodies."""
        self._served = consumer.tag
        # One subtraction for all spans.  A single message may exceed what is left: a window smaller than a
        # message would otherwise never let it pass.
        least = LEAST_PER_MESSAGE * count
        self.window.left -= size if size > least else least  # noqa: FURB136 - max() is a call, for each batch
        deliveries = self.deliveries
        # Once a turn, not once a batch: the list is cleared at the end of the turn.
        if not deliveries:
            self.on_deliveries()
        unacked = self.unacked
        if consumer.auto_ack:
            # These take tags, too: all deliveries of an AMQP channel are numbered in one sequence.
            tag = unacked.next_tag
            for span in spans:
                deliveries.append((consumer, tag, span))
                tag += span.stop - span.start
            unacked.next_tag = tag
            return
        consumer.outstanding += count
        self.outstanding += count
        queue = consumer.queue
        for span in spans:
            deliveries.append((consumer, unacked.add(span, queue, consumer), span))

    def take_deliveries(self) -> list[Delivery]:
        """Return the deliveries that have not been encoded, and clear the list."""
        deliveries = self.deliveries
        self.deliveries = []
        return deliveries

    def take_one(self, queue: Queue, now: float, *, auto_ack: bool) -> tuple[int, Span] | None:
        """Take one message from a queue for a ``get``.

        Return its tag and the message, or None if the queue is empty.
        """
        span = queue.take(now)
        if span is None:
            return None
        if not auto_ack:
            return self.unacked.add(span, queue, None), span
        # ``Queue.take`` has counted the message as outstanding.
        queue.acknowledge(span)
        tag = self.unacked.next_tag
        self.unacked.next_tag += 1
        return tag, span

    def take_again(self, consumer: Consumer, position: int) -> tuple[int, Span] | None:
        """Take a message that was sent before the broker started; return its tag and the message.

        None: its queue does not have it.  The consumer need not be subscribed any more.
        """
        span = consumer.queue.take_at(position)
        if span is None:
            return None
        consumer.outstanding += 1
        self.outstanding += 1
        return self.unacked.add(span, consumer.queue, consumer), span

    def acknowledge(self, first: int, last: int, *, multiple: bool) -> None:
        """Acknowledge the tags ``first`` to ``last``, or with ``multiple`` all tags up to ``last``.

        Raises ``PreconditionFailed`` for an unknown tag; the tags before it are acknowledged.
        """
        if first == last and not multiple:
            # Message by message, in the order of delivery: what is done below, without its lists.
            handed = self.unacked.take_oldest(first)
            if handed is not None:
                self._release(handed)
                handed.queue.acknowledge(handed.span)
                return
        taken, refusal = self.take_unacked(first, last, multiple=multiple)
        # The tags before an unknown one count, so they are processed before the error is raised.
        self.accept(taken)
        if refusal is not None:
            raise refusal

    def reject(self, first: int, last: int, *, multiple: bool, requeue: bool, now: float) -> None:
        """Reject tags: ``requeue`` them, or drop them (to the dead-letter exchange if there is one).

        ``first``, ``last`` and ``multiple`` are those of ``acknowledge``, and so is the error.
        """
        if first == last and not multiple:
            # As in ``acknowledge``.
            handed = self.unacked.take_oldest(first)
            if handed is not None:
                self.refuse([handed], requeue=requeue, now=now)
                return
        taken, refusal = self.take_unacked(first, last, multiple=multiple)
        self.refuse(taken, requeue=requeue, now=now)
        if refusal is not None:
            raise refusal

    def take_unacked(
        self, first: int, last: int, *, multiple: bool
    ) -> tuple[list[UnackedRange], PreconditionFailed | None]:
        """Remove tags from ``unacked``; return their ranges, and the error of a tag that is unknown.

        The caller then calls ``accept`` or ``refuse`` with the ranges; in a transaction, later.
        """
        if multiple:
            return self.unacked.take_up_to(last), None
        try:
            return self.unacked.take_range(first, last), None
        except UnknownTag as unknown:
            return unknown.taken, unknown.refusal

    def accept(self, taken: list[UnackedRange]) -> None:
        """Acknowledge ranges that ``take_unacked`` returned."""
        for handed in taken:
            self._release(handed)
            handed.queue.acknowledge(handed.span)

    def refuse(self, taken: list[UnackedRange], *, requeue: bool, now: float) -> None:
        """Requeue or reject ranges that ``take_unacked`` returned."""
        if requeue:
            self._requeue(taken)
            return
        # In the order of delivery, so that dead letters have it, too.
        for handed in taken:
            self._release(handed)
            handed.queue.reject(handed.span, now)

    def give_up(
        self, queue: Queue, first_tag: int, span: Span, why: str, now: float, *, auto_ack: bool
    ) -> None:
        """Drop messages that the client's protocol cannot carry.

        They were delivered under the tags from ``first_tag`` on, and were not sent.  They leave the queue as
        undeliverable, and their tags are not used again.  ``auto_ack``: they were acknowledged when they were
        delivered.
        """
        if auto_ack:
            queue.give_up(span, why, now)
            return
        handed, _ = self.take_unacked(first_tag, first_tag + len(span) - 1, multiple=False)
        for one in handed:
            self._release(one)
            # ``Queue.give_up`` does not count, because with ``auto_ack`` the messages are not outstanding.
            queue.outstanding -= len(one)
            queue.give_up(one.span, why, now)

    def recover(self) -> None:
        """Requeue all unacknowledged messages, for this receiver or any other."""
        self._forget_detached()
        self._requeue(self.unacked.take_all())

    def _requeue(self, taken: list[UnackedRange]) -> None:
        # The latest first: then each is put at the front of its queue, and none has to be moved behind
        # others.
        for handed in reversed(taken):
            self._release(handed)
            handed.queue.requeue(handed.span)

    def detach(self) -> None:
        """The connection is lost and the session continues: take no more, keep what is unacknowledged.

        Deliveries that were not encoded stay in ``deliveries``.  The consumers stay subscribed to their
        queues.  If the session ends without another connection, unsubscribe its consumers and call
        ``recover``.
        """
        # The alarms have to know these messages, and there is no client left that could report them.  The
        # size is estimated once: without a connection nothing is delivered or acknowledged.  A receiver does
        # not know its broker, but the queue of each unacknowledged message does.
        for handed in self.unacked:
            self._detached_in = handed.queue.vhost.broker.detached
            self._detached_in[self] = self.unacked.estimated_size()
            break
        self.active = False
        self.detached = True
        # The old window belongs to the connection, and would remember queues for a receiver that has left it.
        # A window without room keeps ``Consumer.room`` at nothing.
        self.window = Window(0)
        self.on_deliveries = _nobody_listens
        self.on_cancelled = self._remember_cancelled
        # A queue with a single active consumer may go on with another one.
        self.wake()

    def attach(
        self,
        window: Window,
        on_deliveries: Callable[[], None],
        on_cancelled: Callable[[Consumer], None],
    ) -> None:
        """The client has another connection: continue, and begin with the deliveries that were not encoded.

        The front end sends again what is in ``unacked``, under its old tags or new identifiers of its own.
        Deliveries that were not encoded are in ``unacked`` and in ``deliveries``: the first entry of
        ``deliveries`` has the first tag that was never sent.

        Calls ``on_cancelled`` for consumers whose queue was deleted meanwhile, then ``on_deliveries``.
        """
        self._forget_detached()
        self.window = window
        self.on_deliveries = on_deliveries
        self.on_cancelled = on_cancelled
        self.active = True
        self.detached = False
        # Cancellations first: a front end then knows which subscriptions have ended.
        cancelled, self.cancelled = self.cancelled, []
        for consumer in cancelled:
            on_cancelled(consumer)
        if self.deliveries:
            on_deliveries()
        self.wake()

    def _forget_detached(self) -> None:
        if self._detached_in is not None:
            del self._detached_in[self]
            self._detached_in = None

    def _remember_cancelled(self, consumer: Consumer) -> None:
        self.cancelled.append(consumer)

    def wake(self) -> None:
        """There is credit again: have the queues of all consumers processed in this turn.

        They share the credit, and the first may take all of it.  So the one that was served last comes last.
        """
        consumers = self.consumers
        if len(consumers) == 1:
            for consumer in consumers.values():
                # A queue without messages has nothing to deliver: one publish, and it is processed anyway.
                if consumer.queue.backlog.count:
                    consumer.queue.touch()
            return
        tags = list(consumers)
        after = tags.index(self._served) + 1 if self._served in consumers else 0
        for tag in (*tags[after:], *tags[:after]):
            queue = consumers[tag].queue
            if queue.backlog.count:
                queue.touch()

    def _release(self, handed: UnackedRange) -> None:
        consumer = handed.consumer
        if consumer is None:
            return
        span = handed.span
        count = span.stop - span.start
        consumer.outstanding -= count
        self.outstanding -= count
        # Without a prefetch, an acknowledgement changes nothing about what may be delivered, and no queue has
        # to be processed.  A prefetch of the receiver makes room for all of its consumers.
        if self.prefetch:
            self.wake()
        if consumer.prefetch:
            if consumer.waits_for_room:
                consumer.queue.take_turns_again(consumer)
            if consumer.queue.backlog.count:
                consumer.queue.touch()


def _nobody_listens() -> None:
    """While no connection is attached, deliveries wait in ``deliveries``."""
