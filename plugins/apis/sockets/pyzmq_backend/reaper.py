"""Reaper: closes what was collected as garbage, in a thread of its own, as libzmq's does.

The collector runs in any thread between any two steps, also in one that holds a lock of the kernel.  If
``__del__`` closed a socket there, it would wait for that lock for ever.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

_log = logging.getLogger(__name__)


class Reaper:
    """A thread that does one thing after the other."""

    def __init__(self) -> None:
        # Its ``put`` takes no lock, so it may be called by ``__del__``.
        self._wanted: SimpleQueue[Callable[[], Any]] = SimpleQueue()
        threading.Thread(target=self._run, name="zmq reaper", daemon=True).start()

    def _run(self) -> None:
        while True:
            try:
                # Without a name: it would have a reference to the last one until the next one comes.
                self._wanted.get()()
            except Exception:
                _log.exception("what was collected as garbage could not be closed")

    def do(self, wanted: Callable[[], Any]) -> None:
        """Call it soon.  Any thread, also in ``__del__``."""
        self._wanted.put(wanted)

    def wait(self, seconds: float) -> None:
        """Wait until it has done what was asked so far."""
        done = threading.Event()
        self.do(done.set)
        done.wait(seconds)


_REAPERS: dict[int, Reaper] = {}
"""By the number of the process: one that was forked has no thread of its parent."""


def start() -> None:
    """Have a reaper in this process.

    Before there is something to reap: ``__del__`` must not start a thread.
    """
    if os.getpid() not in _REAPERS:
        _REAPERS[os.getpid()] = Reaper()


def reap(close: Callable[[], Any]) -> None:
    """Have ``close`` called soon by the reaper.

    Does nothing where all sockets are those of the parent process.
    """
    reaper = _REAPERS.get(os.getpid())
    if reaper is not None:
        reaper.do(close)


def wait_for_reaper(seconds: float) -> None:
    """Wait until all is closed that was collected in this process."""
    reaper = _REAPERS.get(os.getpid())
    if reaper is not None:
        reaper.wait(seconds)


def is_garbage() -> bool:
    """Whether the caller is called by ``__del__``: pyzmq closes there as anywhere else."""
    frame = sys._getframe(1).f_back
    while frame is not None:
        if frame.f_code.co_name == "__del__":
            return True
        frame = frame.f_back
    return False
