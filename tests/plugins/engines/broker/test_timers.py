"""Timers: what the broker calls at a time, besides its queues."""

from __future__ import annotations

import tracemalloc

import pytest

from plugins.engines.broker.broker import Broker
from plugins.engines.broker.timer import Timer


def make_timer() -> tuple[Broker, Timer, list[float]]:
    broker = Broker()
    calls: list[float] = []
    return broker, Timer(broker, calls.append), calls


def test_a_timer_calls_once_at_its_time() -> None:
    broker, timer, calls = make_timer()
    timer.set(5.0)
    assert broker.next_deadline() == 5.0
    broker.handle_timeout(4.9)
    assert calls == []
    broker.handle_timeout(5.0)
    broker.handle_timeout(6.0)
    assert calls == [5.0]


def test_a_timer_may_be_set_to_a_later_time_and_to_an_earlier_one() -> None:
    broker, timer, calls = make_timer()
    timer.set(5.0)
    timer.set(8.0)
    broker.handle_timeout(7.0)
    assert calls == []
    timer.set(7.5)
    broker.handle_timeout(7.5)
    assert calls == [7.5]
    broker.handle_timeout(9.0)
    assert calls == [7.5]


def test_a_timer_that_is_cancelled_does_not_call() -> None:
    broker, timer, calls = make_timer()
    timer.set(5.0)
    timer.cancel()
    broker.handle_timeout(5.0)
    assert calls == []


def test_a_timer_may_be_set_again_while_it_calls() -> None:
    broker = Broker()
    calls: list[float] = []

    def call(now: float) -> None:
        calls.append(now)
        if len(calls) < 3:
            timer.set(now + 1)

    timer = Timer(broker, call)
    timer.set(1.0)
    for now in (1.0, 2.0, 3.0, 4.0):
        broker.handle_timeout(now)
    assert calls == [1.0, 2.0, 3.0]


@pytest.mark.slow
def test_timers_that_are_set_again_and_again_leave_nothing_behind_and_each_calls_once() -> None:
    broker = Broker()
    calls: list[tuple[int, float]] = []
    timers = [Timer(broker, lambda now, at=at: calls.append((at, now))) for at in range(3)]  # type: ignore[misc]
    tracemalloc.start()
    for moment in range(50_000):
        timers[moment % 3].set(86_400.0 + moment)
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    # An entry takes some 100 octets.
    assert kept < 1_000_000
    broker.handle_timeout(200_000.0)
    assert sorted(calls) == [(number, 200_000.0) for number in range(3)]


def test_timers_that_still_count_stay_when_others_are_removed() -> None:
    broker = Broker()
    calls: list[int] = []
    timers = [Timer(broker, lambda _, at=at: calls.append(at)) for at in range(5000)]  # type: ignore[misc]
    for number, timer in enumerate(timers):
        timer.set(9_999.0)
        timer.set(float(number))
        if number % 2:
            timer.cancel()
    broker.handle_timeout(10_000.0)
    assert calls == list(range(0, 5000, 2))
