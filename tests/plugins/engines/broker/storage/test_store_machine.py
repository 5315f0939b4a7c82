"""Random programs with crashes against a naive model: what was safe is there, what was acknowledged safely is not."""

from __future__ import annotations

from random import Random
from typing import Any

import hypothesis.strategies as st
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from plugins.engines.broker.queue import Queue
from tests.plugins.engines.broker.client import run
from tests.plugins.engines.broker.storage.durable import DurableBroker
from tests.seeds import examples

NAMES = st.sampled_from(["a", "b", "c"])


class StoreMachine(RuleBasedStateMachine):
    """Three queues on a disk with tiny segments and tiny memory."""

    @initialize(
        segment_bytes=st.sampled_from([100, 1000, 4000]), queue_bytes=st.sampled_from([0, 40, 1 << 20])
    )
    def begin(self, segment_bytes: int, queue_bytes: int) -> None:
        self.options: dict[str, Any] = {
            "segment_bytes": segment_bytes,
            "queue_bytes": queue_bytes,
            "lazy_bytes": 0,
            "inventory": True,
        }
        self.broker = DurableBroker(at_once=False, **self.options)
        self.queues: dict[str, list[bytes]] = {}
        """What is in each queue now, in order, outstanding or not."""
        self.safe: dict[str, set[bytes]] = {}
        """What was in each queue when all was safe the last time."""
        self.limbo: dict[str, set[bytes]] = {}
        """What was published or acknowledged since: it may be there or not."""
        self.known: set[str] = set()
        """Queues that were declared or deleted since: they may be there or not."""
        self.outstanding: list[tuple[int, str, bytes]] = []
        self.count = 0

    def touch(self, name: str, *bodies: bytes) -> None:
        self.limbo.setdefault(name, set()).update(bodies)

    def queue(self, name: str) -> Queue:
        return self.broker.queue(name)

    @rule(name=NAMES)
    def declare(self, name: str) -> None:
        if name not in self.queues:
            self.queues[name] = []
            self.known.add(name)
            self.broker.vhost.bind("amq.fanout", self.broker.declare(name))

    @rule(name=NAMES, count=st.integers(1, 6), size=st.integers(0, 60), everywhere=st.booleans())
    def publish(self, name: str, count: int, size: int, everywhere: bool) -> None:
        bodies = [b"%d:" % (self.count + at) + b"x" * size for at in range(count)]
        self.count += count
        names = list(self.queues) if everywhere else [name] if name in self.queues else []
        exchange = "amq.fanout" if everywhere else ""
        self.broker.vhost.publish(run(*bodies, key=name, exchange=exchange, persistent=True), 0.0)
        for each in names:
            self.queues[each] += bodies
            self.touch(each, *bodies)

    @rule(name=NAMES, count=st.integers(1, 8))
    def take(self, name: str, count: int) -> None:
        if name not in self.queues:
            return
        held = {body for _, queue, body in self.outstanding if queue == name}
        ready = [body for body in self.queues[name] if body not in held]
        for expected in ready[:count]:
            taken = self.broker.client.receiver.take_one(self.queue(name), 0.0, auto_ack=False)
            assert taken is not None
            tag, span = taken
            assert bytes(span.as_batch().bodies[0]) == expected
            self.outstanding.append((tag, name, expected))

    @precondition(lambda self: self.outstanding)
    @rule(data=st.data(), how=st.sampled_from(["ack", "requeue", "reject"]))
    def acknowledge_one(self, data: Any, how: str) -> None:
        tag, name, body = self.outstanding.pop(data.draw(st.integers(0, len(self.outstanding) - 1)))
        receiver = self.broker.client.receiver
        if how == "ack":
            receiver.acknowledge(tag, tag, multiple=False)
        else:
            receiver.reject(tag, tag, multiple=False, requeue=how == "requeue", now=0.0)
        if how != "requeue" and name in self.queues:
            self.queues[name].remove(body)
            self.touch(name, body)

    @precondition(lambda self: self.outstanding)
    @rule()
    def acknowledge_all(self) -> None:
        self.broker.client.receiver.acknowledge(0, 0, multiple=True)
        for _, name, body in self.outstanding:
            if name in self.queues:
                self.queues[name].remove(body)
                self.touch(name, body)
        self.outstanding = []

    @rule(name=NAMES)
    def purge(self, name: str) -> None:
        if name in self.queues:
            held = {body for _, queue, body in self.outstanding if queue == name}
            gone = [body for body in self.queues[name] if body not in held]
            assert self.queue(name).purge(0.0) == len(gone)
            self.queues[name] = [body for body in self.queues[name] if body in held]
            self.touch(name, *gone)

    @rule(name=NAMES)
    def delete(self, name: str) -> None:
        if name in self.queues:
            self.broker.client.receiver.recover()
            self.outstanding = []
            self.broker.vhost.delete_queue(name, None, 0.0)
            self.touch(name, *self.queues.pop(name))
            self.known.add(name)

    @rule()
    def turn(self) -> None:
        self.broker.process()

    @rule()
    def write_one(self) -> None:
        self.broker.process()
        self.broker.writer.step()

    @rule()
    def make_safe(self) -> None:
        self.broker.store.demand()
        self.broker.drain()
        assert self.broker.store.safe == self.broker.store.mark
        self.all_is_safe()

    def all_is_safe(self) -> None:
        self.safe = {name: set(bodies) for name, bodies in self.queues.items()}
        self.limbo = {}
        self.known = set()

    @rule()
    def close_well(self) -> None:
        seen = {(name, body) for _, name, body in self.outstanding}
        self.broker.close()
        self.all_is_safe()
        self.reopen(DurableBroker(self.broker.disk.after_kill(), at_once=False, **self.options))
        for name, body in seen:
            assert body in self.queues[name]

    @rule()
    def kill(self) -> None:
        self.reopen(self.broker.reopened(at_once=False, **self.options))

    @rule(seed=st.integers(0, 1 << 32))
    def lose_power(self, seed: int) -> None:
        disk = self.broker.disk.after_power_loss(Random(seed))
        self.reopen(DurableBroker(disk, at_once=False, **self.options))

    def reopen(self, broker: DurableBroker) -> None:
        self.broker = broker
        self.outstanding = []
        missed = [detail for what, detail in broker.reports if "missing" in detail]
        assert not missed, "a crash takes no segment away"
        found = {name: everything(queue) for name, queue in broker.vhost.queues.items()}
        assert found.keys() ^ self.safe.keys() <= self.known
        for name, bodies in found.items():
            numbers = [int(body.partition(b":")[0]) for body in bodies]
            assert numbers == sorted(set(numbers)), "in order, and each once"
            if name in self.known:
                continue
            may = self.limbo.get(name, set())
            assert self.safe[name] - may <= set(bodies) <= self.safe[name] | may
        self.queues = found
        self.all_is_safe()
        self.broker = broker.reopened(broker.disk.after_kill(), at_once=False, **self.options)

    @invariant()
    def the_counts_are_right(self) -> None:
        for name, bodies in getattr(self, "queues", {}).items():
            queue = self.queue(name)
            assert queue.backlog.count + queue.outstanding == len(bodies)

    @invariant()
    def the_disk_is_bounded(self) -> None:
        if not hasattr(self, "broker"):
            return
        segments = self.broker.store.log.segments
        live = sum(len(body) + 150 for bodies in self.queues.values() for body in bodies)
        assert sum(len(segment.pages) for segment in segments) <= sum(map(len, self.queues.values()))
        limit = 30 * self.options["segment_bytes"] + 10 * live
        assert sum(segment.content for segment in segments) < limit


def everything(queue: Queue) -> list[bytes]:
    """Return all bodies of a queue that is about to be thrown away."""
    spans, _, _ = queue.backlog.take(1 << 60, 1 << 60)
    return [bytes(body) for span in spans for body in span.as_batch().bodies]


TestStoreMachine = StoreMachine.TestCase
TestStoreMachine.settings = settings(
    max_examples=examples(60),
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
