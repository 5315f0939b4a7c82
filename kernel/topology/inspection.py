"""Inspection: asks the engines of a running system what they have to show, each in its own thread."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, TypeAlias

import msgspec

from kernel.contracts.engine import Host


class Inspection(msgspec.Struct, frozen=True, kw_only=True):
    """What the engines had to show."""

    rows: tuple[dict[str, Any], ...] = ()
    """Each begins with the name of its engine."""
    failed: tuple[str, ...] = ()
    """Which thread did not answer in time and which engine could not, in words."""


_Answer: TypeAlias = "tuple[str, list[dict[str, Any]], list[str]]"


def inspect(threads: Sequence[Any], what: str, timeout: float) -> Inspection:
    """Ask all threads (``kernel.threads.engine_thread.EngineThread``) at once; wait ``timeout`` seconds for all of them.

    Not for a thread that is asked itself: see ``inspect_soon``.
    """
    answers: SimpleQueue[_Answer] = SimpleQueue()
    collected = _Collected(threads, timeout)
    for thread in threads:
        thread.mailbox.post(partial(_ask, thread, what, answers.put))
    deadline = time.monotonic() + timeout
    while collected.waited_for:
        try:
            collected.add(answers.get(timeout=max(0.0, deadline - time.monotonic())))
        except Empty:
            break
    return collected.inspection()


def inspect_soon(
    threads: Sequence[Any],
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

    def add(answer: _Answer) -> None:
        if not collected.over:
            collected.add(answer)
            if not collected.waited_for:
                done()

    host.set_timer(host.now() + timeout, done, collected)
    for thread in threads:
        thread.mailbox.post(partial(_ask, thread, what, lambda answer: host.post(partial(add, answer))))


class _Collected:
    """The answers that have come so far."""

    def __init__(self, threads: Sequence[Any], timeout: float) -> None:
        self.waited_for = {thread.name: None for thread in threads}
        self.over = False
        self._timeout = timeout
        self._rows: list[dict[str, Any]] = []
        self._failed: list[str] = []

    def add(self, answer: _Answer) -> None:
        name, rows, failed = answer
        del self.waited_for[name]
        self._rows += rows
        self._failed += failed

    def inspection(self) -> Inspection:
        late = [f"thread {name} has not answered within {self._timeout:g} s" for name in self.waited_for]
        return Inspection(rows=tuple(self._rows), failed=(*self._failed, *late))


def _ask(thread: Any, what: str, reply: Callable[[_Answer], Any]) -> None:
    """Ask the engines of this thread.  Looking must never take an engine down: what it raises is an answer, too."""
    rows: list[dict[str, Any]] = []
    failed: list[str] = []
    for state in list(thread.states.values()):
        show = getattr(state.engine, "inspect", None)
        if show is None or state.state != "running":
            continue
        try:
            rows += [{"engine": state.name, **row} for row in show(what)]
        except Exception as error:
            failed.append(f"engine {state.name}: {type(error).__name__}: {error}")
    reply((thread.name, rows, failed))
