"""Confirms: what a publisher is still to be told about its messages on one channel.

The broker takes responsibility at once (or when its store is safe); a message that also left over a
confirming route waits until that has confirmed it.  One basic.ack with ``multiple`` tells of all.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple


class Verdict(NamedTuple):
    """All messages up to ``last`` that were not spoken of before are accepted, or refused."""

    last: int
    accepted: bool
    single: bool


class Confirms:
    """The confirmations of one channel."""

    __slots__ = ("_refused", "_waiting", "published", "told")

    def __init__(self) -> None:
        self.published = 0
        """The number of the last message published (the first is 1)."""
        self.told = 0
        """The last message that the publisher has heard of."""
        self._waiting: deque[tuple[int, int, int]] = deque()
        """Messages that wait for the routes: their mark, the last of them, and how many they are."""
        self._refused: deque[tuple[int, int]] = deque()

    def add(self, count: int, accepted: int, mark: int) -> None:
        """Messages were published; the queues took the first ``accepted``.

        ``mark``: they are to wait until the routes have confirmed that many; 0: no need to.
        """
        first = self.published + 1
        self.published += count
        if accepted < count:
            self._refused.append((first + accepted, self.published))
        if mark:
            self._waiting.append((mark, self.published, count))

    def verdicts(self, confirmed: int) -> list[Verdict]:
        """Return what the publisher can be told, ``confirmed`` being what the routes have confirmed."""
        ready = self._ready(confirmed)
        verdicts: list[Verdict] = []
        while self._refused and self._refused[0][1] <= ready:
            first, last = self._refused.popleft()
            self._tell(first - 1, verdicts, accepted=True)
            self._tell(last, verdicts, accepted=False)
        self._tell(ready, verdicts, accepted=True)
        return verdicts

    def _ready(self, confirmed: int) -> int:
        waiting = self._waiting
        if not waiting:
            return self.published
        ready = self.told
        while waiting and waiting[0][0] <= confirmed:
            ready = waiting.popleft()[1]
        if not waiting:
            return self.published
        mark, last, count = waiting[0]
        return max(ready, last - min(mark - confirmed, count))

    def _tell(self, last: int, verdicts: list[Verdict], *, accepted: bool) -> None:
        if last > self.told:
            verdicts.append(Verdict(last, accepted, last == self.told + 1))
            self.told = last
