"""Tags and positions: whatever order the server answers in, the port hears of a position when all before it are done."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kernel.contracts.message import batch_of
from plugins.engines.amqp_client.in_flight import UNTRACKED, InFlight


def _of(*sizes: int) -> InFlight:
    flying = InFlight()
    position = 1
    for size in sizes:
        _take(flying, position, size)
        position += size
    return flying


def _take(flying: InFlight, position: int, size: int) -> None:
    flying.expect(position, position + size - 1)
    flying.add(batch_of([b"x"] * size), position)


def _answer(flying: InFlight, first: int, last: int, multiple: bool = False) -> int:
    """Return the position that the port is told of."""
    for flight in flying.answered(first, last, multiple):
        if flight.position != UNTRACKED:
            flying.complete(flight.position, len(flight.batch))
    return flying.complete(UNTRACKED, 0)


def test_multiple_answers_for_all_before_it() -> None:
    flying = _of(3, 3)
    assert _answer(flying, 4, 4, multiple=True) == 4
    assert flying.count == 2
    assert _answer(flying, 0, 0, multiple=True) == 6  # tag 0: all there are


def test_a_gap_holds_the_port_back() -> None:
    flying = _of(3, 3)
    assert _answer(flying, 2, 5) == 0
    assert _answer(flying, 6, 6) == 0
    assert _answer(flying, 1, 1) == 6
    assert flying.count == 0


def test_what_is_answered_twice_or_was_never_sent_counts_for_nothing() -> None:
    flying = _of(2)
    assert _answer(flying, 1, 1) == 1
    assert _answer(flying, 1, 1) == 1
    assert _answer(flying, 7, 9) == 1
    assert _answer(flying, 2, 99) == 2


def test_what_is_sent_again_keeps_its_position_under_a_new_tag() -> None:
    flying = _of(4)
    (refused,) = flying.answered(2, 3, False)
    assert (refused.position, len(refused.batch)) == (2, 2)
    flying.add(refused.batch, refused.position)  # tags 5 and 6
    assert _answer(flying, 4, 4, multiple=True) == 1
    assert _answer(flying, 5, 6) == 4


def test_what_no_route_confirms_has_no_position() -> None:
    flying = InFlight()
    flying.add(batch_of([b"x"] * 3), UNTRACKED)
    _take(flying, 4, 1)
    assert _answer(flying, 3, 3, multiple=True) == 3
    assert _answer(flying, 4, 4) == 4


def test_what_is_taken_after_a_time_in_which_nobody_waited_waits_for_nothing_before() -> None:
    flying = _of(2)
    _take(flying, 6, 2)
    assert _answer(flying, 3, 3) == 6
    assert _answer(flying, 1, 2) == 6
    assert _answer(flying, 4, 4) == 7


@given(st.lists(st.integers(1, 5), min_size=1, max_size=8), st.data())
def test_any_order_of_answers_tells_the_port_of_each_message_once(
    sizes: list[int], data: st.DataObject
) -> None:
    flying = _of(*sizes)
    open_tags = set(range(1, sum(sizes) + 1))
    while open_tags:
        first = data.draw(st.sampled_from(sorted(open_tags)))
        last = first + data.draw(st.integers(0, 4))
        multiple = data.draw(st.booleans())
        told = _answer(flying, first, first if multiple else last, multiple)
        open_tags -= set(range(1, first + 1) if multiple else range(first, last + 1))
        assert flying.count == len(open_tags)
        assert told == (min(open_tags) - 1 if open_tags else sum(sizes))
