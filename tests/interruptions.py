"""Handlers of signals that do something at each place in the code of leases where CPython may run one."""

from __future__ import annotations

import dis
import sys
from collections.abc import Callable
from functools import cache
from types import CodeType, FrameType
from typing import Any

from kernel.hosting import datagram_wire, lease, stream_half
from plugins.engines.pgm import lone_halves
from plugins.engines.sctp import lone_half
from plugins.protocols.sctp import lone

FILES = {module.__file__ for module in (lease, stream_half, datagram_wire, lone_halves, lone_half, lone)}
"""The code of leases."""


class Interrupted(BaseException):
    """What a handler of a signal raises."""


@cache
def looks(code: CodeType) -> frozenset[int]:
    """Return the offsets before which CPython runs handlers: behind calls, loops and the beginning."""
    found: set[int] = set()
    looked = False
    for each in dis.get_instructions(code):
        if looked:
            found.add(each.offset)
        looked = each.opname.startswith("CALL") or each.opname in ("RESUME", "JUMP_BACKWARD")
    return frozenset(found)


def _raise() -> None:
    raise Interrupted


class Handler:
    """Does something at the n-th place in the code of leases where a handler of a signal could run."""

    def __init__(self, at: int, do: Callable[[], Any]) -> None:
        self.at = at
        self.do = do
        self.raised = ""

    def __call__(self, frame: FrameType, event: str, _: Any) -> Any:
        if frame.f_code.co_filename not in FILES:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode" and frame.f_lasti in looks(frame.f_code) and not self.raised:
            self.at -= 1
            if self.at < 0:
                self.raised = f"{frame.f_code.co_name}:{frame.f_lineno}"
                self.do()
        return self


def interrupted(call: Callable[[], Any], at: int, do: Callable[[], Any] = _raise) -> tuple[str, Any]:
    """Call with a handler that runs at place ``at``; return where it ran, and what the call returned."""
    handler = Handler(at, do)
    before = sys.gettrace()
    sys.settrace(handler)
    try:
        result = call()
    except Interrupted:
        result = None
    finally:
        sys.settrace(before)
    return handler.raised, result
