"""Spinning: how a thread that waits looks again for a moment before it sleeps.

A sleeping thread takes some 20 us to wake, and a core that sleeps longer still.  What comes sooner than that
is received at once by a thread that has not gone to sleep.  But looking takes the processor from others, and
a peer that shares it cannot answer meanwhile.  So a thread looks only while that pays: if nothing came in
time, it sleeps at once in the next wait, then in the next two, four, up to ``MOST_RESTS`` waits, until it
tries again.  A thread whose waits are long so spends a thousandth of a moment for each.  And it does not look
while more threads can run than there are cores (``crowded``).

Two threads that wait for each other can only find out together that a look pays: an answer of one that was
asleep comes too late for the other.  So there are times at which all threads of a machine look, by the clock
that they share, and for longer (``TOGETHER``).  A thread for which these times do not pay keeps only each 2nd
of them, each 4th, up to each 16th (``MOST_APART``), by their numbers: whoever keeps more of them keeps those,
too.

Poll threads look (``kernel/threads/loop.py``), threads of applications that have a lease, and those of direct
channels.
"""

from __future__ import annotations

import math
import os
import socket
import time
from collections.abc import Callable, Iterator
from itertools import repeat
from typing import Protocol, TypeAlias

Poll: TypeAlias = Callable[[float], "list[tuple[int, int]]"]
"""Waits for so many milliseconds at most, -1 for ever; returns what is ready."""

MOMENT = 60e-6
"""Seconds for which it looks.  A peer that is awake answers within it."""
TOGETHER = 0.002
"""Seconds for which all threads look together, whatever came of their last looks ..."""
TOGETHER_EVERY = 0.1
"""... at the beginning of each so many seconds of ``time.perf_counter``, which all processes share."""
MOST_APART = 16
"""Of these times, one of so many is kept by a thread for which they have not paid for long."""
LONG_MOMENT = 120e-6
"""Seconds for which they look then.  A peer that was asleep answers within it, if its core is free."""
MOST_RESTS = 1024
INTERRUPTED = 20e-6
"""Seconds between two looks at the clock, which are 2 us apart, if something else has run meanwhile."""
_LOOKS_PER_COUNT = 16
"""After so many looks, which take some 20 us, it is asked again whether the machine is crowded."""
LOADAVG = "/proc/loadavg"


def _open_loadavg() -> int:
    try:
        return os.open(LOADAVG, os.O_RDONLY)
    except OSError:
        return -1


# Open as long as the process lives: to open it each time would take longer than the answer is right.
_loadavg = _open_loadavg()
_cores = os.cpu_count() or 1


def crowded() -> bool:
    """Whether more threads of this machine can run now than it has cores, so that a look takes one of them.

    It takes 0.7 us.  False where the system does not say it: on Linux alone it does.
    """
    try:
        # "0.87 0.61 0.64 3/79 7180": of 79 threads, 3 run or could.
        return int(os.pread(_loadavg, 64, 0).split(b"/", 1)[0].rpartition(b" ")[2]) > _cores
    except (OSError, ValueError):
        return False


class WhileItPays:
    """Something that is tried before a wait: the less often, the longer it has not paid."""

    __slots__ = ("_rests", "_rests_next")

    def __init__(self) -> None:
        self._rests: float = 0
        """How many of the next waits do without."""
        self._rests_next = 1

    def rests(self) -> bool:
        """Whether the wait that begins does without.  If not, try, and say what came of it."""
        if self._rests:
            self._rests -= 1
            return True
        return False

    def paid(self) -> None:
        """It has paid."""
        self._rests, self._rests_next = 0, 1

    def in_vain(self) -> None:
        """It has not."""
        self._rests = self._rests_next
        self._rests_next = min(2 * self._rests_next, MOST_RESTS)


