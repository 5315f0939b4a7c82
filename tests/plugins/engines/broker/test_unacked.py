"""Delivery tags in ranges, against a plain dictionary."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel.contracts.message import batch_of
from plugins.engines.broker.errors import PreconditionFailed
from plugins.engines.broker.span import Span
from plugins.engines.broker.unacked import Unacked, UnackedRange, UnknownTag
from tests.plugins.engines.broker.client import make_vhost


def _tags(taken: list[UnackedRange]) -> list[int]:
    return [tag for handed in taken for tag in range(handed.first_tag, handed.first_tag + len(handed))]


def _bodies(taken: list[UnackedRange]) -> list[int]:
    return [int(body) for handed in taken for body in handed.span.as_batch().bodies]


def _unacked(*sizes: int) -> Unacked:
    queue = make_vhost().declare_queue("q", None, 0.0)
    unacked = Unacked()
    for size in sizes:
        bodies = [b"%d" % (unacked.next_tag + offset) for offset in range(size)]
        unacked.add(Span(0, batch_of(bodies), 0, size), queue, None)
    return unacked


@given(
    st.lists(st.integers(1, 20), min_size=1, max_size=8),
    st.lists(
        st.tuples(
            st.sampled_from(["one", "up to", "range", "oldest"]), st.integers(1, 100), st.integers(0, 20)
        )
    ),
)
def test_the_ledger_agrees_with_a_set_of_tags(sizes: list[int], steps: list[tuple[str, int, int]]) -> None:
    unacked = _unacked(*sizes)
    outstanding = list(range(1, sum(sizes) + 1))
    for kind, tag, length in steps:
        if kind == "up to":
            expected = [t for t in outstanding if t <= tag] if tag in outstanding else []
            try:
                taken = unacked.take_up_to(tag)
            except PreconditionFailed:
                taken = []
        elif kind == "oldest":
            expected = outstanding[:1] if outstanding[:1] == [tag] else []
            oldest = unacked.take_oldest(tag)
            taken = [] if oldest is None else [oldest]
        else:
            last = tag if kind == "one" else tag + length
            expected = []
            for wanted in range(tag, last + 1):
                if wanted not in outstanding:
                    break
                expected.append(wanted)
            try:
                taken = unacked.take_range(tag, last)
            except UnknownTag as unknown:
                taken = unknown.taken
        assert _tags(taken) == _bodies(taken) == expected
        outstanding = [t for t in outstanding if t not in expected]
        assert len(unacked) == len(outstanding)
    assert _tags(unacked.take_all()) == outstanding


def test_acknowledging_in_order_keeps_the_list_short() -> None:
    unacked = _unacked(*[1] * 1000)
    for tag in range(1, 901):
        unacked.take_range(tag, tag)
    assert len(unacked) == 100
    assert len(unacked._ranges) < 250


def test_a_thousand_at_once_is_one_range() -> None:
    assert len(_unacked(1000).take_up_to(1000)) == 1


@pytest.mark.parametrize("tag", [3, 77])
def test_a_tag_that_is_not_outstanding_is_refused(tag: int) -> None:
    unacked = _unacked(5)
    unacked.take_range(3, 3)
    with pytest.raises(PreconditionFailed, match=f"unknown delivery tag {tag}"):
        unacked.take_up_to(tag)


def test_tag_zero_means_all() -> None:
    unacked = _unacked(2, 3)
    assert _tags(unacked.take_up_to(0)) == [1, 2, 3, 4, 5]
    assert unacked.take_up_to(0) == []


def test_the_size_of_what_is_outstanding_is_estimated() -> None:
    unacked = _unacked()
    assert unacked.estimated_size() == 0
    queue = make_vhost().declare_queue("q", None, 0.0)
    for _ in range(5000):
        unacked.add(Span(0, batch_of([bytes(100), bytes(300)]), 0, 2), queue, None)
    assert unacked.estimated_size() == 5000 * 400
    unacked.take_up_to(5001)
    assert unacked.estimated_size() == pytest.approx(4999 * 200, rel=0.01)
    unacked.take_all()
    assert unacked.estimated_size() == 0


def test_what_is_restored_is_outstanding_under_its_old_tags() -> None:
    unacked = _unacked(3, 3, 3)
    taken = [*unacked.take_range(5, 5), *unacked.take_range(2, 2)]
    unacked.take_up_to(1)
    unacked.restore(taken)
    assert len(unacked) == 8
    assert _tags(unacked.take_all()) == list(range(2, 10))
