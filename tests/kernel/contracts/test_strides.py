"""Strides: bodies that are cut many at once are those that slices give, one by one."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel.contracts.strides import FIRST_BLOCK, LARGEST_BLOCK, count_repeats, cut, read_in_blocks


@given(
    before=st.integers(0, 9),
    head=st.integers(0, 20),
    size=st.integers(1, 30),
    tail=st.integers(0, 3),
    count=st.integers(0, 200),
    kind=st.sampled_from([bytes, bytearray, memoryview]),
)
def test_bodies_are_cut_wherever_they_are(
    before: int, head: int, size: int, tail: int, count: int, kind: type
) -> None:
    stride = head + size + tail
    data = bytes(number % 251 for number in range(before + stride * count + 5))
    starts = range(before + head, before + head + stride * count, stride)
    assert cut(kind(data), before, (head, size, tail), count) == [data[at : at + size] for at in starts]


@pytest.mark.parametrize("size", [0, 3])
def test_empty_bodies_and_no_messages(size: int) -> None:
    assert cut(b"x" * 40, 0, (1, 0), 10) == [b""] * 10
    assert cut(b"", 0, (1, size), 0) == []


@given(alike=st.integers(1, 70), others=st.integers(0, 70))
def test_a_flow_that_changes_once_is_counted_exactly(alike: int, others: int) -> None:
    data = b"=ab" * alike + b"-cd" * others
    assert count_repeats(data, 0, b"=", 3, alike + others) == alike


class Flow:
    """Messages of which the first ``alike`` are like the first; remembers what was asked for."""

    def __init__(self, alike: int) -> None:
        self._alike = alike
        self.asked: list[tuple[int, int]] = []
        self.taken: list[int] = []

    def estimate(self, done: int, count: int) -> int:
        self.asked.append((done, count))
        return count

    def take(self, done: int, count: int) -> int:
        if done + count > self._alike:
            return 0
        self.taken.append(count)
        return count


@given(most=st.integers(0, 5000), expected=st.integers(0, 5000), stride=st.integers(1, 5000))
def test_a_steady_flow_is_taken_whole_in_blocks_that_grow(most: int, expected: int, stride: int) -> None:
    flow = Flow(most)
    assert read_in_blocks(most, stride, expected, flow.estimate, flow.take) == most
    # Behind each other, without a gap.
    assert [done for done, _ in flow.asked] == [sum(flow.taken[:at]) for at in range(len(flow.taken))]
    limit = max(LARGEST_BLOCK // stride, 1)
    *full, _ = flow.taken or [0]
    assert full[:1] in ([], [max(FIRST_BLOCK, min(expected, limit))])
    assert all(after == min(2 * before, limit) for before, after in itertools.pairwise(full))


def test_a_block_that_differs_is_tried_with_a_quarter_of_it() -> None:
    flow = Flow(5)
    assert read_in_blocks(100, 10, 0, flow.estimate, flow.take) == 4
    assert flow.asked == [(0, FIRST_BLOCK)]
    assert flow.taken == [4]


def test_nothing_is_like_the_first() -> None:
    flow = Flow(0)
    assert read_in_blocks(100, 10, 0, flow.estimate, flow.take) == 0


def test_an_estimate_of_nothing_ends_it() -> None:
    flow = Flow(100)
    assert read_in_blocks(100, 10, 0, lambda done, count: 0 if done else count, flow.take) == FIRST_BLOCK


def test_who_takes_fewer_has_seen_the_end() -> None:
    assert read_in_blocks(100, 10, 64, lambda _, count: count, lambda _, count: count - 1) == 63
