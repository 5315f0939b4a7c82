"""Strides: bodies that are cut many at once are those that slices give, one by one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel.contracts.strides import count_repeats, cut


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
