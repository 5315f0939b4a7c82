"""What helps dissectors count: durations, sequence numbers, answers, and dictionaries that forget."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel.contracts.dissecting import sequence_watch
from kernel.contracts.dissecting.awaited import REMEMBERED, Awaited
from kernel.contracts.dissecting.durations import WIDTH, Durations
from kernel.contracts.dissecting.latest import Latest
from kernel.contracts.dissecting.sequence_watch import Seen, SequenceWatch


def test_percentiles_are_as_exact_as_buckets_are_wide() -> None:
    durations = Durations()
    assert durations.facts("rtt") == {}
    for millisecond in range(1, 101):
        durations.add(millisecond / 1000)
    assert durations.percentile(0.5) == pytest.approx(0.050, rel=WIDTH - 1)
    assert durations.percentile(0.99) == pytest.approx(0.099, rel=WIDTH - 1)
    assert durations.facts("rtt")["rtt_max_ms"] == 100.0


@given(st.lists(st.floats(-1.0, 1e9), max_size=300))
def test_any_durations_take_a_bounded_number_of_buckets(seconds: list[float]) -> None:
    durations = Durations()
    for each in seconds:
        durations.add(each)
    assert len(durations._buckets) < 600
    assert durations.percentile(1.0) <= max(seconds, default=0.0) or durations.longest <= 1e-6


def test_sequence_numbers_through_wrap_around() -> None:
    watch = SequenceWatch()
    seen = [watch.see(number) for number in (0xFFFFFFFE, 0xFFFFFFFF, 2, 2, 0, 0, 1, 0xFFFFFFFD)]
    new, late, again = Seen.NEW, Seen.LATE, Seen.AGAIN
    assert seen == [new, new, new, again, late, again, late, late]
    assert watch.missing == 0


def test_holes_are_counted_and_a_bounded_number_of_them_remembered() -> None:
    watch = SequenceWatch()
    watch.see(0)
    watch.see(2**31 - 1)
    assert watch.missing == 2**31 - 2
    assert len(watch._holes) == sequence_watch.HOLES
    assert watch.see(2**31 - 2) is Seen.LATE
    assert watch.missing == 2**31 - 3


def test_answers_are_measured_but_not_those_to_what_was_sent_twice() -> None:
    awaited = Awaited()
    for number in range(1, 6):
        awaited.sent(number, float(number))
    awaited.answered(2, 2.5)
    assert (awaited.durations.count, awaited.durations.longest) == (1, 0.5)
    awaited.answered_up_to(3, 5.0)  # 3 was sent at 3
    assert (awaited.durations.count, awaited.durations.longest) == (2, 2.0)
    awaited.do_not_measure(4)
    awaited.answered_up_to(4, 100.0)
    awaited.answered(7, 100.0)
    assert awaited.durations.count == 2
    awaited.forget()
    awaited.answered(5, 100.0)
    assert awaited.durations.count == 2
    for number in range(3 * REMEMBERED):
        awaited.sent(number, 0.0)
    assert len(awaited._waiting) == REMEMBERED


def test_what_was_not_used_for_the_longest_is_forgotten_first() -> None:
    gone: list[str] = []
    latest: Latest[int, str] = Latest(2, gone.append)
    latest.put(1, "one")
    latest.put(2, "two")
    assert latest.get(1) == "one"
    latest.put(3, "three")
    assert (gone, latest.forgotten, latest.values()) == (["two"], 1, ["one", "three"])
    assert latest.get(2) is None
    assert latest.pop(1) == "one"
    assert 1 not in latest
    assert len(latest) == 1
