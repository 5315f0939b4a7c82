"""``async for`` over a trio channel."""

from __future__ import annotations

import gc

import trio

from kernel.topology.plan import EnginePlan, Plan, RoutePlan, ThreadPlan
from kernel.topology.system import Kernel

PLAN = Plan(
    threads=(ThreadPlan(name="here", kind="guest"),),
    engines=(EnginePlan(name="out", kind="trio"), EnginePlan(name="in", kind="trio")),
    routes=(RoutePlan(source="out", targets=("in",)),),
)


def test_a_loop_that_is_left_early_leaves_nothing_to_be_finalized() -> None:
    """An abandoned asynchronous generator makes trio warn, and warnings are errors here."""

    async def main() -> list[bytes]:
        async with Kernel(PLAN) as kernel, kernel.open("out") as out, kernel.open("in") as incoming:
            await out.send_many([b"one", b"two"])
            got: list[bytes] = []
            with trio.fail_after(5):
                async for body in incoming:
                    got.append(bytes(body))
                    break
                async for body in incoming:  # goes on where the first has stopped
                    got.append(bytes(body))
                    break
            return got

    assert trio.run(main) == [b"one", b"two"]
    gc.collect()


def test_the_loop_ends_when_the_kernel_is_closed() -> None:
    async def main() -> None:
        async with Kernel(PLAN) as kernel, kernel.open("in") as incoming:
            kernel.close()
            with trio.fail_after(5):
                async for _ in incoming:
                    pass

    trio.run(main)
