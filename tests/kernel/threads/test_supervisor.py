"""How engines are started, and tried again if they fail: on a clock that jumps, so that hours take no time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import trio
import trio.testing

from kernel.contracts.engine import EngineEvent
from kernel.dispatcher.dispatcher import Dispatcher
from kernel.hosting.backoff import BackoffOptions
from kernel.threads.guest_thread import GuestThread
from kernel.threads.supervisor import EngineState, supervise
from kernel.topology.plan import EnginePlan

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

    def set_timer(self, *_: object) -> None:
        """There is nothing."""

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


class _Starting:
    """Comes up ``after`` so many seconds; or never, and then ends if there is a ``before``."""

    def __init__(self, *, after: float | None = None, before: float | None = None) -> None:
        self._after = after
        self._before = before

    async def run(self, host: Any, *, task_status: Any) -> None:
        if self._after is not None:
            await trio.sleep(self._after)
            task_status.started("here")
        if self._before is not None:
            await trio.sleep(self._before)
            return
        await trio.sleep_forever()


def _said(engine: _Starting, *, kind: str = "slow") -> list[tuple[float, str, str]]:
    """Have a thread host an engine for an hour; return its events."""
    said: list[tuple[float, str, str]] = []

    def report(event: EngineEvent) -> None:
        said.append((trio.current_time(), event.what, event.detail))

    async def main() -> None:
        thread = GuestThread("t", Dispatcher(), report)
        async with trio.open_nursery() as nursery:
            await nursery.start(thread.serve)
            plan = EnginePlan(name="e", kind=kind) if kind else None
            thread.add("e", lambda: engine, plan=plan)  # type: ignore[arg-type,return-value]
            await trio.sleep(3600)
            thread.stop()
        thread.dispose()

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
    return said


def test_an_engine_that_does_not_say_that_it_is_up_is_named_once() -> None:
    [(when, what, detail)] = _said(_Starting())
    assert (when, what) == (10.0, "warning")
    assert detail == (
        "kind 'slow': still starting after 10 s: its method `run` has not called task_status.started(), "
        "and the system is not up before"
    )
    # One that comes up after all.
    assert [what for _, what, _ in _said(_Starting(after=60))] == ["warning", "running"]


def test_an_engine_that_comes_up_in_time_is_not_named() -> None:
    assert _said(_Starting(after=9)) == [(9.0, "running", "here")]
    # A link between processes, which is made by code, waits for the other process.
    assert _said(_Starting(), kind="") == []


def test_an_engine_that_ends_without_having_been_up_is_told_from_one_that_was() -> None:
    assert _said(_Starting(after=1, before=1))[1:] == [(2.0, "ended", "")]
    [(_, what, detail)] = _said(_Starting(before=1))
    assert (what, detail) == ("ended", "its method `run` has not called task_status.started()")
