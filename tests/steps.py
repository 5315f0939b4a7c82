"""How much work something is, without a clock."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


def steps(work: Callable[[], Any]) -> int:
    """Return how many instructions of Python ``work`` takes. What is done in C counts once, however long."""
    count = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal count
        frame.f_trace_lines, frame.f_trace_opcodes = False, True
        count += event == "opcode"
        return trace

    before = sys.gettrace()
    # Python 3.13 tells of no instructions until a frame has asked for them before the call.
    sys._getframe().f_trace_opcodes = True
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return count
