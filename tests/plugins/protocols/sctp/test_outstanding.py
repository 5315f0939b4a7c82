"""Ranges of integers, against sets of them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from plugins.protocols.sctp.outstanding import Range, without

numbers = st.sets(st.integers(0, 40))


def ranges_of(members: set[int]) -> list[Range]:
    starts = sorted(member for member in members if member - 1 not in members)
    ends = sorted(member for member in members if member + 1 not in members)
    return list(zip(starts, ends, strict=True))


@given(numbers, numbers)
def test_what_is_left_is_the_difference_of_the_sets(some: set[int], others: set[int]) -> None:
    assert without(ranges_of(some), ranges_of(others)) == ranges_of(some - others)
