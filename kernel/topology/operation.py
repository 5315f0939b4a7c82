"""Operation: calls an operation of an engine in a running system, in the engine's own thread.

As for ``inspection.py`` there is a form that waits, and one that calls back for those who are engines.  A
request that has taken too long is not cancelled: the engine may be in the middle of it.  Its answer is
dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any

from kernel.contracts.api import never_told
from kernel.contracts.durations import in_seconds
from kernel.contracts.engine import Host
from kernel.contracts.errors import KernelClosed, KernelError
from kernel.contracts.thread import Done, EngineThread


def operate(
    threads: Sequence[EngineThread],
    engine: str,
    what: str,
    argument: Any,
    timeout: float,
    waiting: Callable[[Callable[[], Any]], AbstractContextManager[None]] = never_told,
) -> Any:
    """Wait for the operation; return its result.

    Raises ``KernelError`` if the engine does not exist, has no such operation, refuses, or takes longer than
    ``timeout`` seconds.  Not for the thread of an engine, which would wait for itself: see ``operate_soon``.

    ``waiting``: ``Waits.waiting`` of the kernel.
    """
    # Of this call alone: a late answer goes into a queue that nobody reads any more.
    answers: SimpleQueue[Done] = SimpleQueue()
    closed = KernelClosed(f"engine {engine!r} has not answered before the kernel was closed")
    _ask(threads, engine, what, argument, answers.put)
    try:
        with waiting(partial(answers.put, (None, closed))):
            answer, failure = answers.get(timeout=timeout)
    except Empty:
        raise _late(engine, timeout) from None
    if failure is closed:
        raise closed
    if failure is not None:
        raise _refusal(engine, failure) from failure
    return answer


def operate_soon(
    threads: Sequence[EngineThread],
    engine: str,
    what: str,
    argument: Any,
    timeout: float,
    host: Host,
    on_done: Callable[[Any, KernelError | None], Any],
) -> None:
    """Start the operation.

    Call ``on_done`` in the thread of ``host``, after ``timeout`` seconds at the latest.

    The caller has to be in the thread of ``host``.
    """
    # The answer, the time limit and an engine that does not exist compete to call ``on_done``: the first one
    # does.  All of them run in the thread of ``host``.
    over = False
    key = object()

    def done(answer: Any, failure: KernelError | None) -> None:
        nonlocal over
        if not over:
            over = True
            host.set_timer(None, _nothing, key)
            on_done(answer, failure)

    def add(answer: Any, failure: Exception | None) -> None:
        done(answer, None if failure is None else _refusal(engine, failure))

    host.set_timer(host.now() + timeout, partial(done, None, _late(engine, timeout)), key)
    try:
        _ask(threads, engine, what, argument, lambda answer: host.post(partial(add, *answer)))
    except KernelError as error:
        # In a later turn, as every other answer: the caller need not expect a callback inside its call.
        host.soon(partial(done, None, error))


def home_of(threads: Sequence[EngineThread], engine: str) -> EngineThread:
    """Return the thread of an engine; ``KernelError`` if there is no such engine."""
    thread = next((thread for thread in threads if engine in thread.states), None)
    if thread is None:
        raise KernelError(f"there is no engine {engine!r}")
    return thread


def _ask(
    threads: Sequence[EngineThread], engine: str, what: str, argument: Any, reply: Callable[[Done], Any]
) -> None:
    """Post the request to the engine's thread; ``KernelError`` if there is no such engine."""
    # The engine may be removed between the look and the call; then ``EngineThread.operate`` raises the error.
    home_of(threads, engine).operate(engine, what, argument, reply)


def _late(engine: str, timeout: float) -> KernelError:
    return KernelError(f"engine {engine!r} has not answered within {in_seconds(timeout)}")


def _refusal(engine: str, failure: Exception) -> KernelError:
    error = KernelError(f"engine {engine!r}: {failure}")
    # ``operate_soon`` does not raise it, so that ``raise ... from`` cannot set the cause.
    error.__cause__ = failure
    return error


def _nothing() -> None:
    """Do nothing.  A timer is removed by its key, and the call needs a callback."""
