"""Up to where all destinations have confirmed."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kernel.dispatcher.ack_tracker import AckTracker


class FakePipe:
    """All that a tracker needs of a pipe: an identity and a count."""

    def __init__(self) -> None:
        self.confirmed = 0


def pipe() -> Any:
    return FakePipe()


def test_a_page_without_needs_is_confirmed_at_once() -> None:
    tracker = AckTracker()
    tracker.add(3)
    assert tracker.advance()
    assert (tracker.sent, tracker.confirmed) == (3, 3)
    assert not tracker.advance()


def test_the_slowest_destination_counts() -> None:
    tracker, fast, slow = AckTracker(), pipe(), pipe()
    entry = tracker.add(5)
    entry.needs.update({fast: 5, slow: 5})
    fast.confirmed = 5
    assert not tracker.advance()
    slow.confirmed = 5
    assert tracker.advance()
    assert tracker.confirmed == 5


def test_pages_are_closed_from_the_oldest_on() -> None:
    tracker, one, other = AckTracker(), pipe(), pipe()
    tracker.add(2).needs[one] = 2
    tracker.add(3).needs[other] = 3
    other.confirmed = 3
    assert not tracker.advance()
    one.confirmed = 2
    assert tracker.advance()
    assert tracker.confirmed == 5


def test_a_held_batch_keeps_its_page_open() -> None:
    tracker = AckTracker()
    entry = tracker.add(1)
    entry.pending = 1
    assert not tracker.advance()
    entry.pending = 0
    assert tracker.advance()


def test_released_pages_become_one_that_waits_for_whoever_takes_over() -> None:
    tracker, dead, heir = AckTracker(), pipe(), pipe()
    tracker.add(2).needs[dead] = 2
    tracker.add(2).needs[dead] = 4
    tracker.add(2).needs[heir] = 2
    merged = tracker.release(dead)
    assert merged is not None
    merged.needs[heir] = 6
    heir.confirmed = 2
    assert not tracker.advance()
    heir.confirmed = 6
    assert tracker.advance()
    assert tracker.confirmed == 6


def test_releasing_a_pipe_that_confirmed_everything_merges_nothing() -> None:
    tracker, gone = AckTracker(), pipe()
    tracker.add(2).needs[gone] = 2
    gone.confirmed = 2
    assert tracker.release(gone) is None
    assert tracker.advance()
    assert tracker.confirmed == 2


def test_an_absorbed_page_speaks_for_the_one_that_absorbed_it() -> None:
    tracker, dead, other = AckTracker(), pipe(), pipe()
    first = tracker.add(1)
    first.needs[dead] = 1
    second = tracker.add(1)
    second.needs[other] = 1
    second.pending = 1
    assert tracker.release(dead) is first
    assert second.current() is first
    assert first.pending == 1


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 5), st.integers(0, 5)), max_size=60))
def test_confirmed_never_passes_what_every_destination_has(steps: list[tuple[int, int, int]]) -> None:
    tracker = AckTracker()
    pipes = [pipe() for _ in range(4)]
    written = dict.fromkeys(pipes, 0)
    messages: list[tuple[Any, int]] = []  # for each message: its pipe, and the count that means it
    for number, count, confirms in steps:
        to = pipes[number]
        entry = tracker.add(count)
        for _ in range(count):
            written[to] += 1
            messages.append((to, written[to]))
        entry.needs[to] = written[to]
        who = pipes[confirms % 4]
        who.confirmed = min(who.confirmed + confirms, written[who])
        tracker.advance()
        assert all(need <= where.confirmed for where, need in messages[: tracker.confirmed])
    for each in pipes:
        each.confirmed = written[each]
    tracker.advance()
    assert tracker.confirmed == tracker.sent == len(messages)
