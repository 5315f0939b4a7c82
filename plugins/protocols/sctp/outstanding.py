"""What was sent and is not acknowledged: SACKs, losses, and what was given up (RFC 9260, 6.2.1, 6.3.3, 7.2.4; RFC 3758, 3.5)."""

from __future__ import annotations

from collections.abc import Sequence

from kernel.contracts.errors import RemoteProtocolError
from plugins.protocols.sctp.bundle import Bundle, Bundles
from plugins.protocols.sctp.chunks import Forward, Sack
from plugins.protocols.sctp.path import Path
from plugins.protocols.sctp.schedule import Outgoing
from plugins.protocols.sctp.sequence import MASK16, MASK32, unwrapped

Range = tuple[int, int]
"""First and last integer."""

MISSING_REPORTS = 3
"""Reports that a TSN is missing after which it is sent again."""

_MAX_OUTSTANDING = 1 << 15
_FORWARD_HEAD, _SKIPPED_STREAM, _SKIPPED_MESSAGE = 8, 4, 8
"""Bytes of FORWARD-TSN without streams, and of each of them; in I-FORWARD-TSN they have more."""


class Outstanding:
    """All bundles above the peer's cumulative acknowledgement, in their order."""

    def __init__(self, first_tsn: int, paths: list[Path]) -> None:
        self.paths = paths
        """The association's own list of them."""
        self.next_tsn = first_tsn
        self.cumulative = first_tsn - 1
        self.advanced = first_tsn - 1
        """Up to where the peer has, or need not have, everything (Advanced.Peer.Ack.Point)."""
        self.flight = 0
        self.bytes = 0
        """Sent, and neither acknowledged cumulatively nor given up."""
        self.forward_due = False
        """Whether the peer is to be told of ``advanced``, for the first time or again."""
        self.may_forward = False
        """Whether the peer knows FORWARD-TSN: else what was sent once cannot be given up."""
        self.interleaved = False
        self.abandoned_count = 0
        """Messages that were given up."""
        self.retransmitted = 0
        """Chunks that were sent again."""
        self.bundles = Bundles()
        self._gaps: list[Range] = []
        """TSNs above ``cumulative`` that the peer has said it has."""

    # ------------------------------------------------------------------ sending

    def add(self, bundle: Bundle, now: float) -> None:
        """Take note of a bundle that goes out for the first time, and has the next TSNs."""
        self.next_tsn = bundle.last + 1
        self.bytes += bundle.size
        self.bundles.append(bundle)
        if bundle.path.timed is None:
            bundle.path.timed = bundle.first
        self._sent(bundle, now)

    def repeat(self, bundle: Bundle, now: float) -> None:
        """Take note that a bundle goes out again."""
        path = bundle.path
        bundle.missing_reports = 0
        self.retransmitted += len(bundle.messages)
        if path.timed is not None and bundle.first <= path.timed <= bundle.last:
            path.timed = None  # Karn: an answer could be one to either
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
        if path.retransmission_due is None:
            path.retransmission_due = now + path.rto

    def room(self) -> int:
        """Return how many TSNs more a gap block can name (16 bits)."""
        return _MAX_OUTSTANDING - (self.next_tsn - 1 - self.cumulative)

    def has_unacknowledged(self, stream: int) -> bool:
        """Whether anything of that stream was sent, or given up, and not acknowledged."""
        return any(message.stream == stream for bundle in self.bundles for message in bundle.messages)

    # ------------------------------------------------------------------ acknowledgement

    def on_sack(self, sack: Sack, now: float, *, names_gaps: bool = True) -> bool:
        """Take a SACK in; return whether it acknowledged anything new.  Raises ``RemoteProtocolError`` on nonsense.

        Without ``names_gaps`` it is a cumulative acknowledgement only, and says nothing of what is above.
        """
        cumulative = unwrapped(sack.cumulative, self.cumulative)
        if cumulative < self.cumulative:
            return False  # one that others have overtaken
        if cumulative >= self.next_tsn:
            raise RemoteProtocolError(f"TSN {sack.cumulative} is acknowledged, which was not sent")
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
            path.errors = 0
        if not path.flight and not path.lost and self.advanced <= self.cumulative:
            path.retransmission_due = None
        elif gain and advanced:
            path.retransmission_due = now + path.rto

    def _remove(self, cumulative: int, gains: dict[Path, int], now: float) -> None:
        """Forget all up to ``cumulative``."""
        bundles = self.bundles
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
        if path.timed is not None and bundle.first <= path.timed <= bundle.last:
            path.timed = None
            path.measured(now - bundle.sent_at)
        self._leave_flight(bundle)
        if not bundle.abandoned:
            gains[path] = gains.get(path, 0) + bundle.size

    def _leave_flight(self, bundle: Bundle) -> None:
        if bundle.in_flight:
            bundle.in_flight = False
            bundle.path.flight -= bundle.size
            self.flight -= bundle.size

    def _take_gaps(self, sack: Sack, gains: dict[Path, int], now: float) -> int:
        """Acknowledge what the gap blocks name; return the highest TSN that is new among them, else the cumulative."""
        named: list[Range] = []
        last = 1
        for first, end in sack.gaps:
            if first <= last or end < first or self.cumulative + first >= self.next_tsn:
                break  # blocks rise and do not touch; what follows is nonsense
            last = end
            named.append((self.cumulative + first, min(self.cumulative + end, self.next_tsn - 1)))
        new, gone = without(named, self._gaps), without(self._gaps, named)
        self._gaps = named
        for taken_back in gone:  # or said before what we have heard already
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
        for hole in without(((self.cumulative + 1, self._gaps[-1][1]),), self._gaps):
            for bundle in self.bundles.between(*hole):
                counts = bundle.last < newest or (advanced and bundle.path.recovery_exit is not None)
                if not bundle.in_flight or bundle.fast_retransmitted or not counts:
                    continue
                bundle.missing_reports += 1
                if bundle.missing_reports >= MISSING_REPORTS:
                    missed.append(bundle)
        for bundle in missed:
            bundle.fast_retransmitted = True
            bundle.path.enter_fast_recovery(self.next_tsn - 1)
            self.mark_lost(bundle, bundle.path, now)

    # ------------------------------------------------------------------ losses

    def mark_lost(self, bundle: Bundle, retransmit_on: Path, now: float) -> None:
        """Take a bundle for lost: it is sent again on the path ``again``, but for what is given up now."""
        self._leave_flight(bundle)
        if bundle.abandoned:
            return
        if not bundle.limited:
            bundle.path = retransmit_on
            retransmit_on.is_lost(bundle.first)
            return
        first, last = bundle.first, bundle.last
        for message in [each for each in bundle.messages if each.terms.is_limited()]:
            limit, expires = message.terms.retransmissions, message.terms.expires
            if (limit is not None and bundle.sends > limit) or (expires is not None and now >= expires):
                self.abandon(message)
        for left in self.bundles.between(first, last):
            if left.awaits_retransmission():
                left.path = retransmit_on
                retransmit_on.is_lost(left.first)

    def mark_path_lost(self, path: Path, retransmit_on: Path, now: float) -> None:
        """Take all that is under way on ``path``, or waits to be sent again there, for lost (6.3.3)."""
        path.lost.clear()
        self.forward_due = self.advanced > self.cumulative
        at = 0
        while at < len(self.bundles):  # what is given up splits others, behind as well
            bundle = self.bundles[at]
            if bundle.path is path and not bundle.acknowledged and not bundle.abandoned:
                bundle.fast_retransmitted = False
                self.mark_lost(bundle, retransmit_on, now)
            at += 1

    # ------------------------------------------------------------------ giving up

    def abandon(self, message: Outgoing) -> bool:
        """Give a message up, if the peer can be told; return whether it is."""
        if message.abandoned:
            return True
        if message.fragments_sent and not self.may_forward:
            return False
        message.abandoned = True
        self.abandoned_count += 1
        if message.fragments_sent:
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
        """Use up a TSN for what will not be sent: the peer may have acknowledged all that was, and still waits for more."""
        tsn = self.next_tsn
        self.bundles.append(Bundle(tsn, tsn, [], [message], self.paths[0], abandoned=True))
        self.next_tsn += 1

    def advance(self) -> None:
        """Move ``advanced`` over what was given up (RFC 3758, 3.5, A and C)."""
        self.advanced = max(self.advanced, self.cumulative)
        if self.abandoned_count:
            at = max(self.bundles.at(self.advanced + 1), 0)
            while at < len(self.bundles) and self.bundles[at].abandoned:
                self.advanced = self.bundles[at].last
                at += 1
        self.forward_due = self.advanced > self.cumulative

    def forward(self, room: int) -> Forward | None:
        """Return the chunk, of ``room`` bytes at the most, that tells the peer what not to wait for; None: it need not be told now.

        What has no room is told when this is acknowledged (RFC 3758, 3.5, C4).
        """
        if not self.forward_due:
            return None
        self.forward_due = False
        most = (room - _FORWARD_HEAD) // (_SKIPPED_MESSAGE if self.interleaved else _SKIPPED_STREAM)
        skipped: dict[tuple[int, bool], int] = {}
        advanced = self.cumulative
        for bundle in self.bundles:
            message = bundle.messages[0]  # all are one message's where it was given up
            stream = message.stream, message.terms.unordered
            if bundle.last > self.advanced or (len(skipped) == most and stream not in skipped):
                break
            advanced = bundle.last
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
    """Return what of ``ranges`` is in none of the ``others``."""
    left = []
    at = 0
    for first, last in ranges:
        while at < len(others) and others[at][1] < first:
            at += 1
        for other_first, other_last in others[at:]:
            if other_first > last:
                break
            if other_first > first:
                left.append((first, other_first - 1))
            first = max(first, other_last + 1)
        if first <= last:
            left.append((first, last))
    return left
