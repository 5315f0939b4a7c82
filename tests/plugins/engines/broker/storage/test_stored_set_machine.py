"""Random programs with crashes on stored sets, against dictionaries; identifiers come again and again."""

from __future__ import annotations

from random import Random

import hypothesis.strategies as st
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from kernel.contracts.message import Envelope, batch_of
from plugins.engines.broker.span import Span
from plugins.engines.broker.stored_set import StoredSet
from tests.plugins.engines.broker.client import run
from tests.plugins.engines.broker.storage.durable import DurableBroker
from tests.plugins.engines.broker.storage.test_store_machine import everything
from tests.seeds import examples

NAMES = st.sampled_from(["a", "b"])
IDENTIFIERS = 8
"""So few that they come again soon."""


class StoredSetMachine(RuleBasedStateMachine):
    """Two sets, and a queue that nobody reads, on a disk with tiny segments."""

    @initialize(segment_bytes=st.sampled_from([100, 1000, 4000]))
    def begin(self, segment_bytes: int) -> None:
        self.options = {"segment_bytes": segment_bytes}
        self.broker = DurableBroker(at_once=False, **self.options)
        self.sets: dict[str, dict[int, bytes]] = {}
        self.safe: dict[str, dict[int, bytes]] = {}
        """What was in each set when all was safe the last time."""
        self.limbo: dict[str, dict[int, bytes]] = {}
        """What was kept or dropped since, also both: each message may be there or not."""
        self.known: set[str] = set()
        """Sets that were created or deleted since: they may be there or not."""
        self.published: dict[bytes, tuple[str, int]] = {}
        """What went to the queue and to a set, and was dropped by neither."""
        self.count = 0
        self.broker.declare("queue")
        self.broker.declare("busy")
        self.make_safe()

    def stored_set(self, name: str) -> StoredSet:
        if name not in self.sets:
            self.sets[name] = {}
            self.known.add(name)
        return self.broker.vhost.stored_set(name)

    def body(self) -> bytes:
        self.count += 1
        return b"%d:" % self.count + b"x" * (self.count % 50)

    @rule(name=NAMES, count=st.integers(1, 4), identifier=st.integers(0, IDENTIFIERS - 1), same=st.booleans())
    def keep(self, name: str, count: int, identifier: int, same: bool) -> None:
        kept = self.stored_set(name)
        number = kept.number_for(identifier, bits=3)
        assert number % IDENTIFIERS == identifier
        bodies = [self.body() for _ in range(count)]
        envelope = Envelope(key="same" if same else f"topic {self.count}")
        # Two messages that nobody keeps are in the batch as well.
        kept.keep(Span(number - 1, batch_of([b"", *bodies, b""], envelope), 1, 1 + count))
        for at, body in enumerate(bodies, number):
            self.sets[name][at] = body
            self.limbo.setdefault(name, {})[at] = body

    @rule(name=NAMES, identifier=st.integers(0, IDENTIFIERS - 1))
    def publish_and_keep(self, name: str, identifier: int) -> None:
        kept = self.stored_set(name)
        body = self.body()
        batch = run(body, key="queue", persistent=True)
        number = kept.number_for(identifier, bits=3)
        self.broker.vhost.publish(batch, 0.0)
        kept.keep(Span(number, batch, 0, 1))
        self.sets[name][number] = body
        self.limbo.setdefault(name, {})[number] = body
        self.published[body] = name, number

    @rule(name=NAMES, first=st.integers(0, 40), length=st.integers(0, 20))
    def drop(self, name: str, first: int, length: int) -> None:
        self.stored_set(name).drop(first, first + length)
        for number in [one for one in self.sets[name] if first <= one < first + length]:
            body = self.sets[name].pop(number)
            self.limbo.setdefault(name, {})[number] = body
            self.published.pop(body, None)

    @rule(name=NAMES)
    def delete(self, name: str) -> None:
        self.broker.vhost.delete_stored_set(name)
        if self.sets.pop(name, None) is not None:
            self.known.add(name)
            self.published = {body: one for body, one in self.published.items() if one[0] != name}

    @rule(count=st.integers(1, 40))
    def churn(self, count: int) -> None:
        for _ in range(count):
            self.broker.vhost.publish(run(b"x" * 100, key="busy", persistent=True), 0.0)
            self.broker.drain()
            self.broker.queue("busy").purge(0.0)
        self.make_safe()

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
        self.safe = {name: dict(kept) for name, kept in self.sets.items()}
        self.limbo = {}
        self.known = set()

    @rule(read=st.booleans())
    def close_well(self, read: bool) -> None:
        self.broker.close()
        self.all_is_safe()
        self.reopen(DurableBroker(self.broker.disk.after_kill(), at_once=False, **self.options), read=read)

    @rule(read=st.booleans())
    def kill(self, read: bool) -> None:
        self.reopen(self.broker.reopened(at_once=False, **self.options), read=read)

    @rule(seed=st.integers(0, 1 << 32), read=st.booleans())
    def lose_power(self, seed: int, read: bool) -> None:
        disk = self.broker.disk.after_power_loss(Random(seed))
        self.reopen(DurableBroker(disk, at_once=False, **self.options), read=read)

    def reopen(self, broker: DurableBroker, *, read: bool) -> None:
        """``read``: the messages are read now, otherwise they stay on their pages."""
        disk = broker.disk.after_kill()
        queue = set(everything(broker.queue("queue")))
        found: dict[str, dict[int, bytes]] = {}
        for name, kept in broker.vhost.stored_sets.items():
            messages = list(kept.messages())
            found[name] = {message.number: message.body for message in messages}
            assert [message.number for message in messages] == numbers_of(kept), "in order, and each once"
            assert kept.next_number > max(found[name], default=-1)
        assert found.keys() ^ self.safe.keys() <= self.known
        for name, now in found.items():
            if name in self.known:
                continue
            may = self.limbo.get(name, {})
            before = self.safe[name]
            for number in before.keys() | may.keys() | now.keys():
                if number in may:
                    assert now.get(number) in (None, may[number])
                else:
                    assert now.get(number) == before.get(number)
        for body, (name, number) in self.published.items():
            if name in found and name not in self.known:
                assert (body in queue) == (found[name].get(number) == body), "both or neither"
        self.published = {
            body: (name, number)
            for body, (name, number) in self.published.items()
            # A set that came back with the power has other messages under numbers of the set after it.
            if found.get(name, {}).get(number) == body
        }
        self.sets = found
        self.all_is_safe()
        self.broker = broker.reopened(disk, at_once=False, **self.options)
        if read:
            for kept in self.broker.vhost.stored_sets.values():
                list(kept.messages())

    @invariant()
    def the_numbers_are_right(self) -> None:
        for name, kept in getattr(self, "sets", {}).items():
            assert numbers_of(self.broker.vhost.stored_sets[name]) == sorted(kept)

    @invariant()
    def the_disk_is_bounded(self) -> None:
        if not hasattr(self, "broker"):
            return
        live = sum(len(body) + 150 for kept in self.sets.values() for body in kept.values())
        live += 200 * self.broker.queue("queue").backlog.count
        limit = 30 * self.options["segment_bytes"] + 10 * live
        assert sum(segment.content for segment in self.broker.store.log.segments) < limit

    def teardown(self) -> None:
        if hasattr(self, "broker"):
            assert not [report for report in self.broker.reports if report[0] == "lost"]


def numbers_of(kept: StoredSet) -> list[int]:
    return [number for first, stop in kept.numbers() for number in range(first, stop)]


TestStoredSetMachine = StoredSetMachine.TestCase
TestStoredSetMachine.settings = settings(
    max_examples=examples(60),
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
