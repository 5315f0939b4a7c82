"""A session: what a receiver knows about one source, and does about it (RFC 3208, 6).

Where to begin. The first packet that is heard is in general not the first that was sent. With ``join =
"now"`` the session begins with the next data packet. Otherwise it waits for an SPM, which says how far back
one may ask (OPT_JOIN, 9.4), and keeps the packets that arrive meanwhile (``_early``).

From then on every packet goes into the window; numbers that are found missing go to the recovery; everything
that is missing for good is reported as an event.
"""

from __future__ import annotations

import msgspec

from plugins.protocols.pgm.chance import Chance
from plugins.protocols.pgm.congestion_feedback import Feedback
from plugins.protocols.pgm.events import Event, What
from plugins.protocols.pgm.extensions import Extensions, Fragment, ParityParameters, Reset
from plugins.protocols.pgm.options import ReceiverOptions
from plugins.protocols.pgm.packets import ODATA, RDATA, Data, Request, SourcePath
from plugins.protocols.pgm.parity_rows import Item
from plugins.protocols.pgm.receive_window import LOST, ReceiveWindow
from plugins.protocols.pgm.receiver_statistics import ReceiverStatistics
from plugins.protocols.pgm.recovery import Recovery
from plugins.protocols.pgm.sequence import after, distance
from plugins.protocols.pgm.session_parity import SessionParity


class Reassembly:
    """The incomplete unit of one source.

    Fragments arrive in order; an incomplete unit is dropped when another begins (OPT_FRAGMENT, 9.2).
    """

    __slots__ = ("_dropped", "_first", "_most", "_parts", "_size", "_taken")

    def __init__(self, most: int) -> None:
        self._most = most
        self._parts: list[bytes] = []
        self._first: int | None = None
        self._size = self._taken = 0
        self._dropped = 0

    def take(self, fragment: Fragment, data: bytes) -> bytes | None:
        """Add a fragment; return the unit if it is complete."""
        if fragment.offset == 0:
            self.reset()
            if fragment.size > self._most:
                self._dropped += 1
                return None
            self._first, self._size = fragment.first, fragment.size
        # Fragments of a unit are consecutive packets, and the window delivers in order. So one that does not
        # continue the last means a loss, and the unit cannot be completed.
        elif (fragment.first, fragment.offset, fragment.size) != (self._first, self._taken, self._size):
            self.reset()
            return None
        self._parts.append(data)
        self._taken += len(data)
        if self._taken < self._size:
            return None
        unit = b"".join(self._parts)
        # More bytes than announced: the source's fragments contradict each other. The unit is dropped and
        # counted.
        complete = self._taken == self._size
        self._parts.clear()
        self._first = None
        self._dropped += not complete
        return unit if complete else None

    def is_idle(self) -> bool:
        """Whether no unit is incomplete."""
        return self._first is None

    def reset(self) -> None:
        """Drop the incomplete unit: what follows does not belong to it."""
        if self._first is not None:
            self._dropped += 1
            self._first = None
            self._parts.clear()
        self._taken = 0

    def take_dropped(self) -> int:
        """Return how many units were dropped since the last call."""
        dropped, self._dropped = self._dropped, 0
        return dropped


MAX_EARLY = 4096
"""Packets that are kept until it is known where to begin."""
RESTART_SPMS = 16
"""SPMs that a restarted source may have sent when the restart is noticed."""
NO_WINDOW = 0x8000_0000
"""SPM_LEAD of an SPM without a window, whose trailing edge is 0 (8.1)."""


def _row_item(item: bytes | Data) -> Item:
    """Return the parts of a packet that parity covers."""
    return (item.data, item.extensions.fragment) if isinstance(item, Data) else (item, None)


class _Early(msgspec.Struct, frozen=True, gc=False):
    """A packet that arrived before it was known where to begin."""

    kind: int
    number: int
    trail: int
    item: bytes | Data
    syn: bool = False


