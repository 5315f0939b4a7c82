"""Delivery tags in ranges, against a plain dictionary."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel.contracts.message import batch_of
from plugins.engines.broker.errors import PreconditionFailed
from plugins.engines.broker.ledger import Handed, Ledger, UnknownTag
from plugins.engines.broker.span import Span
from tests.plugins.engines.broker.client import make_vhost


def _tags(settled: list[Handed]) -> list[int]:
    return [tag for handed in settled for tag in range(handed.first_tag, handed.first_tag + len(handed))]


def _bodies(settled: list[Handed]) -> list[int]:
    return [int(body) for handed in settled for body in handed.span.as_batch().bodies]


def _ledger(*sizes: int) -> Ledger:
    queue = make_vhost().declare_queue("q", None, 0.0)
    ledger = Ledger()
    for size in sizes:
        bodies = [b"%d" % (ledger.next_tag + offset) for offset in range(size)]
        ledger.hand_out(Span(0, batch_of(bodies), 0, size), queue, None)
    return ledger


@given(
    st.lists(st.integers(1, 20), min_size=1, max_size=8),
    st.lists(st.tuples(st.sampled_from(["one", "up to", "range"]), st.integers(1, 100), st.integers(0, 20))),
)
def test_the_ledger_agrees_with_a_set_of_tags(sizes: list[int], steps: list[tuple[str, int, int]]) -> None:
    ledger = _ledger(*sizes)
    outstanding = list(range(1, sum(sizes) + 1))
    for kind, tag, length in steps:
        if kind == "up to":
            expected = [t for t in outstanding if t <= tag] if tag in outstanding else []
            try:
                settled = ledger.settle_up_to(tag)
            except PreconditionFailed:
                settled = []
        else:
            last = tag if kind == "one" else tag + length
            expected = []
            for wanted in range(tag, last + 1):
                if wanted not in outstanding:
                    break
                expected.append(wanted)
            try:
                settled = ledger.settle_range(tag, last)
            except UnknownTag as unknown:
                settled = unknown.settled
        assert _tags(settled) == _bodies(settled) == expected
        outstanding = [t for t in outstanding if t not in expected]
        assert len(ledger) == len(outstanding)
    assert _tags(ledger.settle_all()) == outstanding


def test_acknowledging_in_order_keeps_the_list_short() -> None:
    ledger = _ledger(*[1] * 1000)
    for tag in range(1, 901):
        ledger.settle_range(tag, tag)
    assert len(ledger) == 100
    assert len(ledger._ranges) < 250


def test_a_thousand_at_once_is_one_range() -> None:
    assert len(_ledger(1000).settle_up_to(1000)) == 1


@pytest.mark.parametrize("tag", [3, 77])
def test_a_tag_that_is_not_outstanding_is_refused(tag: int) -> None:
    ledger = _ledger(5)
    ledger.settle_range(3, 3)
    with pytest.raises(PreconditionFailed, match=f"unknown delivery tag {tag}"):
        ledger.settle_up_to(tag)


def test_tag_zero_means_all() -> None:
    ledger = _ledger(2, 3)
    assert _tags(ledger.settle_up_to(0)) == [1, 2, 3, 4, 5]
    assert ledger.settle_up_to(0) == []


def test_the_size_of_what_is_outstanding_is_estimated() -> None:
    ledger = _ledger()
    assert ledger.estimated_size() == 0
    queue = make_vhost().declare_queue("q", None, 0.0)
    for _ in range(5000):
        ledger.hand_out(Span(0, batch_of([bytes(100), bytes(300)]), 0, 2), queue, None)
    assert ledger.estimated_size() == 5000 * 400
    ledger.settle_up_to(5001)
    assert ledger.estimated_size() == pytest.approx(4999 * 200, rel=0.01)
    ledger.settle_all()
    assert ledger.estimated_size() == 0


def test_what_is_restored_is_outstanding_under_its_old_tags() -> None:
    ledger = _ledger(3, 3, 3)
    settled = [*ledger.settle_range(5, 5), *ledger.settle_range(2, 2)]
    ledger.settle_up_to(1)
    ledger.restore(settled)
    assert len(ledger) == 8
    assert _tags(ledger.settle_all()) == list(range(2, 10))
