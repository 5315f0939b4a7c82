"""Batch scheduling: a thread that is woken very often does not interrupt others, while that pays.

Linux lets a thread that is woken interrupt the one that runs on its core.  Where a publisher, a broker and a
consumer share two cores, the broker so interrupts one of the two for each message or two, and each time the
caches of the core have to be filled again.  With ``SCHED_BATCH`` a thread that is woken waits until a core is
free, or until the share of time of the one that runs is over (1.4 ms on two cores, 3 ms on eight and more).
More messages have come by then, which cost less together.  Where a core is free, the two are the same.

It does not pay where the core is taken by a stranger, who brings no messages: then each wake-up waits for
him.  Nobody can tell a stranger from a peer.  So it is tried for a moment, and kept as long as more comes in
than before (docs/decisions/0049-who-is-woken-often-does-not-interrupt.md).
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable

WINDOW = 0.1
"""Seconds for which it is counted what comes in."""
OFTEN = 1e-3
"""Seconds between two sleeps, in the mean, below which it is tried."""
GAIN = 1.05
"""How much more has to come in during the first window of a trial.  Later no less than before is enough."""
LONGEST = 20
"""Windows after which it is compared anew with how it is without."""
MOST_RESTS = 64
"""The most windows between two trials that were in vain."""


class BatchScheduling:
    """How one thread is scheduled."""

    __slots__ = (
        "_before",
        "_choose",
        "_clock",
        "_octets",
        "_rests",
        "_rests_next",
        "_since",
        "_sleeps",
        "_windows",
        "batch",
    )

    def __init__(
        self, choose: Callable[[bool], bool], clock: Callable[[], float] = time.perf_counter
    ) -> None:
        """``choose(True)`` has the thread scheduled as a batch thread, ``choose(False)`` as usual.

        Both return whether that is allowed.
        """
        self._choose = choose
        self._clock = clock
        self.batch: bool = False
        """Whether this thread does not interrupt others now."""
        self._since = clock()
        self._sleeps = self._octets = self._windows = 0
        # Octets a second in the last window in which it was scheduled as usual.
        self._before = 0.0
        # Windows before the next trial.
        self._rests: float = 0
        self._rests_next = 1

    def before_sleep(self, octets: int) -> None:
        """The thread has nothing to do, and is about to sleep.  So many octets have come in so far."""
        self._sleeps += 1
        now = self._clock()
        if now - self._since >= WINDOW:
            seconds, self._since = now - self._since, now
            came, self._octets = octets - self._octets, octets
            sleeps, self._sleeps = self._sleeps, 0
            if self.batch:
                self._judge(came / seconds)
            # Without octets, as between threads or with datagrams, nobody could tell what it gives.
            elif came and seconds < sleeps * OFTEN:
                self._try(came / seconds)

    def _try(self, rate: float) -> None:
        if self._rests:
            self._rests -= 1
        elif self._choose(True):
            self.batch = True
            self._before, self._windows = rate, 0
        else:
            self._rests = math.inf

    def _judge(self, rate: float) -> None:
        self._windows += 1
        first = self._windows == 1
        if rate >= self._before * (GAIN if first else 1) and self._windows < LONGEST:
            self._rests_next = 1
            return
        self._choose(False)
        self.batch = False
        if first:
            self._rests, self._rests_next = self._rests_next, min(2 * self._rests_next, MOST_RESTS)


def policy_chooser() -> Callable[[bool], bool] | None:
    """Return what has the calling thread scheduled as a batch thread, or as usual.

    None: the system has no such thing, or somebody has chosen for this thread (``chrt``).
    """
    if not hasattr(os, "SCHED_BATCH"):
        return None
    try:
        if os.sched_getscheduler(0) != os.SCHED_OTHER:
            return None
    except OSError:
        # musl, the C library of Alpine Linux, has these functions and always fails: ENOSYS.
        return None

    def choose(batch: bool) -> bool:
        # A thread that this one starts meanwhile is a batch thread, too.
        try:
            os.sched_setscheduler(0, os.SCHED_BATCH if batch else os.SCHED_OTHER, os.sched_param(0))
        except OSError:
            return False
        return True

    return choose
