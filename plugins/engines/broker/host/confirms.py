"""Confirms: numbers the messages of one publisher, and says which of them can be confirmed or refused.

A transient message can be confirmed at once, a persistent one when the store is safe up to it.  A message
that also left over a confirming route waits until the route has confirmed it.  Confirmations are in the order
of the messages, so that one basic.ack with ``multiple`` is enough for many.

Three sequences, each in the order of the messages, say what is known of those after ``told``:

``_waiting``
    Batches that left over routes, with the route position (``mark``) of the last message.  Routes confirm
    message by message, so the first entry may be confirmed in part.
``_unsafe``
    Where the mark of the store changes: from this message on, the store has to reach that mark.
``_refused``
    Ranges that a full queue refused (``x-overflow = reject-publish``).  They get a nack, at their turn.

A message is ready when neither routes nor store are behind it.  ``outcomes`` goes up to the first that is
not, and never past it, although later ones may be ready: a nack or ack out of order could not use
``multiple``.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple


class Outcome(NamedTuple):
    """All messages after the outcome before this one, up to ``last``, are accepted or refused."""

    last: int
    accepted: bool
    single: bool


class Confirms:
    """The confirmations of one channel."""

    __slots__ = ("_refused", "_unsafe", "_waiting", "published", "told")

    def __init__(self) -> None:
        self.published = 0
        """The number of the last message published (the first is 1)."""
        self.told = 0
        """The last message whose outcome was returned."""
        self._waiting: deque[tuple[int, int, int]] = deque()
        """Messages that wait for the routes: their mark, the last of them, and how many they are."""
        self._refused: deque[tuple[int, int]] = deque()
        """The first and the last message of each range that queues have refused."""
        self._unsafe: deque[tuple[int, int]] = deque()
        """The mark that the store has to reach, and the first message that waits for it."""

    def add(self, count: int, accepted: int, mark: int, unsafe: int = 0) -> None:
        """Messages were published; the queues took the first ``accepted``.

        ``mark``: they are to wait until the routes have confirmed that many; ``unsafe``: until the store
        has come so far; 0: no need to.
        """
        first = self.published + 1
        # The mark only grows, and stays the same for all messages of a group on the disk: one entry for each
        # group.
        if unsafe and (not self._unsafe or self._unsafe[-1][0] != unsafe):
            self._unsafe.append((unsafe, first))
        self.published += count
        if accepted < count:
            self._refused.append((first + accepted, self.published))
        if mark:
            self._waiting.append((mark, self.published, count))

    def tell_all(self) -> bool:
        """Count all messages as told and accepted, if none of them waits or was refused.

        Return whether that is so.  It is what ``outcomes`` would return then.
        """
        if self._waiting or self._unsafe or self._refused:
            return False
        self.told = self.published
        return True

    def outcomes(self, confirmed: int, safe: int = 0) -> list[Outcome]:
        """Return the new outcomes.

        ``confirmed``: what the routes have confirmed; ``safe``: what the store has written.
        """
        if not (self._waiting or self._unsafe or self._refused):
            # The usual case of messages that nobody keeps: they are confirmed in the turn that brings them.
            told, last = self.told, self.published
            if told == last:
                return []
            self.told = last
            return [Outcome(last, True, last == told + 1)]
        ready = min(self._ready(confirmed), self._safe(safe))
        outcomes: list[Outcome] = []
        while self._refused and self._refused[0][0] <= ready:
            first, last = self._refused.popleft()
            if last > ready:
                # The routes have confirmed a part of its batch.  The range is cut there, so that nothing
                # before the cut is acknowledged by mistake.
                self._refused.appendleft((ready + 1, last))
                last = ready
            self._tell(first - 1, outcomes, accepted=True)
            self._tell(last, outcomes, accepted=False)
        self._tell(ready, outcomes, accepted=True)
        return outcomes

    def waits_for(self, confirmed: int) -> tuple[int, int]:
        """Return the marks that routes and store have to reach for the next outcome.

        0: it does not wait for them.
        """
        routes = store = 0
        following = self.told + 1
        if self._waiting:
            mark, last, count = self._waiting[0]
            # Only if the next message is of this batch: one before it may wait for the store alone, and must
            # not sleep until the routes have confirmed a later one.
            if last - count < following:
                # The position of the next message of the batch that the routes have not confirmed.
                routes = max(confirmed, mark - count) + 1
        if self._unsafe and self._unsafe[0][1] <= following:
            store = self._unsafe[0][0]
        return routes, store

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
        # The routes have ``mark - confirmed`` messages to confirm up to the batch's last.  That may be more
        # than the batch has, because the port numbers the messages of all publishers.  Messages before the
        # batch are ready.
        return max(ready, last - min(mark - confirmed, count))

    def _safe(self, safe: int) -> int:
        unsafe = self._unsafe
        while unsafe and unsafe[0][0] <= safe:
            unsafe.popleft()
        return unsafe[0][1] - 1 if unsafe else self.published

    def _tell(self, last: int, outcomes: list[Outcome], *, accepted: bool) -> None:
        if last > self.told:
            outcomes.append(Outcome(last, accepted, last == self.told + 1))
            self.told = last
