"""Operation: has one engine of a running system do something, in the engine's own thread."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any

from kernel.contracts.errors import KernelError


def operate(threads: Sequence[Any], engine: str, what: str, argument: Any, timeout: float) -> Any:
    """Return what came of it; ``KernelError`` if the engine is not there, cannot do it, refuses, or takes too long."""
    for thread in threads:
        for state in list(thread.states.values()):
            if state.name == engine:
                return _ask(thread, state, what, argument, timeout)
    raise KernelError(f"there is no engine {engine!r}")


def _ask(thread: Any, state: Any, what: str, argument: Any, timeout: float) -> Any:
    do = getattr(state.engine, "operate", None)
    if do is None or state.state != "running":
        raise KernelError(f"engine {state.name!r} ({state.state}) does nothing that it is asked for")
    answers: SimpleQueue[tuple[Any, Exception | None]] = SimpleQueue()
    thread.mailbox.post(partial(_do, do, what, argument, answers))
    try:
        answer, failure = answers.get(timeout=timeout)
    except Empty:
        raise KernelError(f"engine {state.name!r} has not answered within {timeout:g} s") from None
    if failure is not None:
        raise KernelError(f"engine {state.name!r}: {failure}") from failure
    return answer


def _do(do: Callable[[str, Any], Any], what: str, argument: Any, answers: SimpleQueue[Any]) -> None:
    """In the engine's thread.  What it raises is an answer: an operator's mistake takes no engine down."""
    try:
        answers.put((do(what, argument), None))
    except Exception as error:
        answers.put((None, error))
