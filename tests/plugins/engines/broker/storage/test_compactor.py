"""The log does not grow for ever, and what is moved stays what and where it was."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from plugins.engines.broker.storage import compactor
from tests.plugins.engines.broker.client import run
from tests.plugins.engines.broker.storage.durable import DurableBroker

SMALL = 4096


def publish(broker: DurableBroker, number: int, name: str = "q", size: int = 100) -> None:
    body = b"%d:" % number + b"x" * size
    broker.vhost.publish(run(body, key=name, persistent=True), 0.0)
    broker.process()


def numbers(bodies: list[bytes]) -> list[int]:
    return [int(body.partition(b":")[0]) for body in bodies]


@pytest.mark.slow
def test_a_steady_stream_leaves_little_behind() -> None:
    broker = DurableBroker(segment_bytes=SMALL)
    queue = broker.declare()
    for number in range(2000):
        publish(broker, number)
        broker.client.receiver.take_one(queue, 0.0, auto_ack=True)
    assert broker.disk.used() < 3 * SMALL
    assert broker.store.log.compactor.compacted == 0  # there was nothing to save


@pytest.mark.slow
def test_one_message_that_nobody_wants_does_not_hold_the_rest() -> None:
    broker = DurableBroker(segment_bytes=SMALL)
    queue = broker.declare()
    broker.declare("old", max_priority=2)
    publish(broker, 1, "old")
    for number in range(3000):
        publish(broker, number)
        broker.client.receiver.take_one(queue, 0.0, auto_ack=True)
        assert broker.disk.used() < 12 * SMALL
    assert broker.store.log.compactor.compacted > 3
    assert numbers(broker.reopened(segment_bytes=SMALL).take_all("old")) == [1]
    assert numbers(broker.take_all("old")) == [1]


@pytest.mark.slow
def test_scattered_survivors_keep_their_order_in_memory_on_disk_and_after_a_crash() -> None:
    broker = DurableBroker(segment_bytes=SMALL, queue_bytes=500)
    queue, other = broker.declare(), broker.declare("other")
    random = Random(5)
    left: list[int] = []
    receiver = broker.client.receiver
    for number in range(1500):
        publish(broker, number)
        publish(broker, number, "other")
        receiver.take_one(other, 0.0, auto_ack=True)
        left.append(number)
        if len(left) > 60:  # take some and put most of them back
            taken = [receiver.take_one(queue, 0.0, auto_ack=False) for _ in range(10)]
            for one in taken:
                assert one is not None
                if random.random() < 0.3:
                    receiver.acknowledge(one[0], one[0], multiple=False)
                    left.remove(int(bytes(one[1].as_batch().bodies[0]).partition(b":")[0]))
            receiver.recover()
    broker.process()
    assert broker.store.log.compactor.compacted > 10
    live = sum(150 for _ in left)
    assert broker.disk.used() < 6 * live + 12 * SMALL
    assert numbers(broker.reopened(segment_bytes=SMALL).take_all()) == left
    assert numbers(broker.take_all()) == left
    assert not broker.store.log.counters.damaged


@pytest.mark.slow
def test_a_page_follows_its_messages_into_several_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compactor, "_LEAST_READ", 200)  # a few records with each group
    monkeypatch.setattr(compactor, "_NEAR", 0)
    most_pieces = 0
    broker = DurableBroker(segment_bytes=SMALL, queue_bytes=0)
    queue, busy = broker.declare(), broker.declare("busy")
    for number in range(100):
        publish(broker, number, size=30)
    pages = [item for item in queue.backlog.levels[0] if item.batch is None]
    assert sum(page.count for page in pages) == 100
    for number in range(1500):
        publish(broker, number, "busy", size=300)
        broker.client.receiver.take_one(busy, 0.0, auto_ack=True)
        most_pieces = max(most_pieces, *(len(page.extents) for page in pages))
    assert broker.store.log.compactor.compacted > 3
    assert most_pieces > 2
    assert queue.backlog.paged == queue.backlog.size
    assert not any(extent.segment.gone for page in pages for extent in page.extents)
    assert numbers(broker.reopened(segment_bytes=SMALL).take_all()) == list(range(100))
    assert numbers(broker.take_all()) == list(range(100))


@pytest.mark.slow
def test_what_was_moved_while_a_client_had_it_is_paged_out_again() -> None:
    broker = DurableBroker(segment_bytes=SMALL, queue_bytes=0)
    queue, busy = broker.declare(), broker.declare("busy")
    for number in range(20):
        publish(broker, number)
    taken = [broker.client.receiver.take_one(queue, 0.0, auto_ack=False) for _ in range(20)]
    locations = [one[1].location for one in taken if one is not None]
    for number in range(1500):
        publish(broker, number, "busy", size=300)
        broker.client.receiver.take_one(busy, 0.0, auto_ack=True)
    assert all(
        location is not None and location.segment is not None and location.segment.gone
        for location in locations
    )
    broker.client.receiver.recover()
    broker.process()
    broker.process()
    assert queue.backlog.paged == queue.backlog.size > 0
    assert numbers(broker.reopened(segment_bytes=SMALL).take_all()) == list(range(20))
    assert numbers(broker.take_all()) == list(range(20))
    broker.process()
    assert numbers(broker.reopened(segment_bytes=SMALL).take_all()) == []


@pytest.mark.slow
def test_what_is_shared_is_moved_once() -> None:
    broker = DurableBroker(segment_bytes=SMALL)
    names = [f"f{number}" for number in range(20)]
    for name in names:
        broker.vhost.bind("amq.fanout", broker.declare(name))
    busy = broker.declare("busy")
    shared: Any = run(b"1:" + b"x" * 1000, b"2:", b"3:", exchange="amq.fanout", persistent=True)
    broker.vhost.publish(shared, 0.0)
    for name in names[::2]:
        broker.client.receiver.take_one(broker.queue(name), 0.0, auto_ack=True)
    for number in range(2000):
        publish(broker, number, "busy")
        broker.client.receiver.take_one(busy, 0.0, auto_ack=True)
    assert broker.store.log.compactor.compacted > 1
    assert broker.disk.used() < 20 * SMALL
    after = broker.reopened(segment_bytes=SMALL)
    for location, name in enumerate(names):
        assert numbers(after.take_all(name)) == ([1, 2, 3] if location % 2 else [2, 3])


def test_many_small_segments_become_few() -> None:
    broker = DurableBroker(segment_bytes=SMALL)
    broker.declare()
    for number in range(40):
        publish(broker, number)
        broker = broker.reopened(segment_bytes=SMALL)
        broker.process()
    for number in range(40, 400):
        publish(broker, number, size=0)
    assert len(broker.store.log.segments) < 30
    assert numbers(broker.reopened(segment_bytes=SMALL).take_all()) == list(range(400))


def test_definitions_survive_the_segments_they_were_made_in() -> None:
    broker = DurableBroker(segment_bytes=SMALL)
    queue = broker.declare(max_length=5000)
    broker.vhost.bind("amq.topic", queue, "a.#")
    for number in range(500):
        publish(broker, number)
        broker.client.receiver.take_one(queue, 0.0, auto_ack=True)
    broker.process()
    assert broker.disk.names()[0] != "000000000001.log"
    after = broker.reopened(segment_bytes=SMALL)
    assert after.queue().policy.max_length == 5000
    assert [binding.key for binding in after.queue().incoming.values()] == ["a.#"]
    # Positions go on where they were: an acknowledgement of old must not hit a new message.
    publish(after, 1)
    assert numbers(after.reopened(segment_bytes=SMALL).take_all()) == [1]


@pytest.mark.slow
def test_halves_of_a_batch_that_come_back_one_by_one_are_both_found_again() -> None:
    broker = DurableBroker(segment_bytes=SMALL, queue_bytes=0)
    queue, busy = broker.declare(), broker.declare("busy")
    broker.client.consume(queue)
    broker.vhost.publish(run(*[b"%d:" % number + b"x" * 100 for number in range(10)], persistent=True), 0.0)
    assert len(broker.client.received()) == 10
    broker.vhost.unsubscribe(broker.client.receiver.consumers["c"], 0.0)
    for number in range(1500):  # meanwhile it is moved
        publish(broker, number, "busy", size=300)
        broker.client.receiver.take_one(busy, 0.0, auto_ack=True)
    broker.writer.at_once = False
    for first, last in ((1, 5), (6, 10)):  # the first half is written again before the second one is back
        broker.client.receiver.reject(first, last, multiple=False, requeue=True, now=0.0)
        broker.process()
    broker.drain()
    broker.drain()
    assert queue.backlog.paged == queue.backlog.size > 0
    assert numbers(broker.reopened(segment_bytes=SMALL).take_all()) == list(range(10))
    assert numbers(broker.take_all()) == list(range(10))


@pytest.mark.slow
def test_a_long_stretch_of_dead_records_is_passed_over_in_many_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compactor, "_LEAST_READ", 16)  # a record with each group
    broker = DurableBroker(segment_bytes=100_000, at_once=False)
    queue = broker.declare()
    broker.declare("old")

    def pass_through(count: int) -> None:
        for number in range(count):
            publish(broker, number)
            broker.writer.wait()
            broker.client.receiver.take_one(queue, 0.0, auto_ack=True)

    pass_through(400)
    publish(broker, 1, "old")
    pass_through(10_000)
    assert broker.store.log.compactor.compacted > 0
    assert numbers(broker.take_all("old")) == [1]
