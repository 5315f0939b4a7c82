"""Data that was sent and is not acknowledged: SACKs, loss detection, and abandoned messages.

The page of theory for the sending side. The clauses are those of RFC 9260 unless another RFC is named.

TSNs and bundles. Every DATA chunk has a TSN. Chunks that went out in one packet form a ``Bundle``: a packet
is lost or received as a whole, so that the work per SACK grows with packets and not with messages. Only when
a SACK names a part of a packet, or when one message of it is abandoned, is the bundle split.

What a SACK says (3.3.4, 6.2.1). The cumulative TSN is final: everything up to it is removed. Gap blocks name
TSNs above it that have arrived. They are not final: the receiver may drop such chunks again (6.2), and an
older SACK that was overtaken may name fewer. A TSN that was named and is not named any more is therefore put
back in flight.

Loss detection. A chunk is taken for lost in one of two ways.

- Fast retransmit (7.2.4): three SACKs report it missing. A SACK counts only for TSNs below the highest TSN
  that it newly acknowledges (HTNA): a SACK that brings no news about later data says nothing about earlier
  data. In fast recovery each SACK that advances the cumulative TSN counts for all missing TSNs. What was
  retransmitted after a timeout is missing only if data that was sent after it has arrived: SACKs of the
  window before the timeout still come in, and say nothing about the retransmission. (RFC 9260 does not say
  this; it is the variable ``recover`` of RFC 6582, 3.2, kept for each bundle.) Without it, such SACKs halve
  the window of one packet that follows a timeout, and ``ssthresh`` with it.
- Timer (6.3.3): T3-rtx of a path expires. All that is in flight on that path is lost, and goes out on another
  path if there is an active one (6.4).

Flight size. ``flight`` counts bytes of user data that are neither acknowledged, nor lost, nor abandoned; it
exists per path, for that path's congestion window (7.2), and in sum, for the peer's receive window (6.1, rule
A).

Abandoned messages (RFC 3758, 3.5). A message with a limited lifetime may be given up after its first
transmission, if the peer supports FORWARD-TSN. Its chunks keep their TSNs. ``advanced``
(Advanced.Peer.Ack.Point) moves over abandoned chunks that directly follow the cumulative TSN, and FORWARD-TSN
tells the peer to stop waiting for them.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from kernel.contracts.errors import RemoteProtocolError
from plugins.protocols.sctp.bundle import Bundle, Bundles
from plugins.protocols.sctp.chunks import Forward, Sack
from plugins.protocols.sctp.path import Path
from plugins.protocols.sctp.schedule import Outgoing
from plugins.protocols.sctp.sequence import MASK16, MASK32, unwrapped

Range = tuple[int, int]
"""First and last TSN of a range, both included."""

MISSING_REPORTS = 3
"""Missing reports after which a chunk is retransmitted fast (7.2.4)."""

_MAX_OUTSTANDING = 1 << 15
_MAX_GAPS = 1000
"""Gap blocks of a SACK that are looked at, as many as a receiver of ours ever stores.

