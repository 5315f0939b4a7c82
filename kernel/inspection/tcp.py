"""TCP as an observer sees it: the bytes of both senders in order, and what was not captured (RFC 9293).

An observer differs from a receiver.  It cannot ask for a segment again, and it may miss segments that the
receiver got.  So each sender's half has three questions:

* Where does it begin?  With the SYN, or, if that was not captured, with the first segment that was; then a
  chunk with ``lost=None`` says that something came before.
* Is a segment late, or will it never be seen?  A segment that is ahead waits.  If the receiver acknowledges
  bytes that we have not seen, they were delivered, so they will not be sent again, and we have missed them.
  The same holds when too much waits, and at the end.  Then a chunk says how many bytes are missing, and
  reading goes on behind them.
* Was it seen before?  Retransmitted bytes are counted and left out.

Sequence numbers are 32 bits and wrap, so they are compared by their difference only (RFC 9293, section 3.4).
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from kernel.contracts.dissector import CLIENT, SERVER

WAITING_SEGMENTS = 256
WAITING_BYTES = 4 << 20
"""Bytes that wait for earlier ones; beyond that the earlier ones count as not captured."""
_MASK = 0xFFFF_FFFF
_HALF = 0x8000_0000


class Segment(msgspec.Struct, frozen=True, kw_only=True):
    """A TCP segment."""

    time: float
    source: tuple[str, int]
    """Address and port."""
    destination: tuple[str, int]
    number: int
    acknowledged: int | None
    syn: bool = False
    fin: bool = False
    reset: bool = False
    data: bytes = b""
    cut: int = 0
    """Bytes at the end that were not captured."""


class Chunk(msgspec.Struct, frozen=True):
    """A sender's next bytes.

    If ``data`` is empty, ``lost`` bytes were not captured; None: nobody knows how many.
    """

    sender: int
    data: bytes = b""
    lost: int | None = 0


class _Half:
    """One sender of a connection."""

    def __init__(self, sender: int) -> None:
        self.sender = sender
        self.repeated = 0
        self.lost = 0
        self._next: int | None = None
        self._waiting: dict[int, tuple[bytes, int]] = {}

    def begin(self, number: int) -> None:
        """Set the sequence number of the first byte, unless it is known."""
        if self._next is None:
            self._next = number

    def take(self, number: int, data: bytes, cut: int) -> Iterator[Chunk]:
        """Process a segment's bytes, and how many more it had."""
        if self._next is None:
            # Nothing of this sender was captured before.
            self._next = number
            yield Chunk(self.sender, lost=None)
        # Positive: there is a gap.  Negative: its first bytes were seen before.
        ahead = _difference(number, self._next)
        if ahead > 0:
            self._wait(number, data, cut)
            if len(self._waiting) > WAITING_SEGMENTS or self._waiting_bytes() > WAITING_BYTES:
                yield from self._jump()
            return
        yield from self._deliver(data, cut, -ahead)
        yield from self._drain()

    def acknowledged(self, number: int) -> Iterator[Chunk]:
        """Record an acknowledgement: bytes before ``number`` that were not seen will not be seen any more."""
        # The receiver has everything before ``number``.  So the gap in front of the bytes that wait was
        # filled for it, and not for us.
        while self._waiting and _difference(number, self._first_waiting()) >= 0:
            yield from self._jump()

    def finish(self) -> Iterator[Chunk]:
        """Give up waiting: nothing more arrives."""
        while self._waiting:
            yield from self._jump()

    def _wait(self, number: int, data: bytes, cut: int) -> None:
        known = self._waiting.get(number)
        if known is not None:
            self.repeated += min(len(known[0]), len(data))
        # A retransmission may have more bytes than the segment that it repeats.
        if known is None or len(known[0]) < len(data):
            self._waiting[number] = data, cut

    def _waiting_bytes(self) -> int:
        return sum(len(data) for data, _ in self._waiting.values())

    def _first_waiting(self) -> int:
        assert self._next is not None
        begin = self._next
        # By distance and not by number: numbers wrap.
        return min(self._waiting, key=lambda number: _difference(number, begin))

    def _jump(self) -> Iterator[Chunk]:
        """Skip the bytes before the first that waits."""
        assert self._next is not None
        first = self._first_waiting()
        lost = _difference(first, self._next)
        self.lost += lost
        self._next = first
        yield Chunk(self.sender, lost=lost)
        yield from self._drain()

    def _drain(self) -> Iterator[Chunk]:
        while self._waiting and self._next is not None:
            first = self._first_waiting()
            # Positive: its first bytes have come in another segment.
            behind = _difference(self._next, first)
            if behind < 0:
                return
            yield from self._deliver(*self._waiting.pop(first), behind)

    def _deliver(self, data: bytes, cut: int, known: int) -> Iterator[Chunk]:
        """Yield bytes, of which the first ``known`` were yielded before."""
        assert self._next is not None
        self.repeated += min(known, len(data))
        rest = data[known:]
        # Bytes that the capture has cut off may have been seen in another segment.
        cut -= max(known - len(data), 0)
        if rest:
            self._next = (self._next + len(rest)) & _MASK
            yield Chunk(self.sender, rest)
        if cut > 0:
            self._next = (self._next + cut) & _MASK
            self.lost += cut
            yield Chunk(self.sender, lost=cut)


