"""Recovery: which packets of one source are missing, and when to ask for each (RFC 3208, 6.3).

The state machine of the RFC, for many packets at once: packets that were found missing together wait together, in
one entry of a heap; whether an entry still holds for a packet is seen when it is due.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable
from enum import Enum

from plugins.protocols.pgm.chance import Chance
from plugins.protocols.pgm.options import ReceiverOptions
from plugins.protocols.pgm.round_trip import RoundTrip

SPREAD_MIN, SPREAD_MAX = 3.0, 64.0
"""Round trips that the back-off is drawn from: with few receivers, and with many that miss the same."""
SPREAD_GROWTH, SPREAD_DECAY = 1.4, 0.9
RECENT = 32
"""Packets of which it is remembered that they were recovered: a late confirmation says that others had asked, too."""
NEVER = -1.0
"""In the place of a time: nothing is due."""


class Phase(Enum):
    """How far the recovery of a packet is."""

    BACK_OFF = "waiting a random time before asking"
    WAIT_NCF = "asked for, by us or by another"
    WAIT_DATA = "confirmed"


class Missing:
    """One packet."""

    __slots__ = ("asked", "asks", "confirmations", "data_tries", "due", "found", "ncf_tries", "phase")

    def __init__(self, now: float) -> None:
        self.phase = Phase.BACK_OFF
        self.found = now
        self.due = NEVER
        self.asked: float | None = None
        """When we asked; None when we did not, or more than once, or it was answered: then nothing can be measured."""
        self.ncf_tries = self.data_tries = 0
        self.asks = self.confirmations = 0


class Recovery:
    """The missing packets of one source."""

    def __init__(self, options: ReceiverOptions, chance: Chance) -> None:
        self.missing: dict[int, Missing] = {}
        self.confirming = RoundTrip()
        """From a NAK to its confirmation."""
        self.repairing = RoundTrip()
        """From a confirmation to the data."""
        self._options = options
        self._chance = chance
        self._spread = SPREAD_MIN
        self._due: list[tuple[float, int, tuple[int, ...]]] = []
        self._order = 0
        self._recent: deque[int] = deque(maxlen=RECENT)  # recovered, and confirmed once

    def found(self, numbers: Iterable[int], now: float) -> None:
        """These are missing: ask for them after a random time, unless somebody else does."""
        group = list(numbers)
        for number in group:
            self.missing[number] = Missing(now)
        self._back_off(group, now)

    def arrived(self, number: int, now: float) -> float:
        """A packet that was missing is here; return for how long it was missed."""
        entry = self.missing.pop(number)
        if entry.phase is Phase.WAIT_DATA and not entry.data_tries and entry.asked is not None:
            self.repairing.measured(now - entry.asked)
        if entry.confirmations > max(entry.asks, 1):
            self._crowded()
        else:
            self._spread = max(self._spread * SPREAD_DECAY, SPREAD_MIN)
            if entry.confirmations and entry.asks <= 1:
                self._recent.append(number)
        return now - entry.found

    def confirmed(self, numbers: Iterable[int], now: float) -> None:
        """An NCF was heard: somebody has asked for these, and the source knows."""
        waiting: dict[int, list[int]] = {}
        for number in numbers:
            entry = self.missing.get(number)
            if entry is None:
                if number in self._recent:
                    self._recent.remove(number)
                    self._crowded()
                continue
            if entry.phase is Phase.WAIT_NCF and entry.asked is not None and not entry.ncf_tries:
                self.confirming.measured(now - entry.asked)
            entry.confirmations += 1
            entry.ncf_tries = 0
            entry.asked = now
            waiting.setdefault(entry.data_tries, []).append(number)
        for tries, group in waiting.items():
            self._wait(group, now, self._timeout(self.repairing), tries, Phase.WAIT_DATA)

    def asked_by_another(self, numbers: Iterable[int], now: float) -> None:
        """A NAK of another receiver was heard."""
        for phase in (Phase.WAIT_NCF, Phase.WAIT_DATA):
            group = [
                number for number in numbers if number in self.missing and self._suppressed(number) is phase
            ]
            for number in group:
                self.missing[number].asked = None
            trip = self.confirming if phase is Phase.WAIT_NCF else self.repairing
            self._wait(group, now, self._timeout(trip), 0, phase)

    def _suppressed(self, number: int) -> Phase:
        """Return the phase that another's NAK leads to."""
        phase = self.missing[number].phase
        return Phase.WAIT_NCF if phase is Phase.BACK_OFF else phase

    def next_deadline(self) -> float | None:
        """Return when something is due."""
        due = self._due
        while due and not any(map(self._is_current, due[0][2], (due[0][0],) * len(due[0][2]))):
            heapq.heappop(due)
        return due[0][0] if due else None

    def take_due(self, now: float) -> tuple[list[int], list[int]]:
        """Return the numbers to ask for now, oldest request first, and those to give up.

        Those to ask for wait for ``asked`` or ``postponed``, which has to follow; those given up are missing no more.
        """
        ask: list[int] = []
        again: list[int] = []
        give_up: list[int] = []
        while self._due and self._due[0][0] <= now:
            due, _, group = heapq.heappop(self._due)
            for number in group:
                if self._is_current(number, due):
                    entry = self.missing[number]
                    entry.due = NEVER
                    chosen = (
                        ask if entry.phase is Phase.BACK_OFF else again if self._try_again(entry) else give_up
                    )
                    chosen.append(number)
        for number in give_up:
            del self.missing[number]
        self._back_off(again, now)
        return ask, give_up

    def asked(self, numbers: list[int], now: float) -> None:
        """A NAK for these has gone."""
        waiting: dict[int, list[int]] = {}
        for number in numbers:
            entry = self.missing[number]
            entry.asked = now if not entry.ncf_tries else None
            entry.asks += 1
            waiting.setdefault(entry.ncf_tries, []).append(number)
        for tries, group in waiting.items():
            self._wait(group, now, self._timeout(self.confirming), tries, Phase.WAIT_NCF)

    def postponed(self, numbers: list[int], until: float) -> None:
        """A NAK for these may not go before ``until``."""
        self._push(until, numbers, Phase.BACK_OFF)

    def _crowded(self) -> None:
        """Others ask for the same as we do: take more time before it."""
        self._spread = min(self._spread * SPREAD_GROWTH, SPREAD_MAX)

    def _try_again(self, entry: Missing) -> bool:
        """Count the try that has failed; whether there may be another."""
        if entry.phase is Phase.WAIT_NCF:
            entry.ncf_tries += 1
            return entry.ncf_tries < self._options.ncf_tries
        if entry.phase is Phase.WAIT_DATA:
            entry.data_tries += 1
            return entry.data_tries < self._options.data_tries
        return True

    def _back_off(self, group: list[int], now: float) -> None:
        """Wait a random time, one for all of these."""
        most = self.confirming.spread(self._spread, self._options.back_off)
        self._push(now + self._chance.below(most), group, Phase.BACK_OFF)

    def _timeout(self, trip: RoundTrip) -> float:
        return trip.timeout(self._options.repeat, self._options.repeat_max)

    def _wait(self, group: list[int], now: float, timeout: float, tries: int, phase: Phase) -> None:
        """Wait for an answer, longer at every try."""
        self._push(now + min(timeout * 2.0 ** min(tries, 32), self._options.repeat_max), group, phase)

    def _push(self, due: float, group: list[int], phase: Phase) -> None:
        if group:
            for number in group:
                entry = self.missing[number]
                entry.due = due
                entry.phase = phase
            self._order += 1
            heapq.heappush(self._due, (due, self._order, tuple(group)))

    def _is_current(self, number: int, due: float) -> bool:
        entry = self.missing.get(number)
        return entry is not None and entry.due == due
