"""What one more socket costs does not grow with the number of those that are open."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import ExitStack
from types import FrameType
from typing import Any

from kernel.sockets import Context

FEW, MANY = 10, 150


def calls_of(do: Callable[[], Any]) -> int:
    """Return how many functions of Python this thread enters meanwhile."""
    found = 0

    def count(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal found
        found += event == "call"

    # A debugger or a measurement of coverage may have set one.
    before = sys.getprofile()
    sys.setprofile(count)
    try:
        do()
    finally:
        sys.setprofile(before)
    return found


def least_calls(do: Callable[[], Any]) -> int:
    """Return the fewest of several times: a wait for the kernel's thread may take another turn."""
    return min(calls_of(do) for _ in range(5))


def test_making_and_closing_a_socket_does_not_look_at_others() -> None:
    with ExitStack() as stack:
        context = stack.enter_context(Context())

        def make(place: str) -> None:
            pull = context.socket("PULL", linger=0)
            pull.bind(place)
            stack.callback(pull.close)

        def come_and_go() -> None:
            with context.socket("PUSH", linger=0) as push:
                push.connect("inproc://0")

        for number in range(FEW):
            make(f"inproc://{number}")
        few = least_calls(come_and_go)
        for number in range(FEW, MANY):
            make(f"inproc://{number}")
        # Some calls depend on what the kernel's thread does meanwhile, but not one for each socket.
        assert least_calls(come_and_go) < few + (MANY - FEW) // 2


def test_sockets_that_were_closed_are_forgotten() -> None:
    with Context() as context:
        for _ in range(100):
            context.socket("PUSH").close(0)
        assert len(context.kernel._apis) <= 2
