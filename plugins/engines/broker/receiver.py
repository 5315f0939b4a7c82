"""Receiver: one stream of numbered deliveries to a client (an AMQP channel, a STOMP subscription).

It holds the ledger, the credit that its consumers share, and the deliveries that the front-end has
not yet encoded.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from plugins.engines.broker.errors import PreconditionFailed
from plugins.engines.broker.ledger import Handed, Ledger, UnknownTag

if TYPE_CHECKING:
    from plugins.engines.broker.consumer import Consumer
    from plugins.engines.broker.queue import Queue
    from plugins.engines.broker.span import Span


LEAST_PER_MESSAGE = 64
"""Bytes that a message counts in a window even if its body has fewer: its frames are no smaller."""


class Window:
    """How many more bytes the connection wants to be handed before it has written some."""

    __slots__ = ("left", "starved")

    def __init__(self, left: int) -> None:
        self.left = left
        self.starved: dict[Queue, None] = {}
        """Queues that found it closed, the first to do so first."""

    def room(self) -> int:
        """Return how many messages fit at the most; one always does while it is open."""
        return self.left // LEAST_PER_MESSAGE + 1

    def refill(self, left: int, now: float) -> None:
        """Let queues hand over up to ``left`` bytes more; no more of them are asked than it takes to fill that."""
        self.left = left
        starved = self.starved
        while starved and self.left > 0:
            queue = next(iter(starved))
            del starved[queue]
            queue.settle(now)


Delivery: TypeAlias = "tuple[Consumer, int, Span]"
"""Messages on their way to a consumer; their tags count up from the number."""


class Receiver:
    """Where consumers of one channel meet: tags, credit, deliveries."""

    __slots__ = (
        "active",
        "cancelled",
        "consumers",
        "deliveries",
        "ledger",
        "on_cancelled",
        "on_deliveries",
        "outstanding",
        "prefetch",
        "window",
    )

    def __init__(
        self,
        window: Window,
        on_deliveries: Callable[[], None],
        on_cancelled: Callable[[Consumer], None],
    ) -> None:
        self.window = window
        self.ledger = Ledger()
        self.consumers: dict[str, Consumer] = {}
        self.deliveries: list[Delivery] = []
        self.prefetch = 0
        """How many all consumers together may hold unacknowledged; 0: no limit."""
        self.outstanding = 0
        """How many consumers hold unacknowledged (what ``get`` took does not count against the credit)."""
        self.active = True
        """False while the client asked for a pause, or has no connection."""
        self.cancelled: list[Consumer] = []
        """Consumers whose queue went while there was no connection."""
        self.on_deliveries = on_deliveries
        """Called when the first delivery is waiting to be taken."""
        self.on_cancelled = on_cancelled
        """Called when the broker ends a consumer, because its queue is gone."""

    def hand(self, consumer: Consumer, spans: list[Span], count: int, size: int) -> None:
        """Take spans from a queue for a consumer: ``count`` messages of together ``size`` bytes."""
        least = LEAST_PER_MESSAGE * count
        self.window.left -= size if size > least else least  # noqa: FURB136 - a call, once a batch
        deliveries = self.deliveries
        if not deliveries:
            self.on_deliveries()
        ledger = self.ledger
        if consumer.settled:
            tag = ledger.next_tag
            for span in spans:
                deliveries.append((consumer, tag, span))
                tag += span.stop - span.start
            ledger.next_tag = tag
            return
        consumer.outstanding += count
        self.outstanding += count
        queue = consumer.queue
        for span in spans:
            deliveries.append((consumer, ledger.hand_out(span, queue, consumer), span))

    def take_deliveries(self) -> list[Delivery]:
        """Return and forget what is to be encoded now."""
        deliveries = self.deliveries
        self.deliveries = []
        return deliveries

    def take_one(self, queue: Queue, now: float, *, settled: bool) -> tuple[int, Span] | None:
        """Take one message from a queue for a ``get``, with its tag; None: there is none."""
        span = queue.take(now)
        if span is None:
            return None
        if not settled:
            return self.ledger.hand_out(span, queue, None), span
        queue.acknowledge(span)
        tag = self.ledger.next_tag
        self.ledger.next_tag += 1
        return tag, span

    def acknowledge(self, first: int, last: int, *, multiple: bool) -> None:
        """The client has dealt with these: each from ``first`` to ``last``, or with ``multiple`` all up to ``last``."""
        settled, refusal = self.settle(first, last, multiple=multiple)
        self.accept(settled)
        if refusal is not None:
            raise refusal

    def reject(self, first: int, last: int, *, multiple: bool, requeue: bool, now: float) -> None:
        """The client does not want these: back to the queue, or away (to the dead-letter exchange)."""
        settled, refusal = self.settle(first, last, multiple=multiple)
        self.refuse(settled, requeue=requeue, now=now)
        if refusal is not None:
            raise refusal

    def settle(
        self, first: int, last: int, *, multiple: bool
    ) -> tuple[list[Handed], PreconditionFailed | None]:
        """Take tags off the ledger; return what they stood for, and the refusal of one that is not there.

        What follows from it, ``accept`` or ``refuse``, may come later (in a transaction).
        """
        if multiple:
            return self.ledger.settle_up_to(last), None
        try:
            return self.ledger.settle_range(first, last), None
        except UnknownTag as unknown:
            return unknown.settled, unknown.refusal

    def accept(self, settled: list[Handed]) -> None:
        """What was taken off the ledger has been dealt with."""
        for handed in settled:
            self._release(handed)
            handed.queue.acknowledge(handed.span)

    def refuse(self, settled: list[Handed], *, requeue: bool, now: float) -> None:
        """What was taken off the ledger is not wanted."""
        if requeue:
            self._requeue(settled)
            return
        for handed in settled:
            self._release(handed)
            handed.queue.reject(handed.span, now)

    def give_up(
        self, queue: Queue, first_tag: int, span: Span, why: str, now: float, *, settled: bool
    ) -> None:
        """The client's protocol cannot carry these messages, which it was to be handed under tags from the first on.

        Nothing of them was sent.  They leave the queue as undeliverable; their tags are given to nothing else.
        ``settled``: they counted as acknowledged when they were handed out.
        """
        if settled:
            queue.give_up(span, why, now)
            return
        handed, _ = self.settle(first_tag, first_tag + len(span) - 1, multiple=False)
        for one in handed:
            self._release(one)
            queue.outstanding -= len(one)
            queue.give_up(one.span, why, now)

    def recover(self) -> None:
        """Requeue all that is outstanding, for this receiver or any other."""
        self._requeue(self.ledger.settle_all())

    def _requeue(self, settled: list[Handed]) -> None:
        # The latest first: each then goes to the very front of its queue without overtaking.
        for handed in reversed(settled):
            self._release(handed)
            handed.queue.requeue(handed.span)

    def detach(self) -> None:
        """The connection is lost and the session lives on: take nothing more, and keep what is outstanding.

        What was handed over and not yet encoded waits in ``deliveries``.  The consumers stay with their queues.
        """
        self.active = False
        self.window = Window(0)
        self.on_deliveries = _nobody_listens
        self.on_cancelled = self._remember_cancelled

    def attach(
        self,
        window: Window,
        on_deliveries: Callable[[], None],
        on_cancelled: Callable[[Consumer], None],
    ) -> None:
        """The client is back on another connection: go on, with the deliveries that were not encoded first.

        What is outstanding is in ``ledger``, to be sent again under its old tags or others; what was not encoded is
        in both.
        """
        self.window = window
        self.on_deliveries = on_deliveries
        self.on_cancelled = on_cancelled
        self.active = True
        cancelled, self.cancelled = self.cancelled, []
        for consumer in cancelled:
            on_cancelled(consumer)
        if self.deliveries:
            on_deliveries()
        self.wake()

    def _remember_cancelled(self, consumer: Consumer) -> None:
        self.cancelled.append(consumer)

    def wake(self) -> None:
        """There is credit again, or the window is open: have the queues look."""
        for consumer in self.consumers.values():
            consumer.queue.touch()

    def count_consumers(self, queue: Queue) -> int:
        """Return how many consumers of ``queue`` are here."""
        return sum(consumer.queue is queue for consumer in self.consumers.values())

    def _release(self, handed: Handed) -> None:
        consumer = handed.consumer
        if consumer is None:
            return
        count = len(handed)
        consumer.outstanding -= count
        self.outstanding -= count
        if self.prefetch:
            self.wake()
        if consumer.prefetch:
            consumer.queue.touch()


def _nobody_listens() -> None:
    """Deliveries wait until a connection is attached."""
