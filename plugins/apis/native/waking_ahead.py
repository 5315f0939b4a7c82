"""Waking ahead: a question or an answer wakes the thread it goes to before it is put together.

To wake a thread whose core sleeps takes 20 to 40 us.  The thread that wakes it does its own part meanwhile:
what comes in front of the ring is added to a round trip, what comes behind it costs nothing.  So a question
rings first.  So does an answer, and a thread that answers rings already when it is woken for the next
question, since it will probably answer that one, too.

Whoever is woken and finds nothing goes to sleep again.  That happens when the work behind an answer takes
longer than the other one needs to wake.  So a ring of the last kind is counted: if the other one sleeps again
as the answer is given, it was in vain, and the next waits do without, by the rule of
``kernel.hosting.spinning``.

It pays with two cores at least.  On a single one the other thread cannot run before this one waits, and
each ring ahead would cost a switch there and back.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from kernel.hosting.spinning import WhileItPays


class WakingAhead:
    """For one channel."""

    __slots__ = ("_paying", "_rung", "answered", "wake")

    def __init__(self) -> None:
        self.wake: Callable[[], bool] = _nobody
        """Wake the thread that all is sent to; whether it slept.  To be called before a question is sent."""
        self._paying = WhileItPays()
        self._rung = False
        """Whether the other thread was woken as this one was, and no answer has been given since."""
        self.answered: bool = False
        """Whether this thread has answered since it was woken.  If so, call ``woken`` the next time."""

    def aim(self, wake: Callable[[], bool] | None) -> None:
        """Wake this thread from now on (``CallerThread.waker``)."""
        self.wake = _nobody if wake is None or _cores() == 1 else wake

    def woken(self) -> None:
        """This thread was woken: probably for a question, which it will answer."""
        self.answered = False
        self._rung = not self._paying.rests() and self.wake()

    def answer(self) -> None:
        """An answer will be sent."""
        self.answered = True
        slept = self.wake()
        if self._rung:
            self._rung = False
            if slept:
                self._paying.in_vain()
            else:
                self._paying.paid()


def _nobody() -> bool:
    return False


def _cores() -> int:
    """Return how many cores this thread may run on."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # macOS
        return os.cpu_count() or 1
