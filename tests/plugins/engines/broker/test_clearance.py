"""Purged and deleted queues: empty at once, and what is left to do is divided over turns."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from plugins.engines.broker.broker import Broker
from plugins.engines.broker.clearance import PAUSE, SHARE
from plugins.engines.broker.queue import Queue
from tests.plugins.engines.broker.client import Client, make_vhost, ready, run
from tests.plugins.engines.broker.storage.test_directory import Opened

COUNT = 3 * SHARE + 100


@pytest.fixture
def reopened(tmp_path: Path) -> Iterator[Callable[[], Opened]]:
    """Open the folder again; the broker before has ended in good order."""
    last: list[Opened] = []

    def make() -> Opened:
        for one in last:
            one.close()
        last[:] = [Opened(tmp_path / "data")]
        return last[0]

    yield make
    for one in last:
        one.close()


def fill(queue: Queue, *, persistent: bool = False) -> None:
    """Publish messages that nobody has put into one batch."""
    for number in range(COUNT):
        queue.publish(run(b"%d" % number, persistent=persistent), 0.0)


def got(opened: Opened) -> list[bytes]:
    """Take what the queue has, also from the disk."""
    client = Client(opened.vhost)
    client.consume(opened.vhost.queues["q"])
    return client.bodies()


def turns(broker: Broker) -> int:
    """Let the time pass until nothing is left; return how many turns it took."""
    count, now = 0, 0.0
    while broker.clearances:
        due = broker.next_deadline()
        assert due is not None
        now = max(now, due)
        broker.handle_timeout(now)
        count += 1
    return count


def test_a_purge_is_divided_and_the_queue_is_empty_at_once() -> None:
    vhost = make_vhost()
    queue = vhost.declare_queue("q", None, 0.0)
    fill(queue)
    assert queue.purge(0.0) == COUNT
    assert (queue.backlog.count, queue.backlog.size, ready(queue)) == (0, 0, [])
    queue.publish(run(b"new"), 0.0)
    assert turns(vhost.broker) == 3
    assert ready(queue) == [b"new"]


def test_a_small_purge_needs_no_other_turn() -> None:
    vhost = make_vhost()
    queue = vhost.declare_queue("q", None, 0.0)
    queue.publish(run(*[b"x"] * SHARE), 0.0)
    assert queue.purge(0.0) == SHARE
    assert not vhost.broker.clearances


def test_shares_are_apart() -> None:
    """So that who has waited for the first one is served before the second."""
    vhost = make_vhost()
    queue = vhost.declare_queue("q", None, 0.0)
    fill(queue)
    queue.purge(1.0)
    assert vhost.broker.next_deadline() == pytest.approx(1.0 + PAUSE)


@pytest.mark.parametrize("then", ["close", "turns", "delete"])
def test_what_was_purged_does_not_come_back(reopened: Callable[[], Opened], then: str) -> None:
    opened = reopened()
    queue = opened.vhost.declare_queue("q", None, 0.0, durable=True)
    fill(queue, persistent=True)
    opened.make_safe()
    queue.purge(0.0)
    queue.publish(run(b"new", persistent=True), 0.0)
    if then == "turns":
        turns(opened.broker)
    elif then == "delete":
        opened.vhost.delete_queue("q", None, 0.0)
    again = reopened()
    if then == "delete":
        assert "q" not in again.vhost.queues
    else:
        assert got(again) == [b"new"]


def test_a_deleted_queue_is_forgotten_in_shares_and_one_of_its_name_is_another(
    reopened: Callable[[], Opened],
) -> None:
    opened = reopened()
    queue = opened.vhost.declare_queue("q", None, 0.0, durable=True)
    fill(queue, persistent=True)
    opened.make_safe()
    assert opened.vhost.delete_queue("q", None, 0.0) == COUNT
    other = opened.vhost.declare_queue("q", None, 0.0, durable=True)
    other.publish(run(b"new", persistent=True), 0.0)
    client = Client(opened.vhost)
    client.consume(other, prefetch=1)
    assert client.bodies() == [b"new"]
    assert turns(opened.broker) == 3
    client.receiver.recover()
    assert got(reopened()) == [b"new"]