class Session:
    """One transport session, as its receiver sees it."""

    def __init__(
        self,
        tsi: bytes,
        options: ReceiverOptions,
        chance: Chance,
        events: list[Event],
        statistics: ReceiverStatistics,
    ) -> None:
        self.tsi = tsi
        self.port = 0
        self.window: ReceiveWindow | None = None
        """None until it is known where to begin."""
        self.recovery = Recovery(options, chance)
        self.parity: SessionParity | None = None
        """State of parity, if the source sends any."""
        self.path: bytes | None = None
        """The address that NAKs go to; None until an SPM has told it."""
        self.address: object = None
        """The address that its packets come from."""
        self.impostors: set[object] = set()
        """Other addresses that use the same TSI."""
        self.feedback: Feedback | None = None
        """State of congestion feedback, if the source uses congestion control."""
        self.heard = 0.0
        self.finished = False
        self._announced = 0.0
        """When the last SPM came. It names the last packet that was sent."""
        self._tail_reported = 0.0
        """The value of ``heard`` for which the unknown end of the data was reported."""
        self.wants_spm = False
        """Whether an SPM is needed, and should be requested."""
        self._options = options
        self._events = events
        self._statistics = statistics
        self.trail: int | None = None
        self._spm_number: int | None = None
        self._join: int | None = None
        self._early: list[_Early] = []
        self.reassembly = Reassembly(options.max_unit)
        """The fragments of the last unit, while it is incomplete."""
        # Whether a fragment was ever seen. Until then ``take`` hands the window's list on as it is.
        self._fragments = False
        self._ready_before_restart: list[bytes | Data | None] | None = None
        """Data that was ready when the source restarted, and is not taken yet."""
        self._naks_ignored = False
        """Whether the source does not answer NAKs any more (the N bit of OPT_RST, 9.8)."""

    # ------------------------------------------------------------------ data

    def on_plain(self, kind: int, number: int, trail: int, tsdu: bytes, now: float) -> None:
        """Process a data packet without options."""
        if self.window is None and not self._begin_with(_Early(kind, number, trail, tsdu), now):
            return
        self._put(kind, number, trail, tsdu, len(tsdu), now)

    def on_data(self, data: Data, now: float) -> None:
        """Process a data packet with options."""
        extensions = data.extensions
        if extensions.fragment is None:
            item: bytes | Data = data.data
        else:
            item = data
            self._fragments = True
        early = _Early(data.kind, data.number, data.trail, item, extensions.syn)
        if self.window is None and not self._begin_with(early, now):
            return
        self._put(data.kind, data.number, data.trail, item, len(data.data), now)

    def _put(self, kind: int, number: int, trail: int, item: bytes | Data, size: int, now: float) -> None:
        window = self.window
        assert window is not None
        parity = self.parity
        solved: list[tuple[int, Item]] = []
        # The window decides what the packet means; what follows only reports and requests accordingly.
        if not window.put(number, item, size):
            self._statistics.duplicates += 1
        else:
            if parity is not None:
                solved = parity.note(number, _row_item(item))
            # Order matters: gaps are reported before the recovery of an earlier one, as they happened.
            if window.found:
                self._found(now)
            if number in self.recovery:
                seconds = self.recovery.arrived(number, now, repaired=kind == RDATA)
                self._statistics.recovered += 1
                self._report(What.RECOVERED, number, number, f"after {seconds * 1000:.1f} ms")
            # ``put`` gives up the oldest gap when the window is full. Reported here, behind the gap itself.
            if window.lost:
                self._forget_lost("the receive window is full")
        # The trailing edge goes last: if the same packet fills a gap and moves the edge past it, the gap is
        # filled.
        if trail != self.trail:
            self._on_trail(trail)
        if parity is not None:
            self._put_solved(solved, trail, now)

    def on_parity(self, data: Data, now: float) -> None:
        """Process a parity packet: it may reconstruct missing packets."""
        parity, window = self.parity, self.window
        if parity is None or window is None:
            return
        # A parity packet follows its group, so that the whole group was sent.
        window.extend(data.number | parity.mask)
        self._found(now)
        self._put_solved(parity.take(data), data.trail, now)

    def _put_solved(self, solved: list[tuple[int, Item]], trail: int, now: float) -> None:
        """Process reconstructed packets as if they had arrived."""
        assert self.parity is not None
        for number, (data, fragment) in solved:
            # It may have arrived since, or have been given up.
            if number not in self.recovery:
                continue
            item: bytes | Data = data
            if fragment is not None:
                extensions = Extensions(fragment=fragment)
                item = Data(
                    kind=ODATA,
                    tsi=self.tsi,
                    port=0,
                    extensions=extensions,
                    number=number,
                    trail=trail,
                    data=data,
                )
                self._fragments = True
            self._statistics.worked_out += 1
            self._put(RDATA, number, trail, item, len(data), now)
        if self.window is not None:
            self.parity.forget_before(self.window.next)

    def take(self) -> list[bytes | None]:
        """Return the complete units in order, with ``LOST`` where some are missing."""
        window = self.window
        if window is None or not window.ready:
            return []
        ready, window.ready = window.ready, []
        return self._units(ready) if self._fragments else ready

    def _units(self, ready: list[bytes | Data | None]) -> list[bytes | None]:
        """Reassemble fragments."""
        units: list[bytes | None] = []
        for item in ready:
            if isinstance(item, Data):
                assert item.extensions.fragment is not None
                unit = self.reassembly.take(item.extensions.fragment, item.data)
                if unit is not None:
                    units.append(unit)
            else:
                self.reassembly.reset()
                units.append(item)
        self._statistics.dropped_units += self.reassembly.take_dropped()
        return units

    def _on_trail(self, trail: int) -> None:
        """The source's trailing edge has moved: it cannot repair anything older."""
        if self.trail is not None and distance(self.trail, trail) <= 0:
            return
        self.trail = trail
        window = self.window
        # A NAK for anything older would be in vain: what has left the transmit window cannot be repaired
        # (3.3, 6.3).
        if window is not None and distance(window.next, trail) > 0:
            window.give_up_before(trail)
            self._forget_lost("it has left the source's transmit window")

    def tail_deadline(self) -> float | None:
        """Return when the end of the data is to be given up, or None.

        A source sends heartbeats after data (5.1.5). If one has come, the last packet is known. If
        none comes, the source has gone, and what it sent after the last packet that was heard
        cannot even be counted.
        """
        if self.finished or self.window is None or self.heard in (self._announced, self._tail_reported):
            return None
        return self.heard + self._options.source_silence

    def report_tail(self) -> None:
        """Report that whatever the source sent after the last packet is lost."""
        assert self.window is not None
        self._tail_reported = self.heard
        last = self.window.lead
        detail = f"no heartbeat has followed packet {last}: if the source has sent more, that is lost"
        self._report(What.LOST, after(last), detail=detail)

    def _found(self, now: float) -> None:
        """Report what the window has found missing, and have it requested."""
        window = self.window
        assert window is not None
        found, window.found = window.found, []
        for first, last in found:
            # The window may have given up some of them at once, if it had no room to wait for all.
            if distance(first, window.next) > 0:
                first = window.next
            if distance(first, last) < 0:
                continue
            self._statistics.gaps += 1
            self._report(What.GAP, first, last)
            if not self._naks_ignored:
                self.recovery.found(first, last, now)
            # 6.2: no repair may be requested before an SPM has told the address for NAKs.
            if self.path is None:
                self.wants_spm = True

    def _forget_lost(self, why: str) -> None:
        window = self.window
        if window is None or not window.lost:
            return
        # One event for a range. Giving up packet by packet would otherwise make an event of each.
        for first, last in merged(window.lost):
            self._statistics.lost += distance(first, last) + 1
            self._report(What.LOST, first, last, why)
            self.recovery.forget(first, last)
        window.lost.clear()

    # ------------------------------------------------------------------ where to begin

    def _begin_with(self, early: _Early, now: float) -> bool:
        """Decide where to begin, now that a data packet is here.

        Return False if it is too early or the packet is not for us.
        """
        if self._options.join == "now":
            if early.kind != ODATA:
                # A repair for other receivers: it may be of any age.
                return False
        # OPT_SYN marks the first packet of the session (9.6): nothing can precede it, so there is nothing to
        # wait for. If no SPM comes, reception begins without it after MAX_EARLY packets.
        elif self._spm_number is None and not early.syn and len(self._early) < MAX_EARLY:
            self._early.append(early)
            self.wants_spm = True
            return False
        self._begin(self._early[0].number if self._early else early.number, now, late=not early.syn)
        return True

    def _begin(self, heard: int, now: float, *, late: bool) -> None:
        """Begin with packet ``heard``, or before it if that is wanted and allowed."""
        first = heard
        wanted, oldest = self._options.join, self._join
        # OPT_JOIN tells the oldest packet that a new receiver may request (9.4).
        if wanted != "now" and oldest is not None and distance(oldest, heard) > 0:
            first = oldest if wanted == "window" or distance(oldest, wanted) < 0 else wanted
            # A number ahead of what was heard is not asked for: a receiver never skips data that it has.
            if distance(first, heard) < 0:
                first = heard
        # Until the trailing edge has passed this number, repairs of older packets must not be requested (6.1,
        # RXW_TRAIL_INIT). The window knows nothing before it, so they cannot be.
        self.window = ReceiveWindow(first, self._options.window_packets, self._options.window_bytes)
        if self._ready_before_restart is not None:
            # LOST in between: what follows does not continue what came before the restart.
            self.window.ready = [
                *self._ready_before_restart,
                LOST,
            ]
            self._ready_before_restart = None
        if late:
            self._report(What.LATE_JOIN, first)
        if first != heard:
            self.window.extend(after(heard, -1))
            self._found(now)
        # Taken out before it is processed: ``_put`` must find the session begun.
        early, self._early = self._early, []
        for packet in early:
            size = len(packet.item.data if isinstance(packet.item, Data) else packet.item)
            self._put(packet.kind, packet.number, packet.trail, packet.item, size, now)

    # ------------------------------------------------------------------ SPMs

    def on_spm(self, spm: SourcePath, now: float) -> None:
        """Process an SPM: window edges, the address for NAKs, and options (6.2)."""
        # 6.2: SPMs that are not in sequence are discarded. The exception is not in the RFC: a source that
        # starts again with its old TSI numbers its SPMs from the beginning, and would otherwise be ignored
        # for half of the number space.
        stale = self._spm_number is not None and distance(self._spm_number, spm.number) <= 0
        if stale:
            if not self._restarted(spm):
                return
            self._restart(now)
        self._spm_number = spm.number
        self._announced = now
        # From every SPM: the address may change, for instance when a network element begins to forward NAKs
        # (6.2).
        self.path = spm.path
        self.port = spm.port
        self.wants_spm = False
        if spm.extensions.join is not None:
            self._join = spm.extensions.join
        # An SPM without a window: the source has not sent any data yet (8.1).
        if not (spm.trail == 0 and spm.lead == NO_WINDOW):
            self._on_edges(spm, now)
        # The group size is constant for a session (11.2), so the first offer is taken, and only once it is
        # known where reception begins.
        offered = spm.extensions.parity
        if self.parity is None and offered is not None and self.window is not None and _is_possible(offered):
            self.parity = SessionParity(offered, self.window.next)
        if spm.extensions.reset is not None:
            self._on_reset(spm.extensions.reset, now)
        # A source sends its last SPM several times; one event is enough.
        if spm.extensions.fin and not self.finished:
            self.finished = True
            self._report(What.FINISHED, detail=f"the last packet is {spm.lead}")

    def _on_edges(self, spm: SourcePath, now: float) -> None:
        if self.window is None:
            # Without a data packet so far, reception begins with the next one; with some, at the first of
            # them.
            heard = self._early[0].number if self._early else after(spm.lead)
            self._begin(heard, now, late=distance(spm.trail, spm.lead) >= 0)
        window = self.window
        assert window is not None
        # The leading edge shows the loss of packets that no later data packet has followed (6.3). Edges that
        # are behind what is known change nothing, as 6.2 asks for: SPMs may be slower than data.
        window.extend(spm.lead)
        self._found(now)
        self._forget_lost("the receive window is full")
        self._on_trail(spm.trail)

    def _restarted(self, spm: SourcePath) -> bool:
        """Whether an SPM with an old number is that of a source that has restarted with the same TSI."""
        window = self.window
        return (
            window is not None
            # Both must hold: the leading edge is far behind what was received, and the SPM number starts
            # anew. A single reordered SPM has only one of them.
            and distance(window.lead, spm.lead) < -self._options.window_packets
            and self._spm_number is not None
            and spm.number < RESTART_SPMS
        )

    def _restart(self, now: float) -> None:
        assert self.window is not None
        # Everything of the old session that is missing is lost for good. What is ready must still be
        # delivered, in front of the new session's first packet, so it is kept apart until the next
        # ``_begin``.
        self._report(What.RESET, detail="the source has restarted")
        self.window.give_up_before(after(self.window.lead))
        self._forget_lost("the source has restarted")
        self._ready_before_restart = self.window.ready
        self.window = self.parity = self.feedback = None
        self.finished = self._naks_ignored = False
        self.recovery.clear()
        self.trail = self._join = self._spm_number = None

    def _on_reset(self, reset: Reset, now: float) -> None:
        if not self.finished:
            self.finished = True
            self._report(What.RESET, detail=f"the source has reset the session, with code {reset.code}")
        # With the N bit no NAK will be answered (9.8.1): what is missing is lost now. Without it, repairs may
        # still be requested within the transmit window.
        if reset.unanswered and not self._naks_ignored:
            self._naks_ignored = True
            if self.window is not None:
                self.window.give_up_before(after(self.window.lead))
                self._forget_lost("the source no longer answers NAKs")

    # ------------------------------------------------------------------ requests

    def on_request(self, request: Request, now: float, *, confirmation: bool) -> None:
        """Process an NCF, or a NAK of another receiver."""
        numbers = request.numbers
        if request.parity:
            if self.parity is None:
                return
            parity, missing = self.parity, self.recovery
            # A parity NCF names groups. From here on it is as if it had named the packets that they stand
            # for.
            numbers = tuple(other for number in numbers for other in parity.covered(number, missing))
        if confirmation:
            self.recovery.confirmed(numbers, now)
        else:
            self.recovery.asked_by_another(numbers, now)

    def requests(self, numbers: list[int]) -> list[tuple[bool, list[tuple[int, list[int]]]]]:
        """Return what to request, each number with the packets that it stands for.

        Parity requests (True) are apart from single packets (False): they cannot share a NAK.
        """
        window = self.window
        assert window is not None
        # The oldest first, as 6.3 asks for: they leave the transmit window first.
        numbers.sort(key=lambda number: distance(window.next, number))
        if self.parity is None:
            return [(False, [(number, [number]) for number in numbers])]
        groups, single = self.parity.requests(numbers, self.recovery, window.lead)
        return [(True, groups), (False, [(number, [number]) for number in single])]

    def due(self, now: float, most: int) -> list[int]:
        """Return the numbers to request now, not many more than ``most``.

        Those that were requested too often are given up.
        """
        ask, given_up = self.recovery.take_due(now, most)
        if given_up and self.window is not None:
            for number in given_up:
                self.window.skip(number)
            self._forget_lost("no repair after the last request")
        return ask

    def _report(
        self, what: What, first: int | None = None, last: int | None = None, detail: str = ""
    ) -> None:
        self._events.append(Event(what=what, tsi=self.tsi, first=first, last=last, detail=detail))


def _is_possible(offered: ParityParameters) -> bool:
    return 2 <= offered.group <= 128 and not offered.group & offered.group - 1


def merged(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the ranges with adjacent ones joined. Their order is kept."""
    result: list[tuple[int, int]] = []
    for first, last in ranges:
        if result and first == after(result[-1][1]):
            result[-1] = result[-1][0], last
        else:
            result.append((first, last))
    return result
