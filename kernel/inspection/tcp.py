"""TCP as somebody sees it who only listens: both senders' bytes in order, and what was not captured (RFC 9293)."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from kernel.contracts.dissector import CLIENT, SERVER

WAITING_SEGMENTS = 256
WAITING_BYTES = 4 << 20
"""So much waits for what comes before it; then that counts as not captured."""
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


class Piece(msgspec.Struct, frozen=True):
    """What comes next of a sender: bytes, or (``data`` empty) so many that were not captured; None: nobody knows how many."""

    sender: int
    data: bytes = b""
    lost: int | None = 0


class _Half:
    """One sender."""

    def __init__(self, sender: int) -> None:
        self.sender = sender
        self.repeated = 0
        self.lost = 0
        self._next: int | None = None
        self._waiting: dict[int, tuple[bytes, int]] = {}

    def begin(self, number: int) -> None:
        """Take the number of the first byte, unless it is known."""
        if self._next is None:
            self._next = number

    def take(self, number: int, data: bytes, cut: int) -> Iterator[Piece]:
        """Take a segment's bytes, and how many more it had."""
        if self._next is None:
            self._next = number
            yield Piece(self.sender, lost=None)
        ahead = _difference(number, self._next)
        if ahead > 0:
            self._wait(number, data, cut)
            if len(self._waiting) > WAITING_SEGMENTS or self._waiting_bytes() > WAITING_BYTES:
                yield from self._jump()
            return
        yield from self._deliver(data, cut, -ahead)
        yield from self._drain()

    def acknowledged(self, number: int) -> Iterator[Piece]:
        """The other side has all before ``number``: what we have not seen of it we shall not see."""
        while self._waiting and _difference(number, self._first_waiting()) >= 0:
            yield from self._jump()

    def finish(self) -> Iterator[Piece]:
        """Nothing more comes."""
        while self._waiting:
            yield from self._jump()

    def _wait(self, number: int, data: bytes, cut: int) -> None:
        known = self._waiting.get(number)
        if known is not None:
            self.repeated += min(len(known[0]), len(data))
        if known is None or len(known[0]) < len(data):
            self._waiting[number] = data, cut

    def _waiting_bytes(self) -> int:
        return sum(len(data) for data, _ in self._waiting.values())

    def _first_waiting(self) -> int:
        assert self._next is not None
        begin = self._next
        return min(self._waiting, key=lambda number: _difference(number, begin))

    def _jump(self) -> Iterator[Piece]:
        """Give up what is before the first that waits."""
        assert self._next is not None
        first = self._first_waiting()
        lost = _difference(first, self._next)
        self.lost += lost
        self._next = first
        yield Piece(self.sender, lost=lost)
        yield from self._drain()

    def _drain(self) -> Iterator[Piece]:
        while self._waiting and self._next is not None:
            first = self._first_waiting()
            behind = _difference(self._next, first)
            if behind < 0:
                return
            yield from self._deliver(*self._waiting.pop(first), behind)

    def _deliver(self, data: bytes, cut: int, known: int) -> Iterator[Piece]:
        """Give bytes, of which the first ``known`` were given before."""
        assert self._next is not None
        self.repeated += min(known, len(data))
        rest = data[known:]
        cut -= max(known - len(data), 0)
        if rest:
            self._next = (self._next + len(rest)) & _MASK
            yield Piece(self.sender, rest)
        if cut > 0:
            self._next = (self._next + cut) & _MASK
            self.lost += cut
            yield Piece(self.sender, lost=cut)


class TcpConversation:
    """One connection."""

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
        """Return who sent it."""
        return CLIENT if segment.source == self.client else SERVER

    def begins_anew(self, segment: Segment) -> bool:
        """Whether this SYN is that of another connection between the same ports."""
        begun = segment.syn and segment.acknowledged is None
        return begun and (self._syn is None or self._syn[1] != segment.number)

    def over(self) -> bool:
        """Whether both have said that they will send no more, or one has hung up."""
        return self.reset or all(self._ended)

    def take(self, segment: Segment) -> Iterator[Piece]:
        """Take a segment; give what comes next of either sender."""
        sender = self.sender_of(segment)
        half = self._halves[sender]
        number = segment.number
        if segment.syn:
            number = (number + 1) & _MASK
            self._handshake(segment, sender)
            half.begin(number)
        elif self._syn is not None and self.round_trip is None and sender == CLIENT:
            self.round_trip = segment.time - self._syn[0]
        if segment.acknowledged is not None:
            yield from self._halves[1 - sender].acknowledged(segment.acknowledged)
        if segment.data or segment.cut:
            yield from half.take(number, segment.data, segment.cut)
        if segment.fin:
            self._ended[sender] = True
        if segment.reset:
            self.reset = True

    def finish(self) -> Iterator[Piece]:
        """Give what still waits for bytes that will not come."""
        for half in self._halves:
            yield from half.finish()

    def figures(self) -> dict[str, float | int | str]:
        """Return what TCP itself has to say."""
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
    """Return how far ``number`` is ahead of ``other``, in serial arithmetic."""
    return ((number - other + _HALF) & _MASK) - _HALF
