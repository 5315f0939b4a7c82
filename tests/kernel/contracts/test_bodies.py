"""What may be a body: one by one, and in sequences that are looked at in blocks."""

from __future__ import annotations

import array
from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel.contracts.bodies import all_checked, checked


@given(st.integers(0, 600), st.lists(st.integers(0, 599), max_size=3), st.sampled_from([list, tuple, deque]))
def test_a_sequence_is_checked_as_its_bodies_are(count: int, others: list[int], kind: type) -> None:
    bodies: list[object] = [b"%d" % number for number in range(count)]
    assert all_checked(given_ := kind(bodies)) is given_
    bodies[3:4] = [bytearray(b"x")]
    assert all_checked(given_ := kind(bodies)) is given_
    for place in others:
        bodies[place : place + 1] = [array.array("H", [place])]
    got = all_checked(kind(bodies))
    assert [bytes(body) for body in got] == [bytes(checked(body)) for body in bodies]
    assert all(isinstance(body, bytes | bytearray | memoryview) for body in got)
    # In bytes, and not in items.
    assert list(map(len, got)) == [len(bytes(body)) for body in got]


@pytest.mark.parametrize("count", [1, 127, 128, 129, 400])
@pytest.mark.parametrize("wrong", ["text", 1, None, memoryview(b"abcd")[::2]])
def test_what_is_no_body_is_refused_wherever_it_stands(count: int, wrong: object) -> None:
    for place in {0, count // 2, count - 1}:
        bodies: list[object] = [b"x"] * count
        bodies[place] = wrong
        with pytest.raises(TypeError, match="a body"):
            all_checked(bodies)