class TcpConversation:
    """One TCP connection."""

    def __init__(self, client: tuple[str, int], server: tuple[str, int]) -> None:
        self.client = client
        self.server = server
        self.round_trip: float | None = None
        """Seconds that the handshake took."""
        self.reset: bool = False
        self._halves = (_Half(CLIENT), _Half(SERVER))
        self._syn: tuple[float, int] | None = None
        self._ended = [False, False]

    def sender_of(self, segment: Segment) -> int:
        """Return who sent a segment."""
        return CLIENT if segment.source == self.client else SERVER

    def starts_new_connection(self, segment: Segment) -> bool:
        """Whether this SYN begins another connection between the same ports."""
        # A retransmitted SYN has the same number; a new connection has a new one (RFC 9293, section 3.4.1).
        begun = segment.syn and segment.acknowledged is None
        return begun and (self._syn is None or self._syn[1] != segment.number)

    def over(self) -> bool:
        """Whether both sides have sent FIN, or one has sent RST."""
        return self.reset or all(self._ended)

    def take(self, segment: Segment) -> Iterator[Chunk]:
        """Process a segment; yield the next bytes of either sender."""
        sender = self.sender_of(segment)
        half = self._halves[sender]
        number = segment.number
        if segment.syn:
            # A SYN takes a sequence number of its own; data begins behind it.
            number = (number + 1) & _MASK
            self._handshake(segment, sender)
            half.begin(number)
        # The third packet of the handshake: from the client's SYN to it is one round trip as the observer
        # sees it, wherever it stands.
        elif self._syn is not None and self.round_trip is None and sender == CLIENT:
            self.round_trip = segment.time - self._syn[0]
        if segment.acknowledged is not None:
            # Before this segment's own bytes: what it acknowledges came earlier.
            yield from self._halves[1 - sender].acknowledged(segment.acknowledged)
        # What has no bytes, as a bare acknowledgement, must not set where the stream of a sender begins.
        if segment.data or segment.cut:
            yield from half.take(number, segment.data, segment.cut)
        if segment.fin:
            self._ended[sender] = True
        if segment.reset:
            self.reset = True

    def finish(self) -> Iterator[Chunk]:
        """Yield what still waits for bytes that will not arrive."""
        for half in self._halves:
            yield from half.finish()

    def figures(self) -> dict[str, float | int | str]:
        """Return the figures of TCP itself."""
        facts: dict[str, float | int | str] = {
            "retransmitted_bytes": sum(half.repeated for half in self._halves),
            "missing_bytes": sum(half.lost for half in self._halves),
            "end": "reset" if self.reset else "closed" if all(self._ended) else "open",
        }
        return facts if self.round_trip is None else {"rtt_ms": round(self.round_trip * 1e3, 3), **facts}

    def _handshake(self, segment: Segment, sender: int) -> None:
        if sender == CLIENT and segment.acknowledged is None and self._syn is None:
            self._syn = segment.time, segment.number


def _difference(number: int, other: int) -> int:
    """Return how far ``number`` is ahead of ``other``, in serial number arithmetic."""
    return ((number - other + _HALF) & _MASK) - _HALF
