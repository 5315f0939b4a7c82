"""Intervals are sets of numbers, and what is removed at the front costs no more with very many ranges."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as some

from plugins.engines.broker.storage.intervals import Intervals

RANGES = some.tuples(some.integers(0, 60), some.integers(0, 20)).map(lambda pair: (pair[0], sum(pair)))
STEPS = some.lists(some.tuples(some.booleans(), RANGES), max_size=40)


@given(steps=STEPS, asked=RANGES)
def test_they_say_what_a_set_says(steps: list[tuple[bool, tuple[int, int]]], asked: tuple[int, int]) -> None:
    intervals, numbers = Intervals(), set[int]()
    for adds, (first, stop) in steps:
        if adds:
            intervals.add(first, stop)
            numbers |= set(range(first, stop))
        else:
            intervals.remove(first, stop)
            numbers -= set(range(first, stop))
        ranges = intervals.ranges()
        assert {one for start, end in ranges for one in range(start, end)} == numbers
        assert all(end < start for (_, end), (start, _) in pairwise(ranges))
        assert (len(intervals), bool(intervals)) == (len(numbers), bool(numbers))
        assert intervals.stop == max(numbers, default=-1) + 1
    within = {one for one in numbers if one in range(*asked)}
    assert intervals.count(*asked) == len(within)
    assert intervals.overlaps(*asked) == bool(within) or asked[0] == asked[1]
    assert {one for start, end in intervals.within(*asked) for one in range(start, end)} == within
    missing = {one for start, end in intervals.missing(*asked) for one in range(start, end)}
    assert missing == set(range(*asked)) - within


def test_very_many_ranges_are_removed_from_the_front_without_moving_the_others() -> None:
    """Each time half of the list is cut off, so that a range is moved about once in all."""
    count = 10_000
    intervals, cuts, length = Intervals((2 * n, 2 * n + 1) for n in range(count)), 0, count
    for number in range(count):
        intervals.remove(2 * number, 2 * number + 1)
        if len(intervals._starts) < length:
            cuts, length = cuts + 1, len(intervals._starts)
    assert not intervals
    assert cuts < 20
    assert length < 200
