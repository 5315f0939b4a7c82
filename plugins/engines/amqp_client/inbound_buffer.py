"""InboundBuffer: passes delivered messages to the routes, and acknowledges them when they are safe.

When a batch is acknowledged to the server:

* If a route confirms: when the routes have confirmed all of the batch, or part by part.
* Otherwise: as soon as the port has taken it.

The port counts the messages that it was ever given.  ``_unconfirmed`` has for each batch the count of the
port behind it.  So a count that the routes have confirmed tells which batches, and which part of a batch, are
confirmed.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from kernel.contracts.message import PLAIN, Batch
from plugins.engines.amqp_client.consumer import Subscription

if TYPE_CHECKING:
    from plugins.engines.amqp_client.session import Session

UNWANTED = Batch((), 0, PLAIN)
"""Stands for messages that are not sent to the routes.  They are acknowledged in order with the others."""


class InboundBuffer:
    """Passes the messages of all consumers of a session to the port, in order.

    While the port is full, messages wait here without being acknowledged.  The server stops by itself when
    the prefetch is used up.  So the socket can always be read, and heartbeats, confirms and closes are
    processed although messages wait.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self.going = True
        """Whether the port takes messages: False from the moment it is full until it has room."""
        self._arrived: list[tuple[Subscription, int, Batch]] = []
        self._unconfirmed: deque[tuple[int, Subscription, int, int]] = deque()
        """Batches that the port has taken and that are not acknowledged yet: the port's count behind the
        batch, its subscription, its last delivery tag, its number of messages."""

    def arrived(self, subscription: Subscription, last_tag: int, batch: Batch) -> None:
        """Keep a batch until ``flush``, at the end of the turn."""
        self._arrived.append((subscription, last_tag, batch))
        self._session.counters.messages_in += len(batch.bodies)

    def flush(self) -> None:
        """Send what has arrived to the port, unless it is full."""
        if not self._arrived or not self.going:
            return
        # Messages of a channel that has ended since will be delivered again, except without acknowledgements.
        arrived = [item for item in self._arrived if item[0].alive or item[0].no_ack]
        self._arrived = []
        port = self._session.port
        confirms = port.confirms
        # Before ``send``: ``end`` then grows with each batch to the position behind it.
        end = port.sent()
        self.going = port.send([batch for _, _, batch in arrived if batch is not UNWANTED])
        done: dict[int, int] = {}
        for subscription, last_tag, batch in arrived:
            size = len(batch.bodies)
            end += size if confirms else 0
            if subscription.no_ack:
                continue
            # Without confirmations the batch is done at once.  It still waits behind older ones, from a time
            # in which a route confirmed: tags are acknowledged with ``multiple``, which would cover those.
            if confirms or self._unconfirmed:
                self._unconfirmed.append((end, subscription, last_tag, size))
            else:
                done[subscription.channel] = last_tag
        self._acknowledge(done)
        # The routes never confirm what they did not get, so nobody else would acknowledge it.
        if confirms and any(batch is UNWANTED for _, _, batch in arrived):
            self.confirmed(port.confirmed())

    def confirmed(self, count: int) -> None:
        """The routes have confirmed the first ``count`` messages that the port was ever given."""
        done: dict[int, int] = {}
        waiting = self._unconfirmed
        while waiting:
            end, subscription, last_tag, size = waiting[0]
            if end > count:
                # The tags of a batch are consecutive, so the part that is not confirmed gives the last
                # confirmed tag.
                if end - size < count and subscription.alive:
                    done[subscription.channel] = last_tag - (end - count)
                break
            waiting.popleft()
            # A tag of a channel that has ended is another message on the next channel, or none.
            if subscription.alive:
                done[subscription.channel] = last_tag
        self._acknowledge(done)

    def end(self) -> None:
        """The connection has ended: send what the server will not deliver again to the port, even if full."""
        left = [
            batch for subscription, _, batch in self._arrived if subscription.no_ack and batch is not UNWANTED
        ]
        self._arrived = []
        # The server delivers these again on the next connection.
        self._unconfirmed.clear()
        # The port may be full: it then holds more than its water marks allow, for once.
        if left:
            self._session.port.send(left)

    def _acknowledge(self, done: dict[int, int]) -> None:
        for channel, tag in done.items():
            self._session.acknowledge(channel, tag)
