"""The loop of a thread: its timers."""

from __future__ import annotations

import tracemalloc
from functools import partial

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from kernel.pipes.mailbox import Mailbox
from kernel.threads.loop import Loop


@pytest.mark.slow
def test_timers_that_are_set_again_or_cancelled_leave_nothing_behind_and_each_fires_once() -> None:
    clock = MockClock()
    fired: list[int] = []
    errors: list[BaseException] = []

    async def main() -> None:
        loop = Loop(Mailbox(), own_thread=False)
        tracemalloc.start()
        for moment in range(50_000):
            loop.set_timer(3600.0 + moment, partial(fired.append, moment), moment % 3, errors.append)
            # Cancelled at once, as the timeout of what is soon over.
            loop.set_timer(3600.0, partial(fired.append, -1), "other", errors.append)
            loop.set_timer(None, print, "other", errors.append)
        kept, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        # An entry takes some 100 bytes.
        assert kept < 1_000_000
        clock.jump(100_000.0)
        loop.fire_timers()
        loop.close()
        loop.mailbox.bell.close()

    trio.run(main, clock=clock)
    assert fired == [49_997, 49_998, 49_999]
    assert not errors


def test_a_timer_that_a_task_sets_while_the_loop_sleeps_as_another_one_fires_in_time() -> None:
    """In the application's trio run (``async with kernel``): nothing else would wake the loop for it."""
    clock = MockClock(autojump_threshold=0)
    fired: list[tuple[str, float]] = []

    async def main() -> None:
        loop = Loop(Mailbox(), own_thread=False)

        def fire(name: str) -> None:
            fired.append((name, clock.current_time()))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(loop.run)
            loop.set_timer(1000.0, partial(fire, "late"), "late", _raise)
            await wait_all_tasks_blocked()
            loop.set_timer(10.0, partial(fire, "soon"), "soon", _raise)
            loop.set_timer(2000.0, loop.stop, "stop", _raise)
            await trio.sleep(20.0)
            loop.set_timer(30.0, partial(fire, "again"), "again", _raise)
        loop.close()
        loop.mailbox.bell.close()

    trio.run(main, clock=clock)
    assert fired == [("soon", 10.0), ("again", 30.0), ("late", 1000.0)]


def test_what_a_task_posts_to_its_own_thread_wakes_the_loop_that_sleeps_as_another_one() -> None:
    """As the pipe between two engines of the application's trio run does, when a task of one of them sends."""
    mailbox = Mailbox()
    post = mailbox.poster_to(mailbox)

    async def main() -> None:
        loop = Loop(mailbox, own_thread=False)
        with trio.fail_after(1):  # of a clock that jumps to it when all tasks sleep
            async with trio.open_nursery() as nursery:
                nursery.start_soon(loop.run)
                await wait_all_tasks_blocked()
                post(loop.stop)
        loop.close()
        mailbox.bell.close()

    trio.run(main, clock=MockClock(autojump_threshold=0.05))


def _raise(error: Exception) -> None:
    raise error
