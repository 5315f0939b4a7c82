"""Inspection: asks the engines of a running system for the rows of a table, each in its own thread.

An engine belongs to its thread, so only that thread may read it.  The request goes through the thread's
mailbox, and each thread answers once, when it takes its next turn.  A thread that is busy for longer than the
time limit is named in the result, and its late answer is dropped.

There are two forms, by who asks.  ``inspect`` waits, and is for threads that host no engines.  An engine that
waited would wait for its own thread too, until the time is over: ``inspect_soon`` calls back instead.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any

import msgspec

from kernel.contracts.durations import in_seconds
from kernel.contracts.engine import Host
from kernel.contracts.thread import EngineThread, Rows, Shown


class Inspection(msgspec.Struct, frozen=True, kw_only=True):
    """The answers of all engines."""

    rows: tuple[dict[str, Any], ...] = ()
    """The rows; each begins with the name of its engine."""
    failed: tuple[str, ...] = ()
    """A sentence for each thread that did not answer in time and each engine that could not answer."""


def inspect(threads: Sequence[EngineThread], what: str, timeout: float) -> Inspection:
    """Ask all threads at the same time; wait at most ``timeout`` seconds for their answers.

    Not for a thread that is asked, which would wait for itself: see ``inspect_soon``.
    """
    answers: SimpleQueue[Shown] = SimpleQueue()
    collected = _Collected(threads, timeout)
    # All are asked before the first answer is waited for: together they take as long as the slowest.
    for thread in threads:
        thread.inspect(what, answers.put)
    deadline = time.monotonic() + timeout
    while collected.waited_for:
        try:
            # Not below 0, which ``get`` refuses.  With 0 it still returns what has arrived by now.
            collected.add(answers.get(timeout=max(0.0, deadline - time.monotonic())))
        # Late answers go into a queue that nobody reads any more.
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
    """Ask all threads; call ``on_answer`` in the thread of ``host``, after ``timeout`` seconds at the latest.

    The caller has to be in the thread of ``host``.
    """
    collected = _Collected(threads, timeout)

    # Both functions run in the thread of ``host``, so they need no lock.  ``collected`` is also the key of
    # the timer: each request has one of its own.
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
    # ``host.post``, because a thread calls back in its own turn.
    for thread in threads:
        thread.inspect(what, lambda shown: host.post(partial(add, shown)))


class _Collected:
    """The answers that have come so far."""

    def __init__(self, threads: Sequence[EngineThread], timeout: float) -> None:
        # A dict as an ordered set: late threads are named in the order of the system.
        self.waited_for = {thread.name: None for thread in threads}
        self.over = False
        self._timeout = timeout
        self._rows: Rows = []
        self._failed: list[str] = []

    def add(self, answer: Shown) -> None:
        name, rows, failed = answer
        # It is there: a thread answers once (``EngineThread.inspect``).
        del self.waited_for[name]
        self._rows += rows
        self._failed += failed

    def inspection(self) -> Inspection:
        late = [
            f"thread {name} has not answered within {in_seconds(self._timeout)}" for name in self.waited_for
        ]
        return Inspection(rows=tuple(self._rows), failed=(*self._failed, *late))
