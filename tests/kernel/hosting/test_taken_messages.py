"""What a client engine has taken from its port keeps its order and its positions."""

from __future__ import annotations

from collections import deque

from hypothesis import given, settings
from hypothesis import strategies as some

from kernel.contracts.engine import Taken
from kernel.contracts.message import batch_of
from kernel.hosting.taken_messages import PART_SIZE, UNTRACKED, Flight, Unsent, forget_done
from tests.seeds import examples

SIZES = some.lists(some.sampled_from([1, 2, 3, PART_SIZE, PART_SIZE + 1, 3 * PART_SIZE]), max_size=4)


def taken(sizes: list[int], first: int, *, confirmed: bool) -> Taken:
    """Batches of so many messages, whose bodies are their positions."""
    batches, position = [], first
    for size in sizes:
        batches.append(batch_of([b"%d" % number for number in range(position, position + size)]))
        position += size
    return Taken(batches, sum(sizes), position - 1 if confirmed else None)


@given(before=SIZES, behind=SIZES, rooms=some.lists(some.integers(1, 2000)), confirmed=some.booleans())
@settings(max_examples=examples(), deadline=None)
def test_order_and_positions(before: list[int], behind: list[int], rooms: list[int], confirmed: bool) -> None:
    unsent, first, end = Unsent(), 1 + sum(before), 1 + sum(before) + sum(behind)
    unsent.add(taken(behind, first, confirmed=confirmed))
    unsent.add_before(taken(before, 1, confirmed=confirmed))
    assert unsent.messages() == end - 1
    assert len(unsent.untracked()) == (0 if confirmed else len(unsent))
    expected, left = 1, iter(rooms)
    while unsent:
        room = next(left, 5000)
        position, batch = unsent.take(room)
        size = len(batch.bodies)
        assert 0 < size <= min(room, PART_SIZE)
        assert batch.bodies == [b"%d" % number for number in range(expected, expected + size)]
        assert position == (expected if confirmed else UNTRACKED)
        expected += size
    assert expected == end


def test_a_batch_that_may_stay_whole() -> None:
    unsent = Unsent()
    unsent.add(taken([PART_SIZE + 1, PART_SIZE + 2], 1, confirmed=True), whole=PART_SIZE + 1)
    assert [(position, len(batch.bodies)) for position, batch in unsent] == [
        (1, PART_SIZE + 1),
        (PART_SIZE + 2, PART_SIZE),
        (2 * PART_SIZE + 2, 2),
    ]


def test_what_is_done_is_forgotten() -> None:
    batch = batch_of([b"a", b"b", b"c"])
    # Nobody waits for the second one.
    flights = deque([Flight(0, 11, batch), Flight(3, UNTRACKED, batch), Flight(6, 21, batch)])
    assert forget_done(flights, 0) == UNTRACKED
    assert forget_done(flights, 2) == 12
    assert len(flights) == 3
    assert forget_done(flights, 5) == 13
    assert len(flights) == 2
    assert forget_done(flights, 7) == 21
    assert forget_done(flights, 9) == 23
    assert not flights
    assert Flight(3, 11, batch).positions(4, 6) == (12, 13)
    assert Flight(3, UNTRACKED, batch).positions(4, 6) is None
