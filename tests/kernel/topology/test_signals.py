"""A handler of a signal raises anywhere in a call that starts, changes or closes a kernel."""

from __future__ import annotations

import os
import threading

import pytest

from kernel import EnginePlan, Kernel, Plan, RoutePlan
from tests.interruptions import EVERYWHERE, everywhere, interrupted

pytestmark = pytest.mark.slow

TIMEOUT = 10.0

NET = EnginePlan(
    name="net", kind="stream", options={"mode": "listen", "address": "backend+tcp://127.0.0.1:0"}
)
NAMES = tuple(EnginePlan(name=name, kind="native") for name in ("a", "b", "c"))
ROUTE = RoutePlan(source="a", targets=("b",))


def descriptors() -> int:
    return len(os.listdir("/dev/fd"))


def test_nothing_is_left_of_a_kernel_whose_start_or_end_was_interrupted() -> None:
    def attempt(at: int) -> str:
        before = threading.active_count(), descriptors()
        kernel = Kernel(Plan(engines=(NET, *NAMES), routes=(ROUTE,)))

        def with_it() -> None:
            with kernel:
                pass

        where, _ = interrupted(with_it, at, files=EVERYWHERE)
        # A handler that raises at the beginning of ``__exit__`` is one that raises in the block, to Python.
        kernel.close(0)
        # It raises in the wait for the end, too.
        assert kernel.join(TIMEOUT), where
        assert (threading.active_count(), descriptors()) == before, where
        return where

    # What is made once.
    attempt(1 << 30)
    everywhere(attempt)


def works(kernel: Kernel, source: str, target: str) -> None:
    """Send a message."""
    with kernel.open(source) as out, kernel.open(target) as into:
        out.send(b"message", timeout=TIMEOUT)
        assert into.receive(TIMEOUT) == b"message"


def test_a_route_is_added_and_removed_or_not_and_the_plan_says_which() -> None:
    other = RoutePlan(source="a", targets=("c",))

    def attempt(at: int) -> str:
        with Kernel(Plan(engines=NAMES)) as kernel:
            where, _ = interrupted(lambda: kernel.add_route(other), at, files=EVERYWHERE)
            if other not in kernel.plan.routes:
                kernel.add_route(other)
            works(kernel, "a", "c")
            there, _ = interrupted(lambda: kernel.remove_route(other), at, files=EVERYWHERE)
            if other in kernel.plan.routes:
                kernel.remove_route(other)
            kernel.add_route(ROUTE)
            works(kernel, "a", "b")
        return where or there

    everywhere(attempt)


def test_an_engine_is_added_and_removed_or_not_and_the_plan_says_which() -> None:
    def attempt(at: int) -> str:
        with Kernel(Plan(engines=NAMES, routes=(ROUTE,))) as kernel:
            where, _ = interrupted(lambda: kernel.add_engine(NET), at, files=EVERYWHERE)
            if NET not in kernel.plan.engines:
                kernel.add_engine(NET)
            kernel.wait_running(TIMEOUT)
            assert kernel.address_of("net"), where
            there, _ = interrupted(lambda: kernel.remove_engine("net"), at, files=EVERYWHERE)
            if NET in kernel.plan.engines:
                kernel.remove_engine("net")
            kernel.add_engine(NET)
            kernel.wait_running(TIMEOUT)
            assert kernel.address_of("net"), there
            works(kernel, "a", "b")
        return where or there

    everywhere(attempt)
