"""Windows, sequence numbers and buckets, with anything that may happen to them."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugins.protocols.pgm.receive_window import ReceiveWindow
from plugins.protocols.pgm.sequence import after, distance, span
from plugins.protocols.pgm.session import merged
from plugins.protocols.pgm.token_bucket import TokenBucket
from plugins.protocols.pgm.transmit_window import TransmitWindow

NUMBERS = st.integers(0, 0xFFFFFFFF)
FIRSTS = st.sampled_from((0, 1, 1000, 0x7FFFFFF0, 0x80000000, 0xFFFFFFF8, 0xFFFFFFFF))


@given(NUMBERS, st.integers(-(1 << 31), (1 << 31) - 1))
def test_distance_is_what_was_added(number: int, count: int) -> None:
    assert distance(number, after(number, count)) == count


def test_a_span_goes_through_the_wrap_around() -> None:
    assert span(0xFFFFFFFE, 1) == [0xFFFFFFFE, 0xFFFFFFFF, 0, 1]
    assert span(1, 0) == []


@given(FIRSTS, st.permutations(range(24)), st.lists(st.integers(0, 23), max_size=10))
def test_any_order_comes_out_in_order(first: int, order: list[int], again: list[int]) -> None:
    window = ReceiveWindow(first, 100, 10_000)
    missing: set[int] = set()
    for offset in [*order, *again]:
        number = after(first, offset)
        if window.put(number, offset, 1):
            missing.update(*(span(*each) for each in window.found))
            window.found.clear()
            missing.discard(number)
        assert missing == {
            n for n in span(window.next, window.lead) if n not in window._out_of_order
        }  # what is neither delivered nor held is just what was told
    assert window.ready == list(range(24))
    assert window.lost == []


@given(
    FIRSTS,
    st.lists(st.integers(-5, 60), max_size=60),
    st.integers(2, 12),
    st.integers(1, 30),
    st.lists(st.integers(0, 70), max_size=3),
)
def test_whatever_comes_the_window_keeps_its_bounds(
    first: int, offsets: list[int], most: int, most_bytes: int, trails: list[int]
) -> None:
    """Delivered in order, each once; every number before ``next`` was delivered or is told to be lost."""
    window = ReceiveWindow(first, most, most_bytes)
    for at, offset in enumerate(offsets):
        window.put(after(first, offset), offset, 1)
        if at < len(trails):
            window.give_up_before(after(first, trails[at]))
        assert 0 <= distance(window.next, after(window.lead)) <= most
        assert window._out_of_order_bytes == len(window._out_of_order) <= most_bytes
    delivered = [item for item in window.ready if item is not None]
    assert delivered == sorted(set(delivered))
    lost = [distance(first, number) for start, end in window.lost for number in span(start, end)]
    assert sorted(delivered + lost) == list(range(distance(first, window.next)))


def test_what_is_skipped_leaves_a_mark_and_no_more() -> None:
    window = ReceiveWindow(5, 10, 10)
    window.put(5, "a", 1)
    window.put(8, "d", 1)
    window.skip(7)
    assert (window.ready, window.lost) == (["a"], [(7, 7)])
    window.put(6, "b", 1)
    assert window.ready == ["a", "b", None, "d"]


def test_ranges_that_touch_are_told_as_one() -> None:
    assert merged([(1, 2), (3, 3), (5, 9)]) == [(1, 3), (5, 9)]
    assert merged([(0xFFFFFFFF, 0xFFFFFFFF), (0, 4)]) == [(0xFFFFFFFF, 4)]


@given(FIRSTS, st.lists(st.integers(0, 50), max_size=80), st.integers(1, 20), st.integers(50, 300))
def test_the_transmit_window_keeps_its_bounds(
    first: int, sizes: list[int], most: int, most_bytes: int
) -> None:
    window = TransmitWindow(first, most, most_bytes, 10.0)
    for at, size in enumerate(sizes):
        window.stamp(at * 0.5)
        window.add(bytes(size))
        window.expire(at * 0.5)
        kept = span(window.trail, window.lead)
        assert len(kept) == len(window) <= min(most, 21)
        assert sum(len(window.get(number) or b"") for number in kept) <= most_bytes
        assert window.lead == after(first, at)
        assert window.get(after(window.trail, -1)) is None
    window.expire(1000.0)
    assert len(window) == 0
    assert window.trail == after(window.lead)


@given(st.lists(st.tuples(st.floats(0, 0.5), st.integers(1, 2000)), max_size=200))
def test_a_bucket_never_lets_more_through_than_its_rate(steps: list[tuple[float, int]]) -> None:
    """Over any time: no more than the burst, the rate times the time, and the last packet's debt (RFC 3208, 5.1.2)."""
    bucket = TokenBucket(1000.0, 500.0)
    now = passed = 0.0
    for wait, size in steps:
        now += wait
        if bucket.fill(now) > 0:
            bucket.tokens -= size
            passed += size
        else:
            ready = bucket.ready_at()
            assert ready > now
            assert bucket.has_one(ready)
            now = ready
    assert passed <= 500 + 1000 * now + 2000


def _seconds_to_lose(count: int) -> float:
    """Hold every other packet of ``count`` while the source's trailing edge passes them one by one; return the time it took."""
    window = ReceiveWindow(0, 1 << 20, 1 << 30)
    for number in range(1, count, 2):
        window.put(number, "held", 1)
    start = time.process_time()
    for trail in range(1, count):
        window.give_up_before(trail)
    assert sum(item == "held" for item in window.ready) == count // 2
    return time.process_time() - start


@pytest.mark.slow
def test_losing_many_packets_takes_time_in_proportion() -> None:
    few, many = (min(_seconds_to_lose(count) for _ in range(3)) for count in (2000, 32_000))
    assert many < 16 * 6 * few  # were it in proportion to the square, it would be 256 times as much
