"""How an engine that fails is tried again: on a clock that jumps, so that hours take no time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import trio
import trio.testing

from kernel.contracts.engine import EngineEvent
from kernel.hosting.backoff import BackoffOptions
from kernel.threads.supervisor import EngineState, supervise

POLICY = BackoffOptions(first=1, most=8, jitter=0)


class _Failing:
    """Comes up at once and fails ``runs_for`` seconds later."""

    def __init__(self, runs_for: float | None) -> None:
        self._runs_for = runs_for

    async def run(self, host: Any, *, task_status: Any) -> None:
        if self._runs_for is not None:
            task_status.started("here")
            await trio.sleep(self._runs_for)
        raise RuntimeError("no")


class _NoHost:
    failure = None

    def release(self) -> None:
        """There is nothing."""


def _waits(runs_for: Callable[[int], float | None], lives: int) -> list[float]:
    """Let an engine live; return the waits between its lives."""
    waits: list[float] = []
    state = EngineState("e")

    def make_engine() -> Any:
        return _Failing(runs_for(len(waits)))

    async def main() -> None:
        with trio.CancelScope() as scope:

            def report(event: EngineEvent) -> None:
                if event.next_try is not None:
                    waits.append(event.next_try)
                    if len(waits) == lives:
                        scope.cancel()

            await supervise(state, make_engine, lambda _: _NoHost(), report, POLICY)  # type: ignore[arg-type,return-value]

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
    assert state.failures == lives
    return waits


def test_an_engine_that_never_comes_up_waits_longer_each_time() -> None:
    assert _waits(lambda _: None, 6) == [1, 2, 4, 8, 8, 8]


def test_an_engine_that_comes_up_and_fails_at_once_has_not_succeeded() -> None:
    assert _waits(lambda _: 0, 6) == [1, 2, 4, 8, 8, 8]


def test_an_engine_that_ran_for_longer_than_its_wait_begins_anew() -> None:
    assert _waits(lambda life: 5 if life == 3 else 0, 6) == [1, 2, 4, 1, 2, 4]


def test_an_engine_that_ran_for_less_than_its_wait_does_not() -> None:
    assert _waits(lambda life: 3 if life == 3 else 0, 5) == [1, 2, 4, 8, 8]


def test_an_engine_that_runs_for_long_waits_shortly_every_time() -> None:
    assert _waits(lambda _: 3600, 3) == [1, 1, 1]