Each may split a bundle. What the others name stays in flight.
"""
_FORWARD_HEAD, _SKIPPED_STREAM, _SKIPPED_MESSAGE = 8, 4, 8
"""Bytes of FORWARD-TSN without streams, of each stream in it, and of each message in I-FORWARD-TSN."""


class Outstanding:
    """All bundles above the cumulative TSN, in the order of their TSNs."""

    def __init__(self, first_tsn: int, paths: list[Path]) -> None:
        self.paths = paths
        """The association's list of paths, shared and not copied."""
        self.next_tsn = first_tsn
        self.cumulative = first_tsn - 1
        self.advanced = first_tsn - 1
        """The Advanced.Peer.Ack.Point: the peer has everything up to this TSN, or was told not to wait for
        it."""
        self.flight = 0
        self.bytes = 0
        """Bytes of user data that were sent, and are neither acknowledged cumulatively nor abandoned."""
        self.forward_due = False
        """Whether a FORWARD-TSN is to be sent, for the first time or again."""
        self.may_forward = False
        """Whether the peer supports FORWARD-TSN. Without it, a message that was sent cannot be abandoned."""
        self.interleaved = False
        self.abandoned_count = 0
        """Messages that were abandoned."""
        self.retransmitted = 0
        """Chunks that were retransmitted."""
        self.bundles = Bundles()
        self._gaps: list[Range] = []
        """TSNs above ``cumulative`` that the last SACK named as received."""

    # ------------------------------------------------------------------ sending

    def add(self, bundle: Bundle, now: float) -> None:
        """Record a bundle that goes out for the first time, with the next TSNs."""
        self.next_tsn = bundle.last + 1
        self.bytes += bundle.size
        self.bundles.append(bundle)
        # One round trip is measured at a time on each path (6.3.1, C4).
        if bundle.path.timed is None:
            bundle.path.timed = bundle.first
        self._sent(bundle, now)

    def repeat(self, bundle: Bundle, now: float) -> None:
        """Record that a bundle is retransmitted."""
        path = bundle.path
        bundle.missing_reports = 0
        bundle.sent_before = self.next_tsn
        self.retransmitted += len(bundle.messages)
        if path.timed is not None and bundle.first <= path.timed <= bundle.last:
            # Karn's rule (6.3.1, C5): an acknowledgement could belong to either transmission.
            path.timed = None
        self._sent(bundle, now)

    def _sent(self, bundle: Bundle, now: float) -> None:
        self._enter_flight(bundle, now)
        bundle.sends += 1
        bundle.sent_at = now
        bundle.path.last_sent = now

    def _enter_flight(self, bundle: Bundle, now: float) -> None:
        path = bundle.path
        bundle.in_flight = True
        path.flight += bundle.size
        self.flight += bundle.size
        # A timer that runs goes on: 6.3.2, R1, starts it only if it does not.
        if path.retransmission_due is None:
            path.retransmission_due = now + path.rto

    def has_gaps(self) -> bool:
        """Whether the last SACK named TSNs above the cumulative one."""
        return bool(self._gaps)

    def room(self) -> int:
        """Return how many more TSNs may be outstanding: a gap block has 16 bits for a TSN's offset."""
        return _MAX_OUTSTANDING - (self.next_tsn - 1 - self.cumulative)

    def has_unacknowledged(self, streams: Collection[int]) -> bool:
        """Whether chunks of one of the streams are sent or abandoned, and not acknowledged cumulatively."""
        wanted = frozenset(streams)
        return any(message.stream in wanted for bundle in self.bundles for message in bundle.messages)

    # ------------------------------------------------------------------ acknowledgement

    def on_sack(self, sack: Sack, now: float, *, names_gaps: bool = True) -> bool:
        """Process a SACK; return whether it acknowledged anything new (6.2.1).

        With ``names_gaps`` false it is the cumulative TSN of a SHUTDOWN, which says nothing about TSNs above.
        Raises ``RemoteProtocolError`` if it acknowledges a TSN that was never sent: the association is
        aborted (12.4).
        """
        cumulative = unwrapped(sack.cumulative, self.cumulative)
        if cumulative < self.cumulative:
            # Reordered: a newer SACK was processed before it (6.2.1, D i).
            return False
        if cumulative >= self.next_tsn:
            raise RemoteProtocolError(f"SACK of TSN {sack.cumulative}, which was not sent")
        # The congestion rules ask whether the window was full before this SACK (7.2.1, 7.2.2), so that the
        # flight sizes are taken before anything is removed. The window grows before missing reports may halve
        # it (7.2.4, last note).
        before = [(path, path.flight) for path in self.paths]
        gains: dict[Path, int] = {}
        advanced = cumulative > self.cumulative
        if advanced:
            self._remove(cumulative, gains, now)
        newest = self._take_gaps(sack, gains, now) if names_gaps and (sack.gaps or self._gaps) else cumulative
        for path, flight in before:
            self._adjust(path, gains.get(path, 0), flight, advanced, now)
        if sack.gaps:
            self._count_missing_reports(newest, advanced, now)
        self.advance()
        return bool(gains) or advanced

    def _adjust(self, path: Path, gain: int, before: int, advanced: bool, now: float) -> None:
        if path.recovery_exit is not None and self.cumulative >= path.recovery_exit:
            path.recovery_exit = None
        if gain:
            path.acknowledged(gain, in_flight_before=before, advanced=advanced)
            path.probing.progressed()
            # 8.2: an acknowledgement clears the path's error counter. If the data had been sent on another
            # path before, it is not known which one was acknowledged; the RFC accepts that.
            path.errors = 0
        # T3-rtx stops when nothing is outstanding on the path, and restarts when its earliest chunk was
        # acknowledged (6.3.2, R2 and R3). It also guards a FORWARD-TSN that may be lost: while one is
        # unanswered, the timer goes on.
        if not path.flight and not path.lost and self.advanced <= self.cumulative:
            path.retransmission_due = None
        elif gain and advanced:
            path.retransmission_due = now + path.rto

    def _remove(self, cumulative: int, gains: dict[Path, int], now: float) -> None:
        """Remove everything up to ``cumulative``."""
        bundles = self.bundles
        # The common case, in which everything is acknowledged, needs no search.
        count = len(bundles) if cumulative == self.next_tsn - 1 else bundles.cut(cumulative + 1)
        for bundle in bundles[:count]:
            if not bundle.acknowledged:
                self._gained(bundle, gains, now)
            if not bundle.abandoned:
                self.bytes -= bundle.size
                for message in bundle.messages:
                    message.fragments -= 1
        del bundles[:count]
        self.cumulative = cumulative
        if self._gaps:
            self._gaps = without(self._gaps, ((0, cumulative),))

    def _gained(self, bundle: Bundle, gains: dict[Path, int], now: float) -> None:
        path = bundle.path
        # A retransmission has reset ``timed`` (Karn's rule), so that ``sent_at`` is that of the only
        # transmission.
        if path.timed is not None and bundle.first <= path.timed <= bundle.last:
            path.timed = None
            path.measured(now - bundle.sent_at)
        self._leave_flight(bundle)
        # Abandoned data must not open the congestion window (RFC 3758, 3.5, A2).
        if not bundle.abandoned:
            gains[path] = gains.get(path, 0) + bundle.size

    def _leave_flight(self, bundle: Bundle) -> None:
        if bundle.in_flight:
            bundle.in_flight = False
            bundle.path.flight -= bundle.size
            self.flight -= bundle.size

    def _take_gaps(self, sack: Sack, gains: dict[Path, int], now: float) -> int:
        """Acknowledge what the gap blocks name.

        Return the highest newly acknowledged TSN, or the cumulative one.
        """
        named: list[Range] = []
        last = 1
        for first, end in sack.gaps[:_MAX_GAPS]:
            if first <= last or end < first or self.cumulative + first >= self.next_tsn:
                # Blocks must ascend and not touch. The rest of a malformed list is ignored.
                break
            last = end
            named.append((self.cumulative + first, min(self.cumulative + end, self.next_tsn - 1)))
        # Only the difference to the last SACK is looked at. A full window behind one gap would otherwise be
        # walked with each SACK (docs/decisions/0012-sctp.md).
        new, gone = without(named, self._gaps), without(self._gaps, named)
        self._gaps = named
        # The peer has dropped this data again (6.2), or this SACK is older than the last one. Either way it
        # is in flight until it is acknowledged again (6.2.1, D iii).
        for taken_back in gone:
            for bundle in self.bundles.between(*taken_back):
                bundle.acknowledged = False
                if not bundle.abandoned:
                    self._enter_flight(bundle, now)
        for acknowledged in new:
            for bundle in self.bundles.between(*acknowledged):
                bundle.acknowledged = True
                self._gained(bundle, gains, now)
        return new[-1][1] if new else self.cumulative

    def _count_missing_reports(self, newest: int, advanced: bool, now: float) -> None:
        if not self._gaps:
            return
        missed = []
        # Only TSNs below the highest one that was named count as missing: those above may still be in
        # transit.
        for hole in without(((self.cumulative + 1, self._gaps[-1][1]),), self._gaps):
            for bundle in self.bundles.between(*hole):
                # The HTNA rule, and its exception in fast recovery (7.2.4).
                counts = bundle.last < newest or (advanced and bundle.path.recovery_exit is not None)
                # Of a retransmission only what was sent after it says anything.
                counts = counts and newest >= bundle.sent_before
                if not bundle.in_flight or bundle.fast_retransmitted or not counts:
                    continue
                bundle.missing_reports += 1
                if bundle.missing_reports >= MISSING_REPORTS:
                    missed.append(bundle)
        # In a second loop: marking may split bundles, which would disturb the first.
        for bundle in missed:
            bundle.fast_retransmitted = True
            # On the path on which the data was lost, which is also where it is repeated (6.4: a fast
            # retransmission goes to the same address).
            bundle.path.enter_fast_recovery(self.next_tsn - 1)
            self.mark_lost(bundle, bundle.path, now)

    # ------------------------------------------------------------------ losses

    def mark_lost(self, bundle: Bundle, retransmit_on: Path, now: float) -> None:
        """Mark a bundle as lost: it is retransmitted on a path, except messages that are abandoned now.

        A message with a limit (RFC 3758, RFC 7496) is abandoned here if its lifetime is over, or if it was
        sent as often as its limit allows.
        """
        self._leave_flight(bundle)
        if bundle.abandoned:
            return
        # The common case: none of its messages has a limit, and the bundle stays whole.
        if not bundle.limited:
            bundle.path = retransmit_on
            retransmit_on.is_lost(bundle.first)
            return
        first, last = bundle.first, bundle.last
        for message in [each for each in bundle.messages if each.terms.is_limited()]:
            limit, expires = message.terms.retransmissions, message.terms.expires
            if (limit is not None and bundle.sends > limit) or (expires is not None and now >= expires):
                self.abandon(message)
        # Abandoning has split the bundle: the parts that are left are queued one by one.
        for left in self.bundles.between(first, last):
            if left.awaits_retransmission():
                left.path = retransmit_on
                retransmit_on.is_lost(left.first)

    def mark_path_lost(self, path: Path, retransmit_on: Path, now: float) -> None:
        """Mark everything in flight on ``path``, or waiting for retransmission there, as lost (6.3.3, E3)."""
        # What waited for retransmission on this path moves to the other one as well.
        path.lost.clear()
        self.forward_due = self.advanced > self.cumulative
        at = 0
        # Abandoning splits bundles while this loop runs, so that it goes by index.
        while at < len(self.bundles):
            bundle = self.bundles[at]
            if bundle.path is path and not bundle.acknowledged and not bundle.abandoned:
                # After a timeout the chunk counts as sent anew, and may be retransmitted fast again.
                bundle.fast_retransmitted = False
                self.mark_lost(bundle, retransmit_on, now)
            at += 1

    # ------------------------------------------------------------------ giving up

    def abandon(self, message: Outgoing) -> bool:
        """Abandon a message, if the peer can be told; return whether it is abandoned."""
        if message.abandoned:
            return True
        # The peer could not be told not to wait for it.
        if message.fragments_sent and not self.may_forward:
            return False
        message.abandoned = True
        self.abandoned_count += 1
        if message.fragments_sent:
            # All fragments of a message are abandoned together (RFC 3758, 3.5, A3).
            if message.offset < len(message.data):
                self._consume_tsn_for_rest(message)
            for first, last in self._chunks_of(message):
                for bundle in self.bundles.between(first, last):
                    self._leave_flight(bundle)
                    bundle.abandoned = True
                    self.bytes -= bundle.size
            self.advance()
        return True

    def _chunks_of(self, message: Outgoing) -> list[Range]:
        """Return the TSNs of a message that are outstanding."""
        found: list[Range] = []
        left = message.fragments
        # Fragments of one message need not be neighbours: with I-DATA, others are between them.
        at = max(self.bundles.at(message.tsn), 0)
        while left and at < len(self.bundles):
            bundle = self.bundles[at]
            if not bundle.abandoned:
                tsns = [tsn for tsn, each in enumerate(bundle.messages, bundle.first) if each is message]
                found += [(tsn, tsn) for tsn in tsns]
                left -= len(tsns)
            at += 1
        return found

    def _consume_tsn_for_rest(self, message: Outgoing) -> None:
        """Use one TSN for the fragments that will not be sent.

        The peer may have acknowledged every fragment that was sent, and would wait for the last one for ever.
        With a TSN of its own there is something for FORWARD-TSN to skip.
        """
        tsn = self.next_tsn
        self.bundles.append(Bundle(tsn, tsn, [], [message], self.paths[0], abandoned=True))
        self.next_tsn += 1

    def advance(self) -> None:
        """Move ``advanced`` over abandoned chunks that follow it directly (RFC 3758, 3.5, A4: C1 and C2)."""
        # C1. Whether there is anything to skip is asked after each SACK (A4) and each timeout (A5).
        self.advanced = max(self.advanced, self.cumulative)
        if self.abandoned_count:
            at = max(self.bundles.at(self.advanced + 1), 0)
            while at < len(self.bundles) and self.bundles[at].abandoned:
                self.advanced = self.bundles[at].last
                at += 1
        self.forward_due = self.advanced > self.cumulative

    def forward(self, room: int) -> Forward | None:
        """Return the FORWARD-TSN of at most ``room`` bytes that is due, or None (RFC 3758, 3.5, C3 to C5).

        It names the last skipped message of each stream. Streams that do not fit are named in a later
        FORWARD-TSN, when this one is acknowledged (C4).
        """
        if not self.forward_due:
            return None
        self.forward_due = False
        most = (room - _FORWARD_HEAD) // (_SKIPPED_MESSAGE if self.interleaved else _SKIPPED_STREAM)
        skipped: dict[tuple[int, bool], int] = {}
        advanced = self.cumulative
        for bundle in self.bundles:
            # An abandoned bundle has chunks of one message only: ``abandon`` has split it.
            message = bundle.messages[0]
            stream = message.stream, message.terms.unordered
            # C4: what does not fit into the packet lowers the TSN that this FORWARD-TSN names.
            if bundle.last > self.advanced or (len(skipped) == most and stream not in skipped):
                break
            advanced = bundle.last
            # An unordered DATA message has no number that the peer could wait for.
            if self.interleaved or not message.terms.unordered:
                skipped[stream] = message.number
        mask = MASK32 if self.interleaved else MASK16
        return Forward(
            cumulative=advanced & MASK32,
            skipped=tuple(
                (stream, number & mask, unordered) for (stream, unordered), number in skipped.items()
            ),
            interleaved=self.interleaved,
        )


def without(ranges: Sequence[Range], others: Sequence[Range]) -> list[Range]:
    """Return the parts of ``ranges`` that are in none of the ``others``. Both ascend."""
    left = []
    at = 0
    for first, last in ranges:
        while at < len(others) and others[at][1] < first:
            at += 1
        # By index: a copy of the rest for each range would cost the square of their number.
        ahead = at
        while ahead < len(others) and others[ahead][0] <= last:
            other_first, other_last = others[ahead]
            if other_first > first:
                left.append((first, other_first - 1))
            first = max(first, other_last + 1)
            ahead += 1
        if first <= last:
            left.append((first, last))
    return left
