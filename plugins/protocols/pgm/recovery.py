"""Recovery: which packets of a source are missing, and when to request each (RFC 3208, 6.3).

The state machine of section 6.3, for each missing packet:

- BACK_OFF: wait a random time (NAK_RB_IVL) before sending a NAK. All receivers that miss the packet do this,
  so that the first NAK spares the others theirs. If a matching NCF is heard, go to WAIT_DATA; if a NAK of
  another receiver is heard, to WAIT_NCF.
- WAIT_NCF: a NAK was sent or heard. Wait (NAK_RPT_IVL) for the source's confirmation. Without one, back off
  again, up to ``ncf_tries`` times (NAK_NCF_RETRIES).
- WAIT_DATA: the source has confirmed. Wait (NAK_RDATA_IVL) for the repair. Without it, back off again, up to
  ``data_tries`` times (NAK_DATA_RETRIES).

Arrival of the packet ends it in every state, as does a trailing edge that has passed it.

Times adapt. The waits follow measured round trips (``RoundTrip``), as in TCP. The interval of the back-off
starts at ``SPREAD_MIN`` round trips and grows when a confirmation shows that others have asked as well: with
many receivers behind one loss, a short back-off would make many of them ask before the first confirmation
arrives. Its limit (``back_off``) grows in proportion, since many receivers on a long path need a multiple of
the round trip as well.

Packets that overtake each other are not lost. When packets that were found missing arrive without a repair,
the time that they were late is waited for in front of the back-off (as RACK does for TCP, RFC 8985, 6.2.1).

Many packets are lost together. Packets that were found missing together share entries of the heap, each of as
many packets as one NAK names. A packet's state may change while its entry waits; whether the entry is still
valid for a packet is seen when it is due (``_is_current``).

After a long pause tens of thousands of packets are missing. A turn takes only as many as may be asked for now
(``take_due``), and leaves the others where they are. Otherwise a turn would take longer than the socket's
buffer lasts, what arrives meanwhile would be lost as well, and the receiver would never catch up.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from enum import Enum

from plugins.protocols.pgm.chance import Chance
from plugins.protocols.pgm.extensions import MAX_NAK_LIST
from plugins.protocols.pgm.options import ReceiverOptions
from plugins.protocols.pgm.round_trip import RoundTrip

SPREAD_MIN, SPREAD_MAX = 3.0, 64.0
"""Round trips of which the back-off is drawn: with few receivers, and with many that miss the same packets.
"""
SPREAD_GROWTH, SPREAD_DECAY = 1.4, 0.9
LATE_MARGIN = 1.25
"""How much longer than the latest packet was late a missing packet is waited for."""
LATE_DECAY, REPAIR_DECAY = 0.99, 0.9
"""Factors of that time for each packet that was less late, and for each that had to be repaired."""
RECENT = 32
"""Recovered packets that are remembered: another confirmation of one says that others had asked, too."""
NUMBERS_PER_NAK = MAX_NAK_LIST + 1
"""Sequence numbers in one NAK: one in the header, and those of OPT_NAK_LIST."""
MAX_TAKEN = 1024
"""Packets whose timers are processed in one turn."""
NEVER = -1.0
"""A time that means: nothing is due."""


class Phase(Enum):
    """States of a missing packet."""

    BACK_OFF = "random back-off before a NAK"
    WAIT_NCF = "waiting for an NCF"
    WAIT_DATA = "waiting for the data"


class Missing:
    """A missing packet."""

    __slots__ = ("asked", "asks", "confirmations", "data_tries", "due", "found", "ncf_tries", "phase")

    def __init__(self, now: float) -> None:
        self.phase = Phase.BACK_OFF
        self.found = now
        self.due = NEVER
        self.asked: float | None = None
        """When we sent the NAK.

        None if we did not, or more than once, or it was answered: then no round trip can be measured (Karn's
        rule).
        """
        self.ncf_tries = self.data_tries = 0
        self.asks = self.confirmations = 0


class Recovery:
    """The missing packets of one source."""

    def __init__(self, options: ReceiverOptions, chance: Chance) -> None:
        self.missing: dict[int, Missing] = {}
        self.confirming = RoundTrip()
        """Round trip from a NAK to its confirmation."""
        self.repairing = RoundTrip()
        """Time from a confirmation to the data."""
        self._options = options
        self._chance = chance
        self._spread = SPREAD_MIN
        self._reordering = 0.0
        """Seconds that packets which others have overtaken are waited for."""
        self._due: list[tuple[float, int, tuple[int, ...]]] = []
        self._order = 0
        self._recent: dict[int, int] = {}
        """Packets that were repaired, and how many confirmations have come: a repair may overtake them."""

    def found(self, numbers: Iterable[int], now: float) -> None:
        """Add missing packets, with a random back-off."""
        group = list(numbers)
        for number in group:
            self.missing[number] = Missing(now)
        self._back_off(group, now + self._reordering)

    def arrived(self, number: int, now: float, *, repaired: bool) -> float:
        """Remove a packet that has arrived; return for how many seconds it was missing.

        ``repaired``: by a repair, and not because others had overtaken it.
        """
        entry = self.missing.pop(number)
        if repaired:
            self._reordering *= REPAIR_DECAY
        else:
            late = min(LATE_MARGIN * (now - entry.found), self._options.repeat)
            self._reordering = max(late, LATE_DECAY * self._reordering)
        # Only the first try is measured: after a repetition the answer could belong to either request.
        if entry.phase is Phase.WAIT_DATA and not entry.data_tries and entry.asked is not None:
            self.repairing.measured(now - entry.asked)
        # More confirmations than requests of ours: other receivers asked for the same packet, too.
        if entry.confirmations > max(entry.asks, 1):
            self._crowded()
        # What others had only overtaken says nothing about how many ask.
        elif repaired:
            self._spread = max(self._spread * SPREAD_DECAY, SPREAD_MIN)
            if entry.asks <= 1:
                self._recent[number] = entry.confirmations
                if len(self._recent) > RECENT:
                    del self._recent[next(iter(self._recent))]
        return now - entry.found

    def confirmed(self, numbers: Iterable[int], now: float) -> None:
        """Process an NCF: the source knows that these are missing."""
        waiting: dict[int, list[int]] = {}
        for number in numbers:
            entry = self.missing.get(number)
            if entry is None:
                # A second confirmation for a packet that is already here has the same meaning.
                if number in self._recent:
                    self._recent[number] += 1
                    if self._recent[number] > 1:
                        del self._recent[number]
                        self._crowded()
                continue
            if entry.phase is Phase.WAIT_NCF and entry.asked is not None and not entry.ncf_tries:
                self.confirming.measured(now - entry.asked)
            entry.confirmations += 1
            # The retry counts are for consecutive failures. A confirmation proves that NAKs reach the source.
            entry.ncf_tries = 0
            entry.asked = now
            waiting.setdefault(entry.data_tries, []).append(number)
        for tries, group in waiting.items():
            self._wait(group, now, self._timeout(self.repairing), tries, Phase.WAIT_DATA)

    def asked_by_another(self, numbers: Iterable[int], now: float) -> None:
        """Process a NAK of another receiver."""
        # A NAK of another receiver restarts the timer of its state (6.3): NAK_RPT_IVL or NAK_RDATA_IVL.
        # The group is found again for the second phase, but packets of the first are not in it: no packet
        # changes from WAIT_NCF to WAIT_DATA here.
        for phase in (Phase.WAIT_NCF, Phase.WAIT_DATA):
            group = [
                number for number in numbers if number in self.missing and self._suppressed(number) is phase
            ]
            for number in group:
                self.missing[number].asked = None
            trip = self.confirming if phase is Phase.WAIT_NCF else self.repairing
            self._wait(group, now, self._timeout(trip), 0, phase)

    def _suppressed(self, number: int) -> Phase:
        """Return the state that a NAK of another receiver leads to."""
        phase = self.missing[number].phase
        # As in the figure of 6.3. (The text there would wait for NAK_RDATA_IVL at once.) A NAK that we hear
        # is no proof that the source has heard it: without an NCF our own NAK follows.
        return Phase.WAIT_NCF if phase is Phase.BACK_OFF else phase

    def next_deadline(self) -> float | None:
        """Return when ``take_due`` is to be called, or None."""
        due = self._due
        # Entries at the front whose packets have all changed state are discarded here, not when the state
        # changes: that would cost a search.
        while due and not any(map(self._is_current, due[0][2], (due[0][0],) * len(due[0][2]))):
            heapq.heappop(due)
        return due[0][0] if due else None

    def take_due(self, now: float, most: int) -> tuple[list[int], list[int]]:
        """Return the numbers to request now, those due first first, and those to give up.

        With ``most`` or more of the first, or many timers, the others are left for a later turn. ``asked`` or
        ``postponed`` must follow for the first; the others are no longer missing.
        """
        ask: list[int] = []
        again: list[int] = []
        give_up: list[int] = []
        taken = 0
        while self._due and self._due[0][0] <= now and len(ask) < most and taken < MAX_TAKEN:
            due, _, group = heapq.heappop(self._due)
            taken += len(group)
            for number in group:
                if self._is_current(number, due):
                    entry = self.missing[number]
                    # Marked as taken: an older entry of the same packet must not match.
                    entry.due = NEVER
                    chosen = (
                        # Only the end of a back-off sends a NAK. The end of a wait leads to another random
                        # back-off first (6.3): other receivers' waits end at about the same time.
                        ask if entry.phase is Phase.BACK_OFF else again if self._try_again(entry) else give_up
                    )
                    chosen.append(number)
        for number in give_up:
            del self.missing[number]
        self._back_off(again, now)
        return ask, give_up

    def asked(self, numbers: list[int], now: float) -> None:
        """Record that a NAK for these was sent."""
        waiting: dict[int, list[int]] = {}
        for number in numbers:
            entry = self.missing[number]
            entry.asked = now if not entry.ncf_tries else None
            entry.asks += 1
            waiting.setdefault(entry.ncf_tries, []).append(number)
        for tries, group in waiting.items():
            self._wait(group, now, self._timeout(self.confirming), tries, Phase.WAIT_NCF)

    def postponed(self, numbers: list[int], until: float) -> None:
        """Put a NAK for these off until a time."""
        self._push(until, numbers, Phase.BACK_OFF)

    def _crowded(self) -> None:
        """Lengthen the back-off: other receivers ask for the same packets."""
        self._spread = min(self._spread * SPREAD_GROWTH, SPREAD_MAX)

    def _try_again(self, entry: Missing) -> bool:
        """Count a failed try; return whether another is allowed."""
        if entry.phase is Phase.WAIT_NCF:
            entry.ncf_tries += 1
            return entry.ncf_tries < self._options.ncf_tries
        if entry.phase is Phase.WAIT_DATA:
            entry.data_tries += 1
            return entry.data_tries < self._options.data_tries
        return True

    def _back_off(self, group: list[int], now: float) -> None:
        """Start a random back-off, the same for all of these packets."""
        # One random time for the whole group: receivers that miss the same burst then send one NAK with a
        # list, instead of many NAKs.
        # 6.3 demands the random wait and leaves its length to the implementation (NAK_BO_IVL).
        limit = self._options.back_off * self._spread / SPREAD_MIN
        most = self.confirming.spread(self._spread, limit)
        self._push(now + self._chance.below(most), group, Phase.BACK_OFF)

    def _timeout(self, trip: RoundTrip) -> float:
        return trip.timeout(self._options.repeat, self._options.repeat_max)

    def _wait(self, group: list[int], now: float, timeout: float, tries: int, phase: Phase) -> None:
        """Wait for an answer; the wait doubles with each try."""
        self._push(now + min(timeout * 2.0 ** min(tries, 32), self._options.repeat_max), group, phase)

    def _push(self, due: float, group: list[int], phase: Phase) -> None:
        for number in group:
            entry = self.missing[number]
            entry.due = due
            entry.phase = phase
        for at in range(0, len(group), NUMBERS_PER_NAK):
            # ``_order`` makes entries of equal time comparable, and keeps them in the order of their making.
            self._order += 1
            heapq.heappush(self._due, (due, self._order, tuple(group[at : at + NUMBERS_PER_NAK])))

    def _is_current(self, number: int, due: float) -> bool:
        entry = self.missing.get(number)
        return entry is not None and entry.due == due
