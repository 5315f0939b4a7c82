"""The deadlines of many associations: one heap, in which an entry may be too early, but never too late.

Deadlines mostly move away; an association is looked at again when its entry is due, and not each time.
"""

from __future__ import annotations

import heapq
import itertools

from plugins.protocols.sctp.association import Association
from plugins.protocols.sctp.states import State


class Deadlines:
    """When something is due, and for which association."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Association]] = []
        self._armed: dict[Association, float] = {}
        """The earliest entry of each."""
        self._order = itertools.count()

    def arm(self, association: Association) -> None:
        """See to it that the association is looked at when something is due."""
        at = association.next_deadline()
        armed = self._armed.get(association)
        if at is not None and (armed is None or at < armed):
            self._armed[association] = at
            heapq.heappush(self._heap, (at, next(self._order), association))

    def next(self) -> float | None:
        """Return when ``due`` is to be asked; None: there is nothing."""
        while self._heap and self._is_void(*self._heap[0]):
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def due(self, now: float) -> list[Association]:
        """Return those for which something is due."""
        found = []
        while self._heap and self._heap[0][0] <= now:
            at, order, association = heapq.heappop(self._heap)
            if self._is_void(at, order, association):
                continue
            del self._armed[association]
            due = association.next_deadline()
            if due is not None and due <= now:
                found.append(association)
            else:
                self.arm(association)
        return found

    def forget(self, association: Association) -> None:
        """There is nothing more to be due for it."""
        self._armed.pop(association, None)

    def _is_void(self, at: float, order: int, association: Association) -> bool:
        return association.state is State.CLOSED or self._armed.get(association) != at
