"""Handlers of signals that do something at each place in the code of the kernel where CPython may run one."""

from __future__ import annotations

import dis
import signal
import sys
from collections.abc import Callable, Container, Sequence
from functools import cache, partial
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from kernel.contracts.message import Batch
from kernel.hosting import datagram_wire, lease, stream_half
from plugins.engines.pgm import lone_halves
from plugins.engines.sctp import lone_half
from plugins.protocols.sctp import lone

LEASES = frozenset(
    module.__file__ for module in (lease, stream_half, datagram_wire, lone_halves, lone_half, lone)
)
"""The code of leases."""


class _Below:
    """The files in some folders."""

    def __init__(self, *folders: Path) -> None:
        self._beginnings = tuple(f"{folder}/" for folder in folders)

    def __contains__(self, file: object) -> bool:
        return isinstance(file, str) and file.startswith(self._beginnings)


EVERYWHERE = _Below(*(Path(__file__).parents[1] / folder for folder in ("kernel", "plugins")))
"""All code of the project."""


class Interrupted(BaseException):
    """What a handler of a signal raises."""


@cache
def looks(code: CodeType) -> frozenset[int]:
    """Return the offsets before which CPython runs handlers: behind calls, loops and the beginning."""
    found: set[int] = set()
    looked = False
    for each in dis.get_instructions(code):
        if looked or each.opname == "JUMP_BACKWARD":
            found.add(each.offset)
        # Where a generator goes on behind ``yield from``, or a coroutine behind ``await``, there is no look.
        begins = each.opname == "RESUME" and each.arg is not None and each.arg & 3 < 2
        calls = each.opname.startswith("CALL") and "INTRINSIC" not in each.opname
        looked = calls or begins
    return frozenset(found)


class Handler:
    """Does something at the n-th place in some code where a handler of a signal could run."""

    def __init__(self, at: int, do: Callable[[], Any], files: Container[str | None]) -> None:
        self.at = at
        self.do = do
        self.files = files
        self.ran = ""
        self._returned_to: FrameType | None = None

    def __call__(self, frame: FrameType, event: str, _: Any) -> Any:
        if frame.f_code.co_filename not in self.files:
            return None
        frame.f_trace_opcodes = True
        if event == "return":
            self._returned_to = frame.f_back
        if event != "opcode":
            return self
        returned, self._returned_to = self._returned_to, None
        # A call of a function written in Python is no call of C: CPython does not look behind it.
        if returned is frame and self.files is not LEASES:
            return self
        if frame.f_lasti in looks(frame.f_code) and not self.ran:
            self.at -= 1
            if self.at < 0:
                self.ran = f"{frame.f_code.co_name}:{frame.f_lineno}"
                self.do()
        return self


def _raise(*_: object) -> None:
    raise Interrupted


def interrupted(
    call: Callable[[], Any],
    at: int,
    do: Callable[[], Any] | None = None,
    files: Container[str | None] = LEASES,
) -> tuple[str, Any]:
    """Call with a signal at place ``at``, whose handler does something; return where, and what was returned.

    Without ``do`` it raises ``Interrupted``, and nothing is returned then.  The handler itself runs later
    where handlers are held (``kernel.hosting.uninterrupted``).
    """
    run: Callable[[], Any] = _raise if do is None else do
    handler = Handler(at, partial(signal.raise_signal, signal.SIGINT), files)
    before = sys.gettrace()
    handler_before = signal.signal(signal.SIGINT, lambda *_: run())
    sys.settrace(handler)
    try:
        result = call()
    except Interrupted:
        result = None
    finally:
        sys.settrace(before)
        signal.signal(signal.SIGINT, handler_before)
    return handler.ran, result


def everywhere(attempt: Callable[[int], str]) -> None:
    """Have a signal at one place after the other, until the call ends before the next one.

    ``attempt`` has it at place ``at``, and returns where that was; empty: there is no such place.
    """
    at = 0
    while attempt(at):
        at += 1
    assert at


def bodies(received: Any) -> list[bytes]:
    """Return the messages of what a call has returned, their parts joined."""
    if received is None:
        return []
    if isinstance(received, Batch):
        received = received.bodies
    if not isinstance(received, Sequence) or isinstance(received, bytes):
        return [bytes(received)]
    return [b"".join(body) if isinstance(body, tuple) else bytes(body) for body in received]
