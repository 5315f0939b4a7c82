"""A deadline that moves away sets no timer; one that comes nearer does."""

from __future__ import annotations

from collections.abc import Callable

from kernel.hosting.lazy_timer import LazyTimer


class _Host:
    def __init__(self) -> None:
        self.set: list[float] = []
        self.callback: Callable[[], None] = lambda: None

    def set_timer(self, when: float, callback: Callable[[], None], key: object) -> None:
        self.set.append(when)
        self.callback = callback


def test_only_nearer_deadlines_set_the_timer() -> None:
    host, calls = _Host(), []
    timer = LazyTimer(host, lambda: calls.append(1))  # type: ignore[arg-type]
    for deadline in (5.0, 6.0, None, 4.0, 4.5):
        timer.arm(deadline)
    assert host.set == [5.0, 4.0]
    host.callback()
    assert calls == [1]
    timer.arm(6.0)
    assert host.set == [5.0, 4.0, 6.0]


def test_a_cancelled_timer_is_taken_back() -> None:
    host = _Host()
    timer = LazyTimer(host, lambda: None)  # type: ignore[arg-type]
    timer.cancel()
    assert host.set == []
    timer.arm(5.0)
    timer.cancel()
    timer.arm(6.0)
    assert host.set == [5.0, None, 6.0]
