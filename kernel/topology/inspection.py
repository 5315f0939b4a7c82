"""Inspection: asks the engines of a running system what they have to show, each in its own thread."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any

import msgspec

from kernel.contracts.engine import Host
from kernel.contracts.thread import EngineThread, Rows, Shown


class Inspection(msgspec.Struct, frozen=True, kw_only=True):
    """What the engines had to show."""

    rows: tuple[dict[str, Any], ...] = ()
    """Each begins with the name of its engine."""
    failed: tuple[str, ...] = ()
    """Which thread did not answer in time and which engine could not, in words."""


def inspect(threads: Sequence[EngineThread], what: str, timeout: float) -> Inspection:
    """Ask all threads at once; wait ``timeout`` seconds for all of them.

    Not for a thread that is asked itself: see ``inspect_soon``.
    """
    answers: SimpleQueue[Shown] = SimpleQueue()
    collected = _Collected(threads, timeout)
    for thread in threads:
        thread.inspect(what, answers.put)
    deadline = time.monotonic() + timeout
    while collected.waited_for:
        try:
            collected.add(answers.get(timeout=max(0.0, deadline - time.monotonic())))
        except Empty:
            break
    return collected.inspection()


def inspect_soon(
    threads: Sequence[EngineThread],
    what: str,
    timeout: float,
    host: Host,
    on_answer: Callable[[Inspection], Any],
) -> None:
    """Ask all threads; call back in the thread of ``host``, which is the caller's, in ``timeout`` seconds at the latest."""
    collected = _Collected(threads, timeout)

    def done() -> None:
        host.set_timer(None, done, collected)
        collected.over = True
        on_answer(collected.inspection())

    def add(answer: Shown) -> None:
        if not collected.over:
            collected.add(answer)
            if not collected.waited_for:
                done()

    host.set_timer(host.now() + timeout, done, collected)
    for thread in threads:
        thread.inspect(what, lambda shown: host.post(partial(add, shown)))


class _Collected:
    """The answers that have come so far."""

    def __init__(self, threads: Sequence[EngineThread], timeout: float) -> None:
        self.waited_for = {thread.name: None for thread in threads}
        self.over = False
        self._timeout = timeout
        self._rows: Rows = []
        self._failed: list[str] = []

    def add(self, answer: Shown) -> None:
        name, rows, failed = answer
        del self.waited_for[name]
        self._rows += rows
        self._failed += failed

    def inspection(self) -> Inspection:
        late = [f"thread {name} has not answered within {self._timeout:g} s" for name in self.waited_for]
        return Inspection(rows=tuple(self._rows), failed=(*self._failed, *late))
