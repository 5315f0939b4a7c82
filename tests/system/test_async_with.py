"""``async with kernel``: however it is left, nothing stays behind and nothing is hidden."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from kernel.contracts.errors import PlanError
from kernel.testing.leaks import Leaks
from kernel.topology.plan import EnginePlan, Plan, RoutePlan, ThreadPlan
from kernel.topology.system import Kernel

GUEST = ThreadPlan(name="here", kind="guest")
POLL = ThreadPlan(name="there")
LISTENER = EnginePlan(
    name="link", kind="stream", options={"mode": "listen", "address": "backend+tcp://127.0.0.1:0"}
)
TRIO_WORKERS = "Trio thread"  # trio's own, which it keeps for ten seconds


def _plan(*threads: ThreadPlan) -> Plan:
    app = EnginePlan(name="app", kind="trio")
    return Plan(
        threads=threads, engines=(LISTENER, app), routes=(RoutePlan(source="link", targets=("app",)),)
    )


@pytest.fixture(params=[(GUEST,), (POLL,), (GUEST, POLL)], ids=["guest", "poll", "both"])
def plan(request: pytest.FixtureRequest) -> Iterator[Plan]:
    leaks = Leaks()
    yield _plan(*request.param)
    assert leaks.found(but=TRIO_WORKERS) == []


def test_the_end_of_the_block_leaves_nothing(plan: Plan) -> None:
    async def main() -> None:
        async with Kernel(plan) as kernel, kernel.open("app"):
            await trio.lowlevel.checkpoint()

    trio.run(main)


def test_an_error_is_passed_on_as_it_is(plan: Plan) -> None:
    async def main() -> None:
        async with Kernel(plan) as kernel, kernel.open("app"):
            raise ValueError("the application's own")

    with pytest.raises(ValueError, match="own"):
        trio.run(main)


def test_cancellation_leaves_nothing(plan: Plan) -> None:
    async def main() -> bool:
        with trio.move_on_after(0.05) as scope:
            async with Kernel(plan) as kernel, kernel.open("app") as app:
                await app.receive()
        return scope.cancelled_caught

    assert trio.run(main)


def test_cancellation_on_the_way_in_leaves_nothing(plan: Plan) -> None:
    async def main() -> bool:
        with trio.CancelScope() as scope:
            scope.cancel()
            async with Kernel(plan):
                await trio.lowlevel.checkpoint()
        return scope.cancelled_caught

    assert trio.run(main)


def test_guests_alone_need_no_thread_to_be_joined() -> None:
    before = set(threading.enumerate())  # a worker of trio's may be left of an earlier test

    async def main() -> set[threading.Thread]:
        async with Kernel(_plan(GUEST)):
            pass
        return set(threading.enumerate()) - before

    assert trio.run(main) == set()


def test_without_async_with_a_plan_with_guests_is_refused() -> None:
    """Its engines would never start, and nothing would be said."""
    kernel = Kernel(_plan(POLL, GUEST))
    with pytest.raises(
        PlanError, match=r"^thread 'here' is of kind 'guest': it runs in .* use kind 'poll' here$"
    ):
        kernel.start()
    with pytest.raises(PlanError, match="'here'"), kernel:
        pass


def test_the_refusal_says_where_the_file_has_it(tmp_path: Path) -> None:
    file = tmp_path / "system.toml"
    file.write_text('\n[threads.here]\nkind = "guest"\n[engines.app]\nkind = "trio"\n')
    with pytest.raises(PlanError, match=re.escape(f"{file}:2: thread 'here'")):
        Kernel.from_file(file).start()


def test_a_running_kernel_neither_takes_nor_loses_guests() -> None:
    other = ThreadPlan(name="other", kind="guest")

    async def main() -> None:
        async with Kernel(_plan(GUEST)) as kernel:
            with pytest.raises(PlanError, match="'other'"):
                kernel.add_thread(other)
            with pytest.raises(PlanError, match="'other'"):
                kernel.apply(_plan(GUEST, other))
            with pytest.raises(PlanError, match="'here'"):
                kernel.apply(_plan(POLL))
            assert kernel.plan.threads == (GUEST,)
            assert [engine.name for engine in kernel.plan.engines] == ["link", "app"]

    trio.run(main)
