"""Random programs against a naive model: a queue is a list, what is outstanding is a dictionary."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from plugins.engines.broker.consumer import Consumer
from tests.plugins.engines.broker.client import Client, make_vhost, run
from tests.seeds import examples


class BrokerMachine(RuleBasedStateMachine):
    """One queue, several consumers on two receivers."""

    consumers = Bundle("consumers")

    def __init__(self) -> None:
        super().__init__()
        self.vhost = make_vhost()
        self.queue = self.vhost.declare_queue("q", None, 0.0)
        self.clients = [Client(self.vhost), Client(self.vhost)]
        self.number = 0
        self.ready: list[int] = []
        self.held: list[dict[int, int]] = [{}, {}]
        self.redelivered: set[int] = set()
        self.done: list[int] = []
        self.prefetch: dict[str, int] = {}

    @rule(count=st.integers(1, 30))
    def publish(self, count: int) -> None:
        numbers = list(range(self.number, self.number + count))
        self.number += count
        self.ready += numbers
        self.vhost.publish(run(*[b"%d" % number for number in numbers]), 0.0)

    @rule(
        target=consumers,
        client=st.integers(0, 1),
        prefetch=st.integers(0, 6),
        auto_ack=st.booleans(),
        priority=st.integers(0, 1),
    )
    def consume(self, client: int, prefetch: int, auto_ack: bool, priority: int) -> Consumer:
        tag = f"c{len(self.prefetch)}"
        self.prefetch[tag] = prefetch
        return self.clients[client].consume(
            self.queue, tag, prefetch=prefetch, auto_ack=auto_ack, arguments={"x-priority": priority}
        )

    @rule(consumer=consumes(consumers))
    def cancel(self, consumer: Consumer) -> None:
        self.process()
        self.vhost.unsubscribe(consumer, 0.0)

    @rule()
    def process(self) -> None:
        self.vhost.process(0.0)
        arrived: list[tuple[int, int, int, Any]] = []
        for index, client in enumerate(self.clients):
            for consumer, first_tag, span in client.receiver.take_deliveries():
                for offset, body in enumerate(span.as_batch().bodies):
                    arrived.append((int(body), index, first_tag + offset, (consumer, span)))
        arrived.sort(key=lambda item: item[0])
        numbers = [item[0] for item in arrived]
        assert numbers == self.ready[: len(numbers)], "what leaves is what stood in front"
        del self.ready[: len(numbers)]
        for number, index, tag, (consumer, span) in arrived:
            assert span.redelivered == (number in self.redelivered)
            if consumer.auto_ack:
                self.done.append(number)
            else:
                self.held[index][tag] = number

    @rule(client=st.integers(0, 1), auto_ack=st.booleans())
    def get(self, client: int, auto_ack: bool) -> None:
        self.process()
        taken = self.clients[client].receiver.take_one(self.queue, 0.0, auto_ack=auto_ack)
        if taken is None:
            assert not self.ready
            return
        number = self.ready.pop(0)
        assert list(taken[1].as_batch().bodies) == [b"%d" % number]
        if auto_ack:
            self.done.append(number)
        else:
            self.held[client][taken[0]] = number

    @rule(client=st.integers(0, 1), data=st.data(), multiple=st.booleans())
    def acknowledge(self, client: int, data: st.DataObject, multiple: bool) -> None:
        self.process()
        self.done += self._acknowledged(client, data, multiple, "acknowledge")

    @rule(client=st.integers(0, 1), data=st.data(), multiple=st.booleans(), requeue=st.booleans())
    def reject(self, client: int, data: st.DataObject, multiple: bool, requeue: bool) -> None:
        self.process()
        numbers = self._acknowledged(client, data, multiple, "requeue" if requeue else "reject")
        if requeue:
            self.ready = sorted(self.ready + numbers)
            self.redelivered.update(numbers)
        else:
            self.done += numbers

    @rule(client=st.integers(0, 1))
    def recover(self, client: int) -> None:
        self.process()
        numbers = list(self.held[client].values())
        self.held[client].clear()
        self.clients[client].receiver.recover()
        self.ready = sorted(self.ready + numbers)
        self.redelivered.update(numbers)

    @rule()
    def purge(self) -> None:
        self.process()
        assert self.queue.purge(0.0) == len(self.ready)
        self.done += self.ready
        self.ready = []

    def _acknowledged(self, client: int, data: st.DataObject, multiple: bool, how: str) -> list[int]:
        held = self.held[client]
        if not held:
            return []
        tag = data.draw(st.sampled_from(sorted(held)))
        tags = [t for t in held if t <= tag] if multiple else [tag]
        receiver = self.clients[client].receiver
        if how == "acknowledge":
            receiver.acknowledge(tag, tag, multiple=multiple)
        else:
            receiver.reject(tag, tag, multiple=multiple, requeue=how == "requeue", now=0.0)
        return [held.pop(t) for t in sorted(tags)]

    @invariant()
    def nothing_is_lost_or_doubled(self) -> None:
        held = [number for client in self.held for number in client.values()]
        assert sorted(self.ready + held + self.done) == list(range(self.number))

    @invariant()
    def credit_is_kept_to(self) -> None:
        for client in self.clients:
            for consumer in client.receiver.consumers.values():
                assert consumer.outstanding >= 0
                assert not consumer.prefetch or consumer.outstanding <= consumer.prefetch

    @invariant()
    def the_sums_agree(self) -> None:
        queue = self.queue
        # A message may be handed over when it is published.  ``process`` has not looked at it then.
        handed_over = sum(
            len(span)
            for client in self.clients
            for consumer, _, span in client.receiver.deliveries
            if consumer.auto_ack
        )
        known = len(self.ready) + sum(map(len, self.held))
        assert queue.backlog.count + queue.outstanding + handed_over == known
        assert queue.backlog.size == sum(span.size() for level in queue.backlog.levels for span in level)


BrokerMachine.TestCase.settings = settings(max_examples=examples(60), stateful_step_count=30, deadline=None)
TestBrokerMachine = BrokerMachine.TestCase