class Spinning(WhileItPays):
    """Whether to look before the next sleep, and for how long."""

    __slots__ = ("_always", "_every", "_moment", "_soon", "_time", "_together")

    def __init__(self, spin: float | None) -> None:
        """``spin``: seconds to look before every sleep; 0: never look; None: ``MOMENT``, while that pays."""
        super().__init__()
        self._always = spin is not None
        self._moment: float = MOMENT if spin is None else spin
        if spin == 0:
            self._rests = math.inf
        self._soon = 0.0
        """Until when an answer counts as one of a peer that is awake."""
        self._together = False
        """Whether this is a look at a time at which all threads look."""
        self._every = 1
        """Of the times at which all threads look, those are kept whose number is a multiple of this."""
        self._time = -1
        """The number of the last one that was kept."""

    def rests(self) -> bool:
        """Whether the wait that begins sleeps at once.  If not, look, and say what came of it."""
        if not self._rests:
            return False
        if not self._always and self._all_look(time.perf_counter()):
            return False
        self._rests -= 1
        return True

    def _all_look(self, now: float) -> bool:
        """Whether it is a time at which all threads look, and this one keeps it."""
        if now % TOGETHER_EVERY >= TOGETHER:
            return False
        number = int(now / TOGETHER_EVERY)
        # One that was begun is kept to its end.
        return number % self._every == 0 or number == self._time

    def until(self, now: float) -> float:
        """Return until when to look, from ``now`` on."""
        self._soon = now + self._moment
        self._together = not self._always and self._all_look(now)
        if not self._together:
            return self._soon
        number = int(now / TOGETHER_EVERY)
        if number != self._time:
            # It has to pay before the next one (``something_came``).
            self._time = number
            self._every = min(2 * self._every, MOST_APART)
        return now + LONG_MOMENT

    def is_in_the_way(self, looks: int) -> bool:
        """Whether to sleep without another look, after so many of this wait: others want the core."""
        return looks % _LOOKS_PER_COUNT == 0 and not self._always and crowded()

    def something_came(self, now: float) -> None:
        """The look was not in vain.  What comes late, when all look, may come only because of this look."""
        if now <= self._soon:
            self.paid()
            self._every = 1

    def nothing_came(self) -> None:
        """The look was in vain, and counts as such, unless it is a time at which all threads look."""
        if not self._together:
            self.in_vain()

    def in_vain(self) -> None:
        """A look would be in vain, or was."""
        if not self._always:
            super().in_vain()


class SpinningPoll(Spinning):
    """``poll``, with a look for a moment before it sleeps."""

    __slots__ = ("_poll",)

    def __init__(self, poll: Poll, spin: float | None = None) -> None:
        super().__init__(spin)
        self._poll = poll

    def __call__(self, milliseconds: float) -> list[tuple[int, int]]:
        """Wait."""
        poll = self._poll
        # Who does not want to wait gets an answer at once.
        if 0 <= milliseconds < 1:
            return poll(milliseconds)
        if self.rests():
            return poll(milliseconds)
        # What is there already says nothing about a look: on a core that both share the peer may have
        # answered within the system call that sent.
        ready = poll(0)
        if ready:
            return ready
        clock = time.perf_counter
        now = clock()
        until = self.until(now)
        looks = 0
        while now < until:
            if self.is_in_the_way(looks):
                return poll(milliseconds)
            looks += 1
            ready = poll(0)
            if ready:
                self.something_came(now)
                return ready
            now = clock()
        self.nothing_came()
        return poll(milliseconds)


class Received(Protocol):
    """Has what was read."""

    data: bytes | None
    """None as long as nothing is there; ``b""`` at the end of the stream."""


class SpinningRead(Spinning):
    """``recv`` of a socket that blocks, with a look for a moment before it sleeps, while that pays.

    A handler of a signal may raise behind every call, and what ``recv`` has returned would be lost.  Between
    a step of a ``for`` and its target there is no look for signals (docs/decisions/0050-signals.md), and
    ``map`` calls ``recv`` within that step.
    """

    __slots__ = ("_into", "_looks", "_reads")

    def __init__(self, recv: Callable[..., bytes], size: int, into: Received) -> None:
        """``size``: bytes of one read, at most.  ``into`` gets them."""
        super().__init__(None)
        self._into = into
        # Made once, as to make a ``map`` takes longer than a step of it.  None of them ever ends.
        self._reads: Iterator[bytes] = map(recv, repeat(size))
        self._looks: Iterator[bytes] = map(recv, repeat(size), repeat(socket.MSG_DONTWAIT))

    def __call__(self) -> None:
        """Read once; raise what ``recv`` raises."""
        if self.rests() or not self._look():
            into = self._into
            for into.data in self._reads:
                return

    def _look(self) -> bool:
        """Read what comes within a moment; return whether something came."""
        into = self._into
        until = now = 0.0
        looks = 0
        while True:
            try:
                for into.data in self._looks:
                    break
            except BlockingIOError:
                now = time.perf_counter()
                until = until or self.until(now)
                if now >= until:
                    self.nothing_came()
                    return False
                if self.is_in_the_way(looks):
                    return False
                looks += 1
            else:
                # As above: not if it was there already.
                if until:
                    self.something_came(now)
                return True
