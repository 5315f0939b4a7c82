"""Model: virtual hosts and queues that ask for faults, and record what passes."""

from __future__ import annotations

from typing import Any

from kernel.contracts.message import Batch
from kernel.contracts.mixed_batch import KeyedBatch
from plugins.engines.broker.broker import Broker
from plugins.engines.broker.consumer import Consumer
from plugins.engines.broker.faults.control import FaultControl
from plugins.engines.broker.faults.record import Entry
from plugins.engines.broker.queue import Queue
from plugins.engines.broker.routes import Route
from plugins.engines.broker.span import Span
from plugins.engines.broker.virtual_host import VirtualHost


class FaultyQueue(Queue):
    """A queue of a broker for tests."""

    __slots__ = ()

    def take(self, now: float) -> Span | None:
        """Remove one message for a ``get``."""
        control = _control_of(self.vhost)
        client = control.current
        if control.left(client, "deliveries") == 0:
            control.count(client, "deliveries", 0)
            return None
        span = super().take(now)
        if span is not None:
            control.count(client, "deliveries", 1)
            control.record.add("delivered", self._entry(span, "" if client is None else client.peer))
        return span

    def acknowledge(self, span: Span) -> None:
        """A consumer has acknowledged these messages."""
        control = _control_of(self.vhost)
        passed = control.passing("acks", len(span))
        if passed < len(span):
            front = span.split(passed) if passed else None
            control.put_off(self, span)
            if front is None:
                return
            span = front
        control.record.add("acknowledged", self._entry(span, _peer(control)))
        super().acknowledge(span)

    def deliver_again(self, now: float) -> int:
        """Publish again everything that is unacknowledged, as redelivered.

        Return how many messages that is.
        """
        spans = [
            handed.span
            for receiver in {id(each.receiver): each.receiver for each in self.all_consumers()}.values()
            for handed in receiver.unacked
            if handed.queue is self
        ]
        copies = [Span(0, batch, 0, len(batch.bodies)) for batch in (span.as_batch() for span in spans)]
        for copy in copies:
            copy.base = self.next_position
            copy.redelivered = True
            self.next_position += len(copy)
            self.backlog.append(copy, copy.batch.size)
            if self.stored is not None and (copy.envelope.persistent or self.keeps_all):
                self.vhost.store.keep_messages(self, copy)
        self.touch()
        return sum(map(len, copies))

    def _deliver_to(self, consumer: Consumer, most: int, overdue: float | None) -> None:
        control = _control_of(self.vhost)
        receiver = consumer.receiver
        client = control.client_of(receiver)
        left = control.left(client, "deliveries")
        if left is not None:
            most = min(most, left)
        if most > 0:
            before = len(receiver.deliveries)
            super()._deliver_to(consumer, most, overdue)
            passed = 0
            for _, _, span in receiver.deliveries[before:]:
                passed += len(span)
                # A copy: a part of the span may be acknowledged before the record is read.
                control.record.add("delivered", self._entry(span, "" if client is None else client.peer))
            control.count(client, "deliveries", passed)
        else:
            control.count(client, "deliveries", 0)
        if client is not None and client in control.doomed:
            # Its consumers have no room any more, and the queue goes on with others.
            client.window.left = 0

    def _entry(self, span: Span, client: str) -> Entry:
        return Entry(span.as_batch(), (self.name,), client, span.redelivered)


class FaultyVirtualHost(VirtualHost):
    """A virtual host of a broker for tests."""

    queue_type = FaultyQueue

    def publish(self, batch: Batch, now: float, route: Route | None = None) -> int | None:
        """Route a batch, unless publishes are refused or its connection is to be lost."""
        control = _control_of(self)
        # First, so that an exchange that does not exist is refused as it always is.
        queues = (route or self.routes.find(batch.envelope)).queues
        # 0: no queue has taken any, as if all were full.
        if control.refuses_publishes:
            return 0
        passed = control.passing("publishes", len(batch.bodies))
        if not passed:
            return 0
        if passed < len(batch.bodies):
            batch = batch.slice(0, passed)
        names = tuple(queue.name for queue in queues)
        control.record.add("published", Entry(batch, names, _peer(control), redelivered=False))
        return super().publish(batch, now, route)

    def publish_keyed(self, batch: KeyedBatch, now: float, *, mandatory: bool) -> bool:
        """Have the messages published by ``publish``, where faults are."""
        # Then each of them goes through ``publish``.
        return False


class FaultyModel(Broker):
    """The model of a broker for tests."""

    vhost_type = FaultyVirtualHost

    def __init__(self, *arguments: Any, **options: Any) -> None:
        # First: the virtual hosts are made by the constructor, and their queues by the store.
        self.control = FaultControl()
        super().__init__(*arguments, **options)


def _control_of(vhost: VirtualHost) -> FaultControl:
    model = vhost.broker
    assert isinstance(model, FaultyModel), "its virtual hosts belong to such a broker"
    return model.control


def _peer(control: FaultControl) -> str:
    return "" if control.current is None else control.current.peer
