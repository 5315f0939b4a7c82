"""A disk that is full, or fails: nothing is told to be safe that is not, nothing is lost, and it goes on by itself."""

from __future__ import annotations

import errno
from random import Random

import pytest

from tests.plugins.engines.broker.client import run
from tests.plugins.engines.broker.storage.disks import failing
from tests.plugins.engines.broker.storage.durable import DurableBroker


def publish(broker: DurableBroker, first: int, stop: int, size: int = 100) -> None:
    for number in range(first, stop):
        broker.vhost.publish(run(b"%d:" % number + b"x" * size, persistent=True), 0.0)
    broker.process()


def numbers(bodies: list[bytes]) -> list[int]:
    return [int(body.partition(b":")[0]) for body in bodies]


def test_a_full_disk_is_waited_for() -> None:
    broker = DurableBroker(segment_bytes=10_000)
    broker.declare()
    publish(broker, 0, 10)
    safe = broker.store.safe
    broker.disk.capacity = broker.disk.used() + 500
    publish(broker, 10, 30)
    assert broker.store.safe == safe < broker.store.mark
    assert broker.writer.delays[-1] == 1.0
    figures = broker.store.statistics()
    assert (figures["write_failures"], figures["last_error"]) == (1, "[Errno 28] No space left on device")
    assert broker.disk.used() <= broker.disk.capacity
    # A crash now loses what nobody was told to be safe.
    assert numbers(broker.reopened().take_all())[:10] == list(range(10))
    broker.writer.step()
    assert broker.store.statistics()["write_failures"] == 2
    broker.disk.capacity = None
    broker.writer.wait()
    assert broker.store.safe == broker.store.mark
    assert [what for what, _ in broker.reports] == ["cannot write", "can write"]
    assert numbers(broker.reopened().take_all()) == list(range(30))
    assert not broker.reopened().store.log.counters.damaged


def test_publishers_wait_when_too_much_waits_for_the_disk() -> None:
    broker = DurableBroker(most_waiting_bytes=1000)
    broker.declare()
    broker.disk.capacity = 0
    publish(broker, 0, 5)
    assert not broker.store.full
    publish(broker, 5, 20)
    assert broker.store.full
    broker.disk.capacity = None
    broker.writer.wait()
    assert not broker.store.full


@pytest.mark.parametrize("what", ["create", "write", "sync", "sync_directory", "truncate"])
@pytest.mark.parametrize("times", [1, 3])
def test_whatever_fails_is_tried_again(what: str, times: int) -> None:
    broker = DurableBroker(segment_bytes=2000)
    broker.declare()
    publish(broker, 0, 5)
    broker.disk.fail = failing(what, times)
    for first in range(5, 100, 5):
        publish(broker, first, first + 5)
        broker.writer.wait()
    assert broker.store.safe == broker.store.mark
    assert numbers(broker.reopened().take_all()) == list(range(100))
    assert numbers(broker.take_all()) == list(range(100))


def test_after_a_failed_sync_the_file_is_not_trusted_any_more() -> None:
    broker = DurableBroker()
    broker.declare()
    publish(broker, 0, 5)
    broker.disk.fail = failing("sync", 1)
    publish(broker, 5, 10)
    broker.disk.fail = lambda _: None
    broker.writer.wait()
    assert len(broker.disk.names()) == 2
    for seed in range(20):
        lost = DurableBroker(broker.disk.after_power_loss(Random(seed)))
        assert numbers(lost.take_all()) == list(range(10))


@pytest.mark.parametrize("what", ["sync", "write"])
@pytest.mark.parametrize("segment_bytes", [2000, 1 << 20])
def test_what_was_acknowledged_in_a_file_that_is_not_trusted_any_more_stays_so(
    what: str, segment_bytes: int
) -> None:
    broker = DurableBroker(segment_bytes=segment_bytes)
    broker.declare()
    publish(broker, 0, 10)
    syncs = broker.disk.syncs
    for _ in range(5):
        broker.client.receiver.take_one(broker.queue(), 0.0, auto_ack=True)
    broker.process()
    assert broker.disk.syncs == syncs
    fail, truncate = failing(what, 1), failing("truncate", 1)
    broker.disk.fail = lambda operation: fail(operation) or truncate(operation)
    publish(broker, 10, 20)
    broker.writer.wait()
    assert broker.store.statistics()["write_failures"] == 1
    for seed in range(20):
        lost = DurableBroker(broker.disk.after_power_loss(Random(seed)))
        assert numbers(lost.take_all()) == list(range(5, 20))


