"""A call that blocks, in a thread of its own that is gone when the call has returned."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeVar

import trio

T = TypeVar("T")


async def in_thread(function: Callable[..., T], *arguments: Any) -> T:
    """Return what ``function(*arguments)`` returns, or raise what it raises.  Cancellation waits for its end.

    Trio's own threads would stay for ten seconds, in case of more work.
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
        token.run_sync_soon(done.set)

    thread = threading.Thread(target=work, name=getattr(function, "__qualname__", "journal"), daemon=True)
    thread.start()
    with trio.CancelScope(shield=True):
        await done.wait()
    thread.join()
    if failure:
        raise failure[0]
    return result[0]
