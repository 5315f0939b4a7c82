"""When a closing system has written everything: looks of one thread at what others do, step by step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from kernel.contracts.message import batch_of
from kernel.contracts.thread import EngineThread
from kernel.dispatcher.route import RouteSpec
from kernel.pipes.pipe import Pipe
from kernel.pipes.water_marks import WaterMarks
from kernel.topology.lingering import Lingering

ONE, TWO, APPLICATION = range(3)
ROUTE = cast("RouteSpec", None)  # which nobody looks at here


class Thread:
    """A thread of which the test says what it does."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.holds = False
        self.ended = False
        self.asked = 0

    def pending(self) -> bool:
        return self.holds

    def join(self, timeout: float | None = None) -> bool:
        assert timeout == 0, "a look waits for nobody"
        return self.ended

    def inspect(self, what: str, answer: Callable[[Any], Any]) -> None:
        self.asked += 1


def _pipe(name: str) -> Pipe:
    def post(item: Callable[[], Any]) -> None: ...

    return Pipe(name, WaterMarks(), post_to_reader=post, post_to_writer=post)


class System:
    """Two threads, and pipes from the application to the first, from this to the second, and back."""

    def __init__(self) -> None:
        self.one, self.two = Thread(ONE), Thread(TWO)
        self.first, self.second, self.back = _pipe("first"), _pipe("second"), _pipe("back")
        pipes = [
            (APPLICATION, ONE, ROUTE, self.first),
            (ONE, TWO, ROUTE, self.second),
            (TWO, APPLICATION, ROUTE, self.back),
        ]
        threads = cast("list[EngineThread]", [self.one, self.two])
        self.lingering = Lingering(lambda: list(pipes), lambda: threads)

    def over(self) -> tuple[bool, bool]:
        """Each thread comes to the end of a turn: is it over?"""
        return self.lingering.is_over(ONE), self.lingering.is_over(TWO)


def _message() -> Any:
    return batch_of([b"x"])


def test_it_is_over_when_every_thread_has_come_to_the_end_of_a_turn() -> None:
    assert System().over() == (False, True)


def test_what_waits_or_is_held_is_waited_for_and_what_waits_for_the_application_is_not() -> None:
    system = System()
    system.back.write(_message())
    system.over()
    system.first.write(_message())
    assert system.over() == (False, False)
    system.first.take()
    system.one.holds = True
    assert system.over() == (False, False)
    system.one.holds = False
    assert system.over() == (True, True)


def test_what_a_call_has_in_its_hands_is_waited_for() -> None:
    system = System()
    system.first.write(_message())
    system.over()
    batches = system.first.take()
    assert not system.lingering.is_over(TWO)
    assert system.one.asked == 1, "it may be asleep, and has to come to the end of a turn"
    system.second.write(batches[0])
    system.second.take()
    # The second thread has come to the end of its turn, and the first one has not.
    assert not system.lingering.is_over(TWO)
    assert system.over() == (True, True)


def test_a_message_that_moves_during_a_look_is_seen() -> None:
    system = System()
    system.over()

    def moves_meanwhile() -> bool:
        system.second.write(_message())
        return False

    system.two.pending = moves_meanwhile  # type: ignore[method-assign]
    assert not system.lingering.is_over(TWO)


def test_a_thread_that_has_ended_is_not_waited_for() -> None:
    system = System()
    system.one.ended = True
    assert system.lingering.is_over(TWO)
    assert system.one.asked == 0
