"""How much work something is, without a clock."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


def steps(work: Callable[[], Any]) -> int:
    """Return how many instructions of Python ``work`` takes. What is done in C counts once, however long.

    From Python 3.12 on those of a function count from its second call on: compare large numbers only.
    """
    return _traced(work, "opcode")


def lines(work: Callable[[], Any]) -> int:
    """Return how many lines of Python ``work`` runs."""
    return _traced(work, "line")


def _traced(work: Callable[[], Any], wanted: str) -> int:
    count = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal count
        frame.f_trace_lines, frame.f_trace_opcodes = wanted == "line", wanted == "opcode"
        count += event == wanted
        return trace

    # A debugger or a measurement of coverage may have set one.
    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return count
