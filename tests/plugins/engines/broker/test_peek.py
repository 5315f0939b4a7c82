"""Peek: the first messages of a queue are shown, and nothing changes for anybody."""

from __future__ import annotations

from typing import Any

import pytest

from plugins.engines.broker import peek as peek_module
from plugins.engines.broker.peek import peek
from plugins.engines.broker.queue import Queue
from tests.plugins.engines.broker.client import Client, make_vhost, ready, run
from tests.plugins.engines.broker.storage.disks import MemoryDisk
from tests.plugins.engines.broker.storage.durable import DurableBroker


def bodies(queue: Queue, most: int = 100, now: float = 0.0) -> list[str]:
    return [row["body"] for row in peek(queue, most, now)[0]]


def filled(*batches: Any, **arguments: Any) -> Queue:
    vhost = make_vhost()
    named = {f"x-{name.replace('_', '-')}": value for name, value in arguments.items()}
    queue = vhost.declare_queue("q", None, 0.0, arguments=named)
    for batch in batches:
        vhost.publish(batch, 0.0)
    return queue


def test_messages_are_shown_and_stay() -> None:
    queue = filled(run(b"1", b"2"), run(b"3"))
    assert bodies(queue, 2) == ["1", "2"]
    assert peek(queue, 2, 0.0)[1] is False
    assert peek(queue, 3, 0.0)[1] is True
    assert ready(queue) == [b"1", b"2", b"3"]
    assert (queue.backlog.count, queue.outstanding, queue.messages_out) == (3, 0, 0)


def test_a_message_that_was_shown_is_not_redelivered() -> None:
    queue = filled(run(b"1"))
    peek(queue, 1, 0.0)
    client = Client(queue.vhost)
    taken = client.receiver.take_one(queue, 0.0, auto_ack=True)
    assert taken is not None
    assert taken[1].redelivered is False


def test_what_was_redelivered_says_so() -> None:
    queue = filled(run(b"1", b"2"))
    client = Client(queue.vhost)
    client.receiver.take_one(queue, 0.0, auto_ack=False)
    client.receiver.recover()
    shown = peek(queue, 10, 0.0)[0]
    assert [(row["body"], row["redelivered"], row["position"]) for row in shown] == [
        ("1", True, 0),
        ("2", False, 1),
    ]


def test_the_order_is_that_of_the_delivery() -> None:
    queue = filled(run(b"low"), run(b"high", priority=2), max_priority=3)
    assert bodies(queue) == ["high", "low"]


def test_what_has_expired_is_not_shown() -> None:
    queue = filled(run(b"soon", expiration=1000), run(b"later", expiration=3000), run(b"never"))
    assert bodies(queue, now=2.0) == ["later", "never"]
    assert [row["expires_in"] for row in peek(queue, 10, 2.0)[0]] == [1.0, None]


def persistent(body: bytes) -> Any:
    return run(body, persistent=True)


def test_what_is_on_disk_is_read_and_stays_there() -> None:
    broker = DurableBroker(queue_bytes=1000)
    queue = broker.declare()
    for number in range(100):
        broker.vhost.publish(persistent(b"%02d" % number + b"x" * 98), 0.0)
        broker.process()
    before = (queue.backlog.count, queue.backlog.size, queue.backlog.paged, len(queue.backlog.levels[0]))
    shown = peek(queue, 50, 0.0)[0]
    assert [row["body"][:2] for row in shown] == [f"{number:02}" for number in range(50)]
    assert (shown[0]["on_disk"], shown[-1]["on_disk"]) == (False, True)
    after = (queue.backlog.count, queue.backlog.size, queue.backlog.paged, len(queue.backlog.levels[0]))
    assert after == before
    assert [(body[:2], again) for body, again in broker.take()] == [(b"%02d" % n, False) for n in range(100)]


def test_a_restored_queue_is_shown() -> None:
    before = DurableBroker()
    before.declare()
    before.vhost.publish(persistent(b"kept"), 0.0)
    before.process()
    assert bodies(before.reopened().queue()) == ["kept"]


@pytest.mark.slow
def test_so_much_is_read_from_disk_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """A queue may have a terabyte on disk, and the broker does nothing else meanwhile."""
    broker = DurableBroker(queue_bytes=0)
    queue = broker.declare()
    for number in range(100):
        # Larger than a page.
        broker.vhost.publish(persistent(b"%02d" % number + b"x" * 300_000), 0.0)
        broker.process()
    monkeypatch.setattr(peek_module, "MOST_READ", 1_000_000)
    reads: list[int] = []
    read = MemoryDisk.read

    def counting(self: MemoryDisk, *place: Any) -> bytes:
        octets = read(self, *place)
        reads.append(len(octets))
        return octets

    monkeypatch.setattr(MemoryDisk, "read", counting)
    shown, whole = peek(queue, 100, 0.0)
    assert [row["body"][:2] for row in shown] == ["00", "01", "02"]
    assert whole is False
    assert sum(reads) < 3_000_000


def test_a_page_that_cannot_be_read_is_missing_and_reported_when_it_is_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broker = DurableBroker(queue_bytes=0)
    queue = broker.declare()
    broker.vhost.publish(persistent(b"there"), 0.0)
    broker.process()

    def broken(*_: Any) -> bytes:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(MemoryDisk, "read", broken)
        assert bodies(queue) == []
    assert broker.take_all() == [b"there"]
