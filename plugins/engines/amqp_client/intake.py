"""Intake: what the server delivers on its way to the routes, and the acknowledgements back."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from kernel.contracts.message import PLAIN, Batch
from plugins.engines.amqp_client.consumer import Subscription

if TYPE_CHECKING:
    from plugins.engines.amqp_client.session import Session

UNWANTED = Batch((), 0, PLAIN)
"""Stands for messages that are not handed over; they are acknowledged in their turn."""


class Intake:
    """Hands over what all consumers get, in order.

    A port that is full gets no more until it says so, and the server gets no acknowledgement of what waits
    here: with its prefetch used up it stops by itself.  So the socket is read on, and heartbeats, confirms and
    closes are never behind messages that nobody takes.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self.going = True
        self._arrived: list[tuple[Subscription, int, Batch]] = []
        self._handed_over: deque[tuple[int, Subscription, int, int]] = deque()
        """What waits for the routes: the port's count at its end, whose, its last delivery tag, its size."""

    def arrived(self, subscription: Subscription, last_tag: int, batch: Batch) -> None:
        """Keep a batch until the end of the turn."""
        self._arrived.append((subscription, last_tag, batch))
        self._session.counters.messages_in += len(batch.bodies)

    def flush(self) -> None:
        """Hand over what has arrived."""
        if not self._arrived or not self.going:
            return
        # What came on a channel that has ended since comes again.
        arrived = [item for item in self._arrived if item[0].alive or item[0].no_ack]
        self._arrived = []
        port = self._session.port
        confirms = port.confirms
        mark = port.sent()
        self.going = port.send([batch for _, _, batch in arrived if batch is not UNWANTED])
        done: dict[int, int] = {}
        for subscription, last_tag, batch in arrived:
            size = len(batch.bodies)
            mark += size if confirms else 0
            if subscription.no_ack:
                continue
            if confirms or self._handed_over:
                self._handed_over.append((mark, subscription, last_tag, size))
            else:
                done[subscription.channel] = last_tag
        self._acknowledge(done)
        if confirms and any(batch is UNWANTED for _, _, batch in arrived):
            self.confirmed(port.confirmed())  # nothing of theirs will be

    def confirmed(self, count: int) -> None:
        """The routes have confirmed the first ``count`` messages that the port ever sent."""
        done: dict[int, int] = {}
        waiting = self._handed_over
        while waiting:
            mark, subscription, last_tag, size = waiting[0]
            if mark > count:
                if mark - size < count and subscription.alive:  # a part of it
                    done[subscription.channel] = last_tag - (mark - count)
                break
            waiting.popleft()
            if subscription.alive:
                done[subscription.channel] = last_tag
        self._acknowledge(done)

    def end(self) -> None:
        """The connection has ended: what nobody will send again must not be dropped, full or not."""
        left = [
            batch for subscription, _, batch in self._arrived if subscription.no_ack and batch is not UNWANTED
        ]
        self._arrived = []
        self._handed_over.clear()
        if left:
            self._session.port.send(left)

    def _acknowledge(self, done: dict[int, int]) -> None:
        for channel, tag in done.items():
            self._session.acknowledge(channel, tag)
