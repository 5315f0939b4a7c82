"""Many queues together: the longest give way, so that all of them have no more memory than there is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugins.engines.broker.alarms import bytes_in_queues
from plugins.engines.broker.storage.sharing import LEAST, cut
from tests.plugins.engines.broker.client import run
from tests.plugins.engines.broker.storage.durable import DurableBroker

KILO = b"x" * 1000


@pytest.mark.parametrize(
    "sizes, most, height",
    [
        ([], 10, None),
        ([3, 3, 3], 9, None),
        ([3, 3, 3], 8, 2),
        ([1, 2, 30], 13, 10),
        ([1, 30, 30], 21, 10),
        ([5], 0, 0),
    ],
)
def test_the_height_of_the_cut(sizes: list[int], most: int, height: int | None) -> None:
    assert cut(sizes, most) == height


@given(st.lists(st.integers(0, 1000)), st.integers(0, 5000))
def test_what_is_cut_fits_and_wastes_little(sizes: list[int], most: int) -> None:
    height = cut(sizes, most)
    if height is None:
        assert sum(sizes) <= most
    else:
        together = sum(min(size, height) for size in sizes)
        assert most - len(sizes) < together <= most


def fill(broker: DurableBroker, name: str, count: int, body: bytes = KILO) -> None:
    for _ in range(count):
        broker.vhost.publish(run(body, key=name, persistent=True), 0.0)
    broker.process()


def share(broker: DurableBroker) -> None:
    broker.broker.share_memory()
    broker.drain()
    broker.drain()


@pytest.mark.slow
@pytest.mark.parametrize("body", [KILO, b"tiny"], ids=["large", "small"])
@pytest.mark.parametrize("durable", [True, False])
def test_many_queues_together_keep_to_it(durable: bool, body: bytes) -> None:
    most = 100_000
    broker = DurableBroker(all_queues_bytes=most)
    names = [f"q{number}" for number in range(100)]
    count = 4000 // (len(body) + 64)
    for name in names:
        broker.declare(name, durable=durable)
        fill(broker, name, count, body)
    assert bytes_in_queues(broker.broker) > 3 * most
    share(broker)
    assert bytes_in_queues(broker.broker) <= most
    assert {len(broker.take_all(name)) for name in names} == {count}


def test_the_longest_give_way_and_come_back() -> None:
    broker = DurableBroker(all_queues_bytes=100_000)
    short, long = broker.declare("short"), broker.declare("long")
    fill(broker, "short", 10)
    fill(broker, "long", 1000)
    share(broker)
    assert (short.backlog.paged, long.backlog.paged > 900_000) == (0, True)
    own = broker.store.most_resident(long.policy)
    assert short.most_resident < own
    broker.take_all("long")
    share(broker)
    assert (short.most_resident, long.most_resident) == (own, own)


def test_what_is_published_next_goes_to_the_disk_at_once() -> None:
    broker = DurableBroker(all_queues_bytes=100_000)
    queue = broker.declare("q")
    fill(broker, "q", 1000)
    share(broker)
    for _ in range(10):
        fill(broker, "q", 100)
        broker.drain()
        assert queue.backlog.size - queue.backlog.paged <= 100_000


def test_who_is_consumed_keeps_two_pages() -> None:
    broker = DurableBroker(all_queues_bytes=1000)
    read, idle = broker.declare("read"), broker.declare("idle")
    broker.client.consume(read, prefetch=1)
    for name in ("read", "idle"):
        fill(broker, name, 1000)
    share(broker)
    assert read.most_resident == LEAST
    assert idle.most_resident < 1000


def test_without_a_limit_each_has_its_own() -> None:
    broker = DurableBroker()
    queue = broker.declare("q")
    fill(broker, "q", 1000)
    share(broker)
    assert queue.backlog.paged == 0
