"""Runs a blocking call in a thread that ends with the call."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeVar

import trio

T = TypeVar("T")


async def in_thread(function: Callable[..., T], *arguments: Any) -> T:
    """Call ``function(*arguments)`` in a new thread; return its result, or raise its exception.

    A cancelled caller waits until the call has returned.  ``trio.to_thread`` is not used because its threads
    stay for ten seconds after their last call, so that an engine would leave threads behind.
    """
    token = trio.lowlevel.current_trio_token()
    done = trio.Event()
    result: list[T] = []
    failure: list[BaseException] = []

    def work() -> None:
        try:
            result.append(function(*arguments))
        except BaseException as error:
            failure.append(error)
        # Also after a failure, or the caller would wait for ever.
        token.run_sync_soon(done.set)

    thread = threading.Thread(target=work, name=getattr(function, "__qualname__", "kernel call"), daemon=True)
    thread.start()
    # A disk operation cannot be interrupted.  Without the shield a cancelled engine would close files that
    # the thread still uses.
    with trio.CancelScope(shield=True):
        await done.wait()
    # ``done`` is set by the thread itself, which has a few steps to go then.
    thread.join()
    if failure:
        raise failure[0]
    return result[0]
