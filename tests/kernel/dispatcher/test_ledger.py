"""Up to where all destinations have confirmed."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kernel.dispatcher.ledger import Ledger


class FakePipe:
    """All that a ledger needs of a pipe: an identity and a count."""

    def __init__(self) -> None:
        self.confirmed = 0


def pipe() -> Any:
    return FakePipe()


def test_a_page_without_needs_is_settled_at_once() -> None:
    ledger = Ledger()
    ledger.open(3)
    assert ledger.settle()
    assert (ledger.sent, ledger.confirmed) == (3, 3)
    assert not ledger.settle()


def test_the_slowest_destination_counts() -> None:
    ledger, fast, slow = Ledger(), pipe(), pipe()
    page = ledger.open(5)
    page.needs.update({fast: 5, slow: 5})
    fast.confirmed = 5
    assert not ledger.settle()
    slow.confirmed = 5
    assert ledger.settle()
    assert ledger.confirmed == 5


def test_pages_are_closed_from_the_oldest_on() -> None:
    ledger, one, other = Ledger(), pipe(), pipe()
    ledger.open(2).needs[one] = 2
    ledger.open(3).needs[other] = 3
    other.confirmed = 3
    assert not ledger.settle()
    one.confirmed = 2
    assert ledger.settle()
    assert ledger.confirmed == 5


def test_a_held_batch_keeps_its_page_open() -> None:
    ledger = Ledger()
    page = ledger.open(1)
    page.held = 1
    assert not ledger.settle()
    page.held = 0
    assert ledger.settle()


def test_released_pages_become_one_that_waits_for_whoever_takes_over() -> None:
    ledger, dead, heir = Ledger(), pipe(), pipe()
    ledger.open(2).needs[dead] = 2
    ledger.open(2).needs[dead] = 4
    ledger.open(2).needs[heir] = 2
    merged = ledger.release(dead)
    assert merged is not None
    merged.needs[heir] = 6
    heir.confirmed = 2
    assert not ledger.settle()
    heir.confirmed = 6
    assert ledger.settle()
    assert ledger.confirmed == 6


def test_releasing_a_pipe_that_confirmed_everything_merges_nothing() -> None:
    ledger, gone = Ledger(), pipe()
    ledger.open(2).needs[gone] = 2
    gone.confirmed = 2
    assert ledger.release(gone) is None
    assert ledger.settle()
    assert ledger.confirmed == 2


def test_an_absorbed_page_speaks_for_the_one_that_absorbed_it() -> None:
    ledger, dead, other = Ledger(), pipe(), pipe()
    first = ledger.open(1)
    first.needs[dead] = 1
    second = ledger.open(1)
    second.needs[other] = 1
    second.held = 1
    assert ledger.release(dead) is first
    assert second.current() is first
    assert first.held == 1


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 5), st.integers(0, 5)), max_size=60))
def test_confirmed_never_passes_what_every_destination_has(steps: list[tuple[int, int, int]]) -> None:
    ledger = Ledger()
    pipes = [pipe() for _ in range(4)]
    written = dict.fromkeys(pipes, 0)
    messages: list[tuple[Any, int]] = []  # for each message: its pipe, and the count that means it
    for number, count, confirms in steps:
        to = pipes[number]
        page = ledger.open(count)
        for _ in range(count):
            written[to] += 1
            messages.append((to, written[to]))
        page.needs[to] = written[to]
        who = pipes[confirms % 4]
        who.confirmed = min(who.confirmed + confirms, written[who])
        ledger.settle()
        assert all(need <= where.confirmed for where, need in messages[: ledger.confirmed])
    for each in pipes:
        each.confirmed = written[each]
    ledger.settle()
    assert ledger.confirmed == ledger.sent == len(messages)
