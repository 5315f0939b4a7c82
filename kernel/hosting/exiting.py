"""Exiting: what is called as a process ends, however it was started.

A process that multiprocessing has forked ends without ``atexit``.  It calls finalizers of multiprocessing's
own, and before it waits for its threads.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
from collections.abc import Callable
from typing import Any

_REGISTERED: set[tuple[int, Callable[[], Any]]] = set()
"""Numbers of processes, and what they call."""


def call_at_exit(call: Callable[[], Any]) -> None:
    """Have ``call()`` called when this process ends, and all its threads that are no daemons have.

    However often a process asks for it, it is registered once.  A child that was forked has to ask again.
    """
    if (os.getpid(), call) in _REGISTERED:
        return
    _REGISTERED.add((os.getpid(), call))
    # Whoever is a process of multiprocessing's has imported it.
    process = sys.modules.get("multiprocessing.process")
    if process is None or process.parent_process() is None:
        atexit.register(call)
    else:
        from multiprocessing.util import Finalize

        # Negative: after the processes that this one has started, and waits for.
        Finalize(None, _call_behind_threads, (call,), exitpriority=-1)


def _call_behind_threads(call: Callable[[], Any]) -> None:
    for thread in threading.enumerate():
        if not thread.daemon and thread is not threading.current_thread():
            thread.join()
    call()
