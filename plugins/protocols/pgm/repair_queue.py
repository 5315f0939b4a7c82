"""NAKs that a source has received, and has yet to confirm or to repair (RFC 3208, 5.2 and 5.3)."""

from __future__ import annotations

import math
from collections import deque

LONG_AGO = -math.inf
REMEMBERED = 8192
"""Times that are remembered before expired ones are removed."""


class RepairQueue:
    """Sequence numbers to repair, in the order of the NAKs, each once.

    Many receivers that miss the same packet ask within one round trip. A packet that was requested or
    repaired less than ``guard`` seconds ago is not repaired again. It is confirmed once more only when these
    have passed: the second confirmation tells receivers that several have asked, and that they should back
    off longer.
    """

    __slots__ = ("_confirm", "_confirmed", "_later", "_pending", "_sent", "guard")

    def __init__(self, guard: float) -> None:
        self.guard = guard
        self._pending: dict[int, None] = {}
        self._sent: dict[int, float] = {}
        self._confirmed: dict[int, float] = {}
        self._confirm: deque[tuple[int, ...]] = deque()
        self._later: deque[tuple[float, tuple[int, ...]]] = deque()

    def __len__(self) -> int:
        return len(self._pending)

    def is_idle(self) -> bool:
        """Whether nothing is to be confirmed or repaired."""
        return not (self._pending or self._confirm or self._later)

    def was_asked(self, number: int) -> bool:
        """Whether a NAK for a packet came lately."""
        return number in self._confirmed

    def ask(self, numbers: list[int], now: float) -> None:
        """Process a NAK for packets that are in the window."""
        since = now - self.guard
        confirmed = self._confirmed
        # 5.2: the first NAK of a packet is confirmed immediately; identical confirmations that follow are
        # delayed, so that a storm of NAKs does not cause a storm of NCFs.
        fresh = tuple(number for number in numbers if confirmed.get(number, LONG_AGO) <= since)
        if fresh:
            self._confirm.append(fresh)
        # A time after ``now`` means that the second confirmation is queued already: a third NAK adds nothing.
        repeated = tuple(number for number in numbers if since < confirmed.get(number, LONG_AGO) <= now)
        if repeated:
            self._later.append((now + self.guard, repeated))
        for number in fresh:
            confirmed[number] = now
        for number in repeated:
            confirmed[number] = now + self.guard
        for number in numbers:
            # The repair is on its way to the receiver that asks: its NAK has crossed it. It repeats the NAK
            # if the repair is lost.
            if self._sent.get(number, LONG_AGO) <= since:
                self._pending[number] = None
        if len(confirmed) + len(self._sent) > REMEMBERED:
            self._confirmed = {number: at for number, at in confirmed.items() if at > since}
            self._sent = {number: at for number, at in self._sent.items() if at > since}

    def confirmation(self, now: float) -> tuple[int, ...] | None:
        """Return numbers to confirm now, in one NCF, or None."""
        if self._confirm:
            return self._confirm.popleft()
        return self._later.popleft()[1] if self._later and self._later[0][0] <= now else None

    def confirm_at(self) -> float:
        """Return when there will be something to confirm."""
        return LONG_AGO if self._confirm else self._later[0][0] if self._later else math.inf

    def next(self, now: float) -> int | None:
        """Return the number to repair next, or None."""
        if not self._pending:
            return None
        number = next(iter(self._pending))
        del self._pending[number]
        # The time of the repair and not of the request: a repair may have waited long for tokens.
        self._sent[number] = now
        return number
