"""Leaks: finds threads and descriptors that some code has left in this process."""

from __future__ import annotations

import gc
import os
import re
import threading
from time import monotonic

from kernel.hosting.spinning import LOADAVG

DESCRIPTORS = "/proc/self/fd"
_IDLE = re.compile(r"Trio thread \d+")
"""The name of a thread that trio keeps for later work, and that has none; while it works,
it has another name.

It ends by itself after ten seconds: to wait for it would make each test that uses ``trio.to_thread`` as long.
"""
_KEPT = re.compile(rf"{re.escape(LOADAVG)}|.*/libffi\.so[.\d]*")
"""What is opened once in a process and stays open.

``LOADAVG`` is opened when its module is imported, and libffi may open its own file when ctypes is
(Debian's 3.8 does).
"""


class Leaks:
    """Notes threads and descriptors when it is made; ``found`` returns those that were added since."""

    def __init__(self) -> None:
        self._threads = _busy_threads()
        self._descriptors = open_descriptors()

    def found(self, timeout: float = 10.0, but: str | None = None) -> list[str]:
        """Return a line for each thread or descriptor that is left.

        Each thread has ``timeout`` seconds to end.

        Threads with ``but`` in their names may stay.
        """
        # A collection looks at every object of the process and takes longer than most tests.  So it is done
        # only where something is left.
        if not self._new_threads(but) and not self._new_descriptors():
            return []
        # An object in a reference cycle holds its descriptor until the collector comes.  That is no leak.
        gc.collect()
        # Threads before descriptors: a thread that is about to end closes its own.
        left = [thread for thread in self._new_threads(but) if not _ends(thread, timeout)]
        return [*(f"thread {thread.name!r}" for thread in left), *self._new_descriptors()]

    def _new_threads(self, but: str | None) -> list[threading.Thread]:
        new = _busy_threads() - self._threads
        return [thread for thread in new if but is None or but not in thread.name]

    def _new_descriptors(self) -> list[str]:
        return [
            f"descriptor {number}: {what}"
            for number, what in open_descriptors().items()
            # The same number may have been closed and opened again for something else.
            if self._descriptors.get(number) != what and not _KEPT.fullmatch(what)
        ]


def _ends(thread: threading.Thread, timeout: float) -> bool:
    """Wait until the thread has ended, or until trio keeps it for later work, which nothing wakes us for."""
    deadline = monotonic() + timeout
    while thread in _busy_threads():
        left = deadline - monotonic()
        if left <= 0:
            return False
        thread.join(min(left, 0.02))
    return True


def _busy_threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if not _IDLE.fullmatch(thread.name)}


def open_descriptors() -> dict[int, str]:
    """Return the descriptors of this process and what they refer to; empty on systems without /proc."""
    try:
        numbers = os.listdir(DESCRIPTORS)
    except FileNotFoundError:
        return {}
    descriptors: dict[int, str] = {}
    for number in numbers:
        try:
            descriptors[int(number)] = os.readlink(f"{DESCRIPTORS}/{number}")
        except FileNotFoundError:
            # The descriptor that ``listdir`` has used is closed by now.
            pass
    return descriptors
