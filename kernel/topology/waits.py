"""Waits: calls of the application that wait for threads of the kernel, which are told when it closes.

What they wait for may never come then: the threads end, and nobody answers any more.  (Who waits in an API is
told by the API: ``Api.kernel_closed``.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


class Waits:
    """Those of one kernel.  Any thread."""

    def __init__(self) -> None:
        self.over: bool = False
        """Whether the kernel closes, or has closed."""
        self._wakes: dict[object, Callable[[], Any]] = {}

    @contextmanager
    def waiting(self, wake: Callable[[], Any]) -> Iterator[None]:
        """Have ``wake()`` called, by any thread, if the kernel closes while this lasts, or did before."""
        key = object()
        self._wakes[key] = wake
        try:
            # Behind it: ``end`` sets the flag before it looks who waits.
            if self.over:
                wake()
            yield
        finally:
            del self._wakes[key]

    def end(self) -> None:
        """The kernel closes."""
        self.over = True
        for wake in list(self._wakes.values()):
            wake()
