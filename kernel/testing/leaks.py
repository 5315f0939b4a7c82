"""Leaks: finds threads and descriptors that some code has left in this process."""

from __future__ import annotations

import gc
import os
import threading

DESCRIPTORS = "/proc/self/fd"


class Leaks:
    """Notes threads and descriptors when it is made; ``found`` returns those that were added since."""

    def __init__(self) -> None:
        self._threads = set(threading.enumerate())
        self._descriptors = open_descriptors()

    def found(self, timeout: float = 10.0, but: str | None = None) -> list[str]:
        """Return a line for each thread or descriptor that is left.

        Each thread has ``timeout`` seconds to end.

        Threads with ``but`` in their names may stay.
        """
        # An object in a reference cycle holds its descriptor until the collector comes.  That is no leak.
        gc.collect()
        leaks = []
        # Threads before descriptors: a thread that is about to end closes its own.
        for thread in set(threading.enumerate()) - self._threads:
            if but is not None and but in thread.name:
                continue
            thread.join(timeout)
            if thread.is_alive():
                leaks.append(f"thread {thread.name!r}")
        for number, what in open_descriptors().items():
            # The same number may have been closed and opened again for something else.
            if self._descriptors.get(number) != what:
                leaks.append(f"descriptor {number}: {what}")
        return leaks


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
