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

A long gap is a range (``_Range``) until its packets are requested: a forged packet may jump over a whole
window, and the next one may do so again before anything was requested. A packet of a range gets a state of
its own when something is heard of it, or when its request is due.

After a long pause tens of thousands of packets are missing. A turn takes only as many as may be asked for now
(``take_due``), and leaves the others where they are. Otherwise a turn would take longer than the socket's
buffer lasts, what arrives meanwhile would be lost as well, and the receiver would never catch up.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections.abc import Iterable
from enum import Enum

from plugins.protocols.pgm.chance import Chance
from plugins.protocols.pgm.extensions import MAX_NAK_LIST
from plugins.protocols.pgm.options import ReceiverOptions
from plugins.protocols.pgm.round_trip import RoundTrip
from plugins.protocols.pgm.sequence import after, distance, span

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


class _Range:
    """Consecutive missing packets of which nothing was heard since they were found missing together."""

    __slots__ = ("due", "first", "found", "size")

    def __init__(self, first: int, size: int, found: float, due: float) -> None:
        self.first = first
        self.size = size
        """0: nothing is left of it."""
        self.found = found
        self.due = due

    def drop_first(self, count: int) -> None:
        """Remove the first ``count`` packets, or all if there are fewer."""
        count = min(count, self.size)
        self.first = after(self.first, count)
        self.size -= count


