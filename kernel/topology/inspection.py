"""Inspection: asks the engines of a running system what they have to show, each in its own thread."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, TypeAlias

import msgspec


class Inspection(msgspec.Struct, frozen=True, kw_only=True):
    """What the engines had to show."""

    rows: tuple[dict[str, Any], ...] = ()
    """Each begins with the name of its engine."""
    failed: tuple[str, ...] = ()
    """Which thread did not answer in time and which engine could not, in words."""


_Answer: TypeAlias = "tuple[str, list[dict[str, Any]], list[str]]"


def inspect(threads: Sequence[Any], what: str, timeout: float) -> Inspection:
    """Ask all threads (``kernel.threads.engine_thread.EngineThread``) at once; wait ``timeout`` seconds for all of them."""
    answers: SimpleQueue[_Answer] = SimpleQueue()
    waited_for = {thread.name: None for thread in threads}
    for thread in threads:
        thread.mailbox.post(partial(_ask, thread, what, answers))
    rows: list[dict[str, Any]] = []
    failed: list[str] = []
    deadline = time.monotonic() + timeout
    while waited_for:
        try:
            name, shown, failures = answers.get(timeout=max(0.0, deadline - time.monotonic()))
        except Empty:
            break
        del waited_for[name]
        rows += shown
        failed += failures
    failed += [f"thread {name} has not answered within {timeout:g} s" for name in waited_for]
    return Inspection(rows=tuple(rows), failed=tuple(failed))


def _ask(thread: Any, what: str, answers: SimpleQueue[_Answer]) -> None:
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
    answers.put((thread.name, rows, failed))
