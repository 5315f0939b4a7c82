"""Waiting for what a foreign process does in its own time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

TIMEOUT = 60.0


def until(there: Callable[[], T], every: float = 0.02) -> T:
    """Ask again and again until the answer is a true value; return it."""
    deadline = time.monotonic() + TIMEOUT
    while not (answer := there()):
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(every)
    return answer