class Recovery:
    """The missing packets of one source."""

    def __init__(self, options: ReceiverOptions, chance: Chance) -> None:
        self._missing: dict[int, Missing] = {}
        self._ranges: list[_Range] = []
        """Missing packets without a state of their own, in ascending order."""
        self.confirming = RoundTrip()
        """Round trip from a NAK to its confirmation."""
        self.repairing = RoundTrip()
        """Time from a confirmation to the data."""
        self._options = options
        self._chance = chance
        self._spread = SPREAD_MIN
        self._reordering = 0.0
        """Seconds that packets which others have overtaken are waited for."""
        self._due: list[tuple[float, int, tuple[int, ...] | _Range]] = []
        self._order = 0
        self._recent: dict[int, int] = {}
        """Packets that were repaired, and how many confirmations have come: a repair may overtake them."""

    def __contains__(self, number: object) -> bool:
        """Whether a packet is missing."""
        return number in self._missing or (isinstance(number, int) and self._range_of(number) is not None)

    def clear(self) -> None:
        """Forget everything that is missing."""
        self._missing.clear()
        self._due.clear()
        self._ranges.clear()

    def found(self, first: int, last: int, now: float) -> None:
        """Add missing packets, behind all that were added before, with a random back-off."""
        size = distance(first, last) + 1
        due = now + self._reordering + self._random()
        if size > NUMBERS_PER_NAK:
            self._add_range(len(self._ranges), _Range(first, size, now, due))
            return
        group = span(first, last)
        for number in group:
            self._missing[number] = Missing(now)
        self._push(due, group, Phase.BACK_OFF)

    def forget(self, first: int, last: int) -> None:
        """Forget packets that are lost: a range from the oldest missing one on, or a single packet."""
        missing, ranges = self._missing, self._ranges
        count = distance(first, last) + 1
        # The range may span billions of numbers after a damaged or malicious trailing edge, so the shorter of
        # the two is walked.
        for number in span(first, last) if count <= len(missing) else list(missing):
            if distance(first, number) >= 0 and distance(number, last) >= 0:
                missing.pop(number, None)
        begin = end = self._position(first)
        while end < len(ranges) and distance(ranges[end].first, last) >= 0:
            each = ranges[end]
            each.drop_first(distance(each.first, last) + 1)
            if each.size:
                break
            end += 1
        del ranges[begin:end]

    def arrived(self, number: int, now: float, *, repaired: bool) -> float:
        """Remove a packet that has arrived; return for how many seconds it was missing.

        ``repaired``: by a repair, and not because others had overtaken it.
        """
        entry = self._missing.pop(number, None) or self._taken_out(number)
        assert entry is not None
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
            entry = self._state(number)
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
        known = [number for number in numbers if self._state(number) is not None]
        for phase in (Phase.WAIT_NCF, Phase.WAIT_DATA):
            group = [number for number in known if self._suppressed(number) is phase]
            for number in group:
                self._missing[number].asked = None
            trip = self.confirming if phase is Phase.WAIT_NCF else self.repairing
            self._wait(group, now, self._timeout(trip), 0, phase)

    def _suppressed(self, number: int) -> Phase:
        """Return the state that a NAK of another receiver leads to."""
        phase = self._missing[number].phase
        # As in the figure of 6.3. (The text there would wait for NAK_RDATA_IVL at once.) A NAK that we hear
        # is no proof that the source has heard it: without an NCF our own NAK follows.
        return Phase.WAIT_NCF if phase is Phase.BACK_OFF else phase

    def next_deadline(self) -> float | None:
        """Return when ``take_due`` is to be called, or None."""
        due = self._due
        # Entries at the front whose packets have all changed state are discarded here, not when the state
        # changes: that would cost a search.
        while due and not self._is_live(due[0][0], due[0][2]):
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
            due, order, group = heapq.heappop(self._due)
            numbers = self._first_of(group, due, order) if isinstance(group, _Range) else group
            taken += len(numbers)
            for number in numbers:
                if self._is_current(number, due):
                    entry = self._missing[number]
                    # Marked as taken: an older entry of the same packet must not match.
                    entry.due = NEVER
                    chosen = (
                        # Only the end of a back-off sends a NAK. The end of a wait leads to another random
                        # back-off first (6.3): other receivers' waits end at about the same time.
                        ask if entry.phase is Phase.BACK_OFF else again if self._try_again(entry) else give_up
                    )
                    chosen.append(number)
        for number in give_up:
            del self._missing[number]
        self._back_off(again, now)
        return ask, give_up

    def _first_of(self, group: _Range, due: float, order: int) -> list[int]:
        """Give the first packets of a range that is due a state of their own; return them."""
        if group.due != due or not group.size:
            return []
        at = self._position(group.first)
        numbers = span(group.first, after(group.first, min(group.size, NUMBERS_PER_NAK) - 1))
        for number in numbers:
            self._missing[number] = _entry_of(group)
        group.drop_first(len(numbers))
        if group.size:
            # The same order: the rest stays in front of what is due at the same time.
            heapq.heappush(self._due, (due, order, group))
        else:
            del self._ranges[at]
        return numbers

    def postpone_ranges(self, now: float, until: float) -> None:
        """Put off the requests for all ranges that are due, without a state for each of their packets."""
        for each in self._ranges:
            if each.due <= now:
                each.due = until
                self._push_range(each)

    def asked(self, numbers: list[int], now: float) -> None:
        """Record that a NAK for these was sent."""
        waiting: dict[int, list[int]] = {}
        for number in numbers:
            entry = self._state(number)
            assert entry is not None
            entry.asked = now if not entry.ncf_tries else None
            entry.asks += 1
            waiting.setdefault(entry.ncf_tries, []).append(number)
        for tries, group in waiting.items():
            self._wait(group, now, self._timeout(self.confirming), tries, Phase.WAIT_NCF)

    def postponed(self, numbers: list[int], until: float) -> None:
        """Put a NAK for these off until a time."""
        for number in numbers:
            self._state(number)
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
        self._push(now + self._random(), group, Phase.BACK_OFF)

    def _random(self) -> float:
        """Return the seconds of a back-off."""
        # One random time for the whole group: receivers that miss the same burst then send one NAK with a
        # list, instead of many NAKs.
        # 6.3 demands the random wait and leaves its length to the implementation (NAK_BO_IVL).
        limit = self._options.back_off * self._spread / SPREAD_MIN
        most = self.confirming.spread(self._spread, limit)
        return self._chance.below(most)

    def _timeout(self, trip: RoundTrip) -> float:
        return trip.timeout(self._options.repeat, self._options.repeat_max)

    def _wait(self, group: list[int], now: float, timeout: float, tries: int, phase: Phase) -> None:
        """Wait for an answer; the wait doubles with each try."""
        self._push(now + min(timeout * 2.0 ** min(tries, 32), self._options.repeat_max), group, phase)

    def _push(self, due: float, group: list[int], phase: Phase) -> None:
        for number in group:
            entry = self._missing[number]
            entry.due = due
            entry.phase = phase
        for at in range(0, len(group), NUMBERS_PER_NAK):
            # ``_order`` makes entries of equal time comparable, and keeps them in the order of their making.
            self._order += 1
            heapq.heappush(self._due, (due, self._order, tuple(group[at : at + NUMBERS_PER_NAK])))

    def _is_live(self, due: float, group: tuple[int, ...] | _Range) -> bool:
        """Whether an entry of the heap is still valid for any of its packets."""
        if isinstance(group, _Range):
            return group.size > 0 and group.due == due
        return any(self._is_current(number, due) for number in group)

    def _is_current(self, number: int, due: float) -> bool:
        entry = self._missing.get(number)
        return entry is not None and entry.due == due

    # ------------------------------------------------------------------ ranges

    def _position(self, number: int) -> int:
        """Return the index of the first range that does not end before ``number``."""
        ranges = self._ranges
        if not ranges:
            return 0
        base = ranges[0].first
        return bisect_left(
            ranges, distance(base, number), key=lambda each: distance(base, each.first) + each.size - 1
        )

    def _range_of(self, number: int) -> int | None:
        """Return the index of the range with ``number``, or None."""
        at = self._position(number)
        return at if at < len(self._ranges) and distance(self._ranges[at].first, number) >= 0 else None

    def _state(self, number: int) -> Missing | None:
        """Return the state of a packet, or None if it is not missing."""
        entry = self._missing.get(number)
        if entry is None and (entry := self._taken_out(number)) is not None:
            self._missing[number] = entry
        return entry

    def _taken_out(self, number: int) -> Missing | None:
        """Take a packet out of its range; return a state for it, or None if it is in no range."""
        at = self._range_of(number)
        if at is None:
            return None
        each = self._ranges[at]
        before = distance(each.first, number)
        behind = each.size - before - 1
        if not before:
            each.drop_first(1)
        else:
            each.size = before
            if behind:
                self._add_range(at + 1, _Range(after(number), behind, each.found, each.due))
        if not each.size:
            del self._ranges[at]
        return _entry_of(each)

    def _add_range(self, at: int, added: _Range) -> None:
        self._ranges.insert(at, added)
        self._push_range(added)

    def _push_range(self, pushed: _Range) -> None:
        self._order += 1
        heapq.heappush(self._due, (pushed.due, self._order, pushed))


def _entry_of(group: _Range) -> Missing:
    """Return a state for a packet of a range."""
    entry = Missing(group.found)
    entry.due = group.due
    return entry
