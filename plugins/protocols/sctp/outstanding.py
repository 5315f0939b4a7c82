"""What was sent and is not acknowledged: SACKs, losses, and what was given up (RFC 9260, 6.2.1, 6.3.3, 7.2.4; RFC 3758, 3.5)."""

from __future__ import annotations

from kernel.contracts.errors import RemoteProtocolError
from plugins.protocols.sctp.chunks import Forward, Sack
from plugins.protocols.sctp.path import Path
from plugins.protocols.sctp.schedule import Outgoing
from plugins.protocols.sctp.sequence import MASK16, MASK32, unwrapped

MISSES = 3
"""Reports that a TSN is missing after which it is sent again."""

_MOST_OUTSTANDING = 1 << 15


class Piece:
    """A DATA or I-DATA chunk under way."""

    __slots__ = ("abandoned", "acknowledged", "chunk", "fast", "in_flight", "message", "misses", "path", "sends", "sent_at", "size", "tsn")  # fmt: skip

    def __init__(self, tsn: int, chunk: bytes, size: int, message: Outgoing, path: Path) -> None:
        self.tsn = tsn
        self.chunk = chunk
        self.size = size
        self.message = message
        self.path = path
        self.sends = 0
        self.sent_at = 0.0
        self.misses = 0
        self.in_flight = False
        self.fast = False
        """Whether it was retransmitted fast: that happens once (7.2.4)."""
        self.acknowledged = False
        """By a gap block, which the peer may take back."""
        self.abandoned = False


