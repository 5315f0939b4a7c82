"""Transaction: what a channel in transaction mode does at its next commit.

A message of AMQP is checked and routed when it comes, as RabbitMQ does it, so that a refusal closes the
channel at once: an exchange that is deleted in between has led to its queues already.  A message of STOMP is
sent when the transaction is committed, and reaches who has subscribed by then (STOMP 1.2, BEGIN and COMMIT;
RabbitMQ).  A commit cannot fail half-way: all routes are found before anything is published.

The specification promises atomicity for a single queue only.  Here a commit is one turn, so no client sees
half of it.  AMQP's commit-ok is written after the store has all of it (``Session``).
"""

from __future__ import annotations

from typing import NamedTuple
from typing import Protocol as Interface

from kernel.contracts.message import Batch
from plugins.engines.broker.backlog import PER_MESSAGE
from plugins.engines.broker.receiver import Receiver
from plugins.engines.broker.routes import Route
from plugins.engines.broker.unacked import UnackedRange
from plugins.engines.broker.virtual_host import VirtualHost


class Transacting(Interface):
    """What a transaction belongs to: an AMQP channel, a STOMP connection."""

    vhost: VirtualHost

    def publish(self, batch: Batch, now: float, *, mandatory: bool, route: Route | None = None) -> object:
        """Publish messages that were checked.  What it returns is not used."""
        ...


class Publication(NamedTuple):
    """A batch to publish, and its route."""

    batch: Batch
    mandatory: bool
    route: Route | None
    """None: it is found at the commit."""


class Acknowledgement(NamedTuple):
    """Deliveries of a receiver that the client has acknowledged or rejected."""

    receiver: Receiver
    taken: list[UnackedRange]
    accepted: bool
    requeue: bool


class Transaction:
    """The open transaction of one channel.  It may acknowledge deliveries of several receivers."""

    __slots__ = ("_acknowledgements", "_publications", "_routes_at_once", "size")

    def __init__(self, *, routes_at_once: bool) -> None:
        """``routes_at_once``: find the routes of messages when they come, and not at the commit."""
        self._routes_at_once = routes_at_once
        self.size = 0
        """Octets of memory that the messages take, about."""
        self._publications: list[Publication] = []
        self._acknowledgements: list[Acknowledgement] = []

    def publish(self, channel: Transacting, batch: Batch, *, mandatory: bool) -> None:
        """Add messages that were checked; they are published by ``commit``."""
        route = channel.vhost.routes.find(batch.envelope) if self._routes_at_once else None
        self._publications.append(Publication(batch, mandatory, route))
        self.size += batch.size + PER_MESSAGE * len(batch.bodies)

    def acknowledge(
        self,
        receiver: Receiver,
        first: int,
        last: int,
        *,
        multiple: bool,
        accepted: bool,
        requeue: bool = False,
    ) -> None:
        """Remove tags from ``receiver.unacked``, so that each can be named once only.

        Refuse an unknown one.
        """
        taken, refusal = receiver.take_unacked(first, last, multiple=multiple)
        # Before the refusal is raised: it closes the channel, whose ``end`` rolls back and restores what was
        # taken.
        self._acknowledgements.append(Acknowledgement(receiver, taken, accepted, requeue))
        if refusal is not None:
            raise refusal

    def commit(self, channel: Transacting, now: float) -> None:
        """Publish the messages, then acknowledge and reject the deliveries.

        Raises a ``BrokerError`` if a message has no route any more.  Nothing has changed then.
        """
        routes = channel.vhost.routes
        found = [
            (batch, mandatory, route or routes.find(batch.envelope))
            for batch, mandatory, route in self._publications
        ]
        self._publications = []
        self.size = 0
        acknowledgements, self._acknowledgements = self._acknowledgements, []
        queues = channel.vhost.queues
        for batch, mandatory, route in found:
            # Queues that were deleted since the message came are left out; one that was declared again under
            # the same name gets the message.
            there = tuple([queues[queue.name] for queue in route.queues if queue.name in queues])
            channel.publish(batch, now, mandatory=mandatory, route=route._replace(queues=there))
        for receiver, taken, accepted, requeue in acknowledgements:
            if accepted:
                receiver.accept(taken)
            else:
                receiver.refuse(taken, requeue=requeue, now=now)

    def roll_back(self) -> None:
        """Drop the messages; the deliveries are unacknowledged again."""
        # They are not requeued: the client still has them, and may acknowledge them in the next transaction.
        self._publications = []
        self.size = 0
        for receiver, taken, _, _ in self._acknowledgements:
            receiver.unacked.restore(taken)
        self._acknowledgements = []
