"""Transaction: what a channel in transaction mode does at its next commit.

Everything is checked and routed when it comes, as RabbitMQ does it, so that a refusal closes the channel at
once and a commit cannot fail half-way: an exchange that is deleted in between has led to its queues already.
"""

from __future__ import annotations

from typing import NamedTuple
from typing import Protocol as Interface

from kernel.contracts.message import Batch
from plugins.engines.broker.ledger import Handed
from plugins.engines.broker.receiver import Receiver
from plugins.engines.broker.routes import Route
from plugins.engines.broker.virtual_host import VirtualHost


class Transacting(Interface):
    """What a transaction belongs to: an AMQP channel, a STOMP connection."""

    vhost: VirtualHost
    receiver: Receiver

    def publish(self, batch: Batch, now: float, *, mandatory: bool, route: Route | None = None) -> None:
        """Publish messages that were checked."""
        ...


class Publication(NamedTuple):
    """A batch to publish, and where it goes."""

    batch: Batch
    mandatory: bool
    route: Route


class Verdict(NamedTuple):
    """What the client has made of deliveries."""

    settled: list[Handed]
    accepted: bool
    requeue: bool


class Transaction:
    """The open transaction of one channel."""

    __slots__ = ("_publications", "_verdicts")

    def __init__(self) -> None:
        self._publications: list[Publication] = []
        self._verdicts: list[Verdict] = []

    def publish(self, channel: Transacting, batch: Batch, *, mandatory: bool) -> None:
        """Take messages that were checked."""
        self._publications.append(Publication(batch, mandatory, channel.vhost.routes.find(batch.envelope)))

    def settle(
        self,
        receiver: Receiver,
        first: int,
        last: int,
        *,
        multiple: bool,
        accepted: bool,
        requeue: bool = False,
    ) -> None:
        """Take deliveries off the ledger, where a tag can be named once only; refuse an unknown one."""
        settled, refusal = receiver.settle(first, last, multiple=multiple)
        self._verdicts.append(Verdict(settled, accepted, requeue))
        if refusal is not None:
            raise refusal

    def commit(self, channel: Transacting, now: float) -> None:
        """Do what waited, the messages first."""
        publications, self._publications = self._publications, []
        verdicts, self._verdicts = self._verdicts, []
        queues = channel.vhost.queues
        for batch, mandatory, route in publications:
            there = tuple([queues[queue.name] for queue in route.queues if queue.name in queues])
            channel.publish(
                batch, now, mandatory=mandatory, route=Route(there, route.without_copies, route.sinks)
            )
        for settled, accepted, requeue in verdicts:
            if accepted:
                channel.receiver.accept(settled)
            else:
                channel.receiver.refuse(settled, requeue=requeue, now=now)

    def roll_back(self, receiver: Receiver) -> None:
        """Forget the messages; the deliveries are unacknowledged again, as if nothing had been said of them."""
        self._publications = []
        for settled, _, _ in self._verdicts:
            receiver.ledger.restore(settled)
        self._verdicts = []