class Outstanding:
    """All pieces above the peer's cumulative acknowledgement, in their order."""

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
        self.retransmitted = 0
        self.pieces: dict[int, Piece] = {}
        self._in_gaps: set[int] = set()

    # ------------------------------------------------------------------ sending

    def sent(self, piece: Piece, now: float) -> None:
        """Take note that a piece went out, for the first time or again."""
        path = piece.path
        self._fly(piece, now)
        piece.misses = 0
        piece.sends += 1
        piece.sent_at = now
        path.last_sent = now
        if piece.sends == 1:
            piece.message.pieces += 1
            if path.timed is None:
                path.timed = piece.tsn
        else:
            self.retransmitted += 1
            if path.timed == piece.tsn:  # Karn: an answer could be one to either
                path.timed = None

    def _fly(self, piece: Piece, now: float) -> None:
        path = piece.path
        piece.in_flight = True
        path.flight += piece.size
        self.flight += piece.size
        if path.retransmission_due is None:
            path.retransmission_due = now + path.rto

    def has_room(self) -> bool:
        """Whether a gap block can name one more TSN (16 bits)."""
        return self.next_tsn - self.cumulative < _MOST_OUTSTANDING

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
        for tsn in range(self.cumulative + 1, cumulative + 1):
            self._remove(tsn, gains, now)
        self.cumulative = cumulative
        newest = self._take_gaps(sack, gains, now) if names_gaps else cumulative
        for path, flight in before:
            self._adjust(path, gains.get(path, 0), flight, advanced, now)
        if sack.gaps:
            self._count_misses(newest, advanced, now)
        self.advance()
        return bool(gains) or advanced

    def _adjust(self, path: Path, gain: int, before: int, advanced: bool, now: float) -> None:
        if path.exit is not None and self.cumulative >= path.exit:
            path.exit = None
        if gain:
            path.acknowledged(gain, in_flight_before=before, advanced=advanced)
            path.errors = 0
        if not path.flight and not path.lost and self.advanced <= self.cumulative:
            path.retransmission_due = None
        elif gain and advanced:
            path.retransmission_due = now + path.rto

    def _remove(self, tsn: int, gains: dict[Path, int], now: float) -> None:
        piece = self.pieces.pop(tsn, None)
        if piece is None:
            return
        if piece.acknowledged:
            self._in_gaps.discard(tsn)
        else:
            self._gained(piece, gains, now)
        if not piece.abandoned:
            self.bytes -= piece.size
            piece.message.pieces -= 1

    def _gained(self, piece: Piece, gains: dict[Path, int], now: float) -> None:
        path = piece.path
        if path.timed == piece.tsn:
            path.timed = None
            path.measured(now - piece.sent_at)
        self._land(piece)
        if not piece.abandoned:
            gains[path] = gains.get(path, 0) + piece.size

    def _land(self, piece: Piece) -> None:
        if piece.in_flight:
            piece.in_flight = False
            piece.path.flight -= piece.size
            self.flight -= piece.size

    def _take_gaps(self, sack: Sack, gains: dict[Path, int], now: float) -> int:
        """Acknowledge what the gap blocks name; return the highest TSN that is new among them, else the cumulative."""
        covered: set[int] = set()
        newest = self.cumulative
        last = 1
        for first, end in sack.gaps:
            if first <= last or end < first:
                break  # blocks rise and do not touch; what follows is nonsense
            last = end
            covered.update(range(self.cumulative + first, min(self.cumulative + end + 1, self.next_tsn)))
        for tsn in self._in_gaps - covered:  # taken back, or said before what we have heard already
            self._in_gaps.discard(tsn)
            piece = self.pieces[tsn]
            piece.acknowledged = False
            if not piece.abandoned:
                self._fly(piece, now)
        for tsn in sorted(covered - self._in_gaps):
            piece = self.pieces[tsn]
            piece.acknowledged = True
            self._in_gaps.add(tsn)
            self._gained(piece, gains, now)
            newest = tsn
        return newest

    def _count_misses(self, newest: int, advanced: bool, now: float) -> None:
        highest = max(self._in_gaps, default=self.cumulative)
        missed = []
        for tsn, piece in self.pieces.items():
            if tsn >= highest:
                break
            counts = tsn < newest or (advanced and piece.path.exit is not None)
            if not piece.in_flight or piece.fast or not counts:
                continue
            piece.misses += 1
            if piece.misses >= MISSES:
                missed.append(piece)
        for piece in missed:
            piece.fast = True
            piece.path.recover_fast(self.next_tsn - 1)
            self.lose(piece, piece.path, now)

    # ------------------------------------------------------------------ losses

    def lose(self, piece: Piece, again: Path, now: float) -> None:
        """Take a piece for lost: it is sent again on the path ``again``, or given up with its message."""
        self._land(piece)
        message = piece.message
        tired = message.retransmissions is not None and piece.sends > message.retransmissions
        late = message.expires is not None and now >= message.expires
        if piece.abandoned or ((tired or late) and self.abandon(message)):
            return
        piece.path = again
        again.is_lost(piece.tsn)

    def lose_all(self, path: Path, again: Path, now: float) -> None:
        """Take all that is under way on ``path``, or waits to be sent again there, for lost (6.3.3)."""
        path.lost.clear()
        self.forward_due = self.advanced > self.cumulative
        for piece in list(self.pieces.values()):
            if piece.path is path and not piece.acknowledged and not piece.abandoned:
                piece.fast = False
                self.lose(piece, again, now)

    # ------------------------------------------------------------------ giving up

    def abandon(self, message: Outgoing) -> bool:
        """Give a message up, if the peer can be told; return whether it is."""
        if message.abandoned:
            return True
        if message.pieces_sent and not self.may_forward:
            return False
        message.abandoned = True
        self.abandoned_count += 1
        if message.pieces_sent:
            if message.offset < len(message.data):
                self._stand_for_the_rest(message)
            for piece in self.pieces.values():
                if piece.message is message and not piece.abandoned:
                    self._land(piece)
                    piece.abandoned = True
                    self.bytes -= piece.size
            self.advance()
        return True

    def _stand_for_the_rest(self, message: Outgoing) -> None:
        """Use up a TSN for what will not be sent: the peer may have acknowledged all that was, and still waits for more."""
        piece = Piece(self.next_tsn, b"", 0, message, self.paths[0])
        self.pieces[self.next_tsn] = piece
        self.next_tsn += 1

    def advance(self) -> None:
        """Move ``advanced`` over what was given up (RFC 3758, 3.5, A and C)."""
        self.advanced = max(self.advanced, self.cumulative)
        while (piece := self.pieces.get(self.advanced + 1)) is not None and piece.abandoned:
            self.advanced += 1
        self.forward_due = self.advanced > self.cumulative

    def forward(self) -> Forward | None:
        """Return the chunk that tells the peer what not to wait for; None when it need not be told now."""
        if not self.forward_due:
            return None
        self.forward_due = False
        skipped: dict[tuple[int, bool], int] = {}
        for tsn in range(self.cumulative + 1, self.advanced + 1):
            message = self.pieces[tsn].message
            if self.interleaved or not message.unordered:
                skipped[message.stream, message.unordered] = message.number
        mask = MASK32 if self.interleaved else MASK16
        return Forward(
            cumulative=self.advanced & MASK32,
            skipped=tuple(
                (stream, number & mask, unordered) for (stream, unordered), number in skipped.items()
            ),
            interleaved=self.interleaved,
        )
