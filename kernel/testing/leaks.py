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
        gc.collect()  # objects that are only in a reference cycle do not count
        leaks = []
        for thread in set(threading.enumerate()) - self._threads:
            if but is not None and but in thread.name:
                continue
            thread.join(timeout)
            if thread.is_alive():
                leaks.append(f"thread {thread.name!r}")
        for number, what in open_descriptors().items():
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
        except FileNotFoundError:  # the descriptor that ``listdir`` has used
            pass
    return descriptors