def test_a_new_segment_that_failed_and_could_not_be_deleted_brings_nothing_back() -> None:
    broker = DurableBroker(segment_bytes=1000, at_once=False)
    broker.declare()
    broker.drain()
    sync, remove = failing("sync", 1), failing("remove", 1)

    def fail(operation: str) -> OSError | None:
        return (sync(operation) or remove(operation)) if len(broker.disk.names()) > 1 else None

    broker.disk.fail = fail
    for number in range(30):  # the second one begins a new file
        publish(broker, number, number + 1, size=500)
        broker.drain()
        assert numbers(broker.take_all()) == [number]
    broker.drain()
    assert broker.store.statistics()["write_failures"] == 1
    assert broker.disk.names() == [segment.name for segment in broker.store.log.segments]
    assert numbers(broker.reopened().take_all()) == []


def test_a_new_segment_makes_the_last_one_safe_too() -> None:
    broker = DurableBroker(segment_bytes=2000)
    queue = broker.declare()
    publish(broker, 0, 10)
    for _ in range(5):
        broker.client.receiver.take_one(queue, 0.0, auto_ack=True)
    broker.process()
    syncs = broker.disk.syncs
    publish(broker, 10, 20)
    assert (broker.disk.syncs, len(broker.disk.names())) == (syncs + 2, 2)
    for seed in range(10):
        lost = DurableBroker(broker.disk.after_power_loss(Random(seed)))
        assert numbers(lost.take_all()) == list(range(5, 20))


def test_segments_that_cannot_be_deleted_are_tried_again() -> None:
    broker = DurableBroker(segment_bytes=1000)
    queue = broker.declare()
    broker.disk.fail = lambda operation: OSError(errno.EIO, "no") if operation == "remove" else None
    for number in range(50):
        publish(broker, number, number + 1)
        broker.client.receiver.take_one(queue, 0.0, auto_ack=True)
    assert broker.disk.used() > 5000
    broker.disk.fail = lambda _: None
    publish(broker, 50, 51)
    assert broker.disk.used() < 3000


def test_what_cannot_be_read_is_told_and_the_rest_is_served() -> None:
    broker = DurableBroker(queue_bytes=0)
    queue = broker.declare()
    publish(broker, 0, 10)
    broker.disk.fail = failing("read", 1)
    publish(broker, 10, 20)
    first = next(page.count for page in queue.backlog.levels[0])
    assert numbers(broker.take_all()) == list(range(first, 20))
    figures = broker.store.statistics()
    assert (figures["lost_messages"], figures["last_error"]) == (first, "[Errno 5] Input/output error")


@pytest.mark.parametrize("limit", [{"max_length": 12}, {"max_length_bytes": 12 * 103}])
def test_what_is_lost_is_no_excess(limit: dict[str, int]) -> None:
    broker = DurableBroker(queue_bytes=0)
    queue = broker.declare(**limit)
    for first in range(10, 20, 2):
        publish(broker, first, first + 2)
    assert [page.count for page in queue.backlog.levels[0]] == [10]
    broker.disk.fail = failing("read", 1)
    publish(broker, 20, 24)
    assert broker.store.statistics()["lost_messages"] == 10
    assert numbers(broker.take_all()) == list(range(20, 24))


def test_an_end_on_a_full_disk_is_an_end() -> None:
    broker = DurableBroker()
    broker.declare()
    publish(broker, 0, 5)
    broker.disk.capacity = 0
    publish(broker, 5, 10)
    broker.close()
    assert numbers(DurableBroker(broker.disk.after_kill()).take_all()) == list(range(5))
