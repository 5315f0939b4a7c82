"""Putting pieces together: by TSN where they are DATA (RFC 9260, 6.9), by message and number where they are I-DATA (RFC 8260, 2.2).

Pieces are stored as they come; ``bytes`` is what is stored, as ``charge`` counts it.
"""

from __future__ import annotations

from plugins.protocols.sctp.chunks import BEGINNING, ENDING, UNORDERED, Data

LEAST_CHARGE = 64
"""Bytes that a piece counts at the least."""


def charge(data: bytes) -> int:
    """Return what holding ``data`` counts: a byte alone takes more than a byte, and a peer may send nothing else."""
    return max(len(data), LEAST_CHARGE)


class _Batch:
    """Consecutive pieces of one message."""

    __slots__ = ("end", "pieces", "start")

    def __init__(self, tsn: int, piece: Data) -> None:
        self.start = self.end = tsn
        self.pieces = [piece]

    def belongs_with(self, later: _Batch) -> bool:
        """Whether the batch ``later`` goes on with what this one leaves open."""
        ours, theirs = self.pieces[-1], later.pieces[0]
        return (
            not ours.flags & ENDING
            and not theirs.flags & BEGINNING
            and (ours.stream, ours.number, ours.flags & UNORDERED)
            == (theirs.stream, theirs.number, theirs.flags & UNORDERED)
        )


class ByTsn:
    """Reassembly of DATA."""

    def __init__(self) -> None:
        self.bytes = 0
        self._starting: dict[int, _Batch] = {}
        self._ending: dict[int, _Batch] = {}

    def add(self, tsn: int, piece: Data) -> list[Data] | None:
        """Store a piece of a message; return all of its pieces when they are there."""
        self.bytes += charge(piece.data)
        batch = _Batch(tsn, piece)
        before = self._ending.get(tsn - 1)
        if before is not None and before.belongs_with(batch):
            before.pieces.append(piece)
            before.end = tsn
            del self._ending[tsn - 1]
            batch = before
        else:
            self._starting[tsn] = batch
        after = self._starting.get(tsn + 1)
        if after is not None and batch.belongs_with(after):
            batch.pieces += after.pieces
            batch.end = after.end
            del self._starting[tsn + 1]
        self._ending[batch.end] = batch
        if not (batch.pieces[0].flags & BEGINNING and batch.pieces[-1].flags & ENDING):
            return None
        self._drop(batch)
        return batch.pieces

    def forget(self, cumulative: int) -> None:
        """Drop all pieces up to that TSN: the peer has given their messages up."""
        for start in sorted(tsn for tsn in self._starting if tsn <= cumulative):
            batch = self._starting[start]
            self._drop(batch)
            kept = batch.pieces[cumulative + 1 - start :]
            for offset, piece in enumerate(
                kept
            ):  # more of a message that was given up follows, and is dropped in time
                self.add(cumulative + 1 + offset, piece)

    def _drop(self, batch: _Batch) -> None:
        del self._starting[batch.start]
        del self._ending[batch.end]
        self.bytes -= sum(charge(piece.data) for piece in batch.pieces)


class ByNumber:
    """Reassembly of I-DATA."""

    def __init__(self) -> None:
        self.bytes = 0
        self._messages: dict[tuple[int, bool, int], dict[int, Data]] = {}
        self._last: dict[tuple[int, bool, int], int] = {}

    def add(self, key: tuple[int, bool, int], piece: Data) -> list[Data] | None:
        """Store a piece of the message ``key`` (stream, unordered, number); return all when they are there."""
        pieces = self._messages.setdefault(key, {})
        if piece.fragment in pieces:
            return None
        pieces[piece.fragment] = piece
        self.bytes += charge(piece.data)
        if piece.flags & ENDING:
            self._last[key] = piece.fragment
        if len(pieces) != self._last.get(key, -2) + 1 or not all(n in pieces for n in range(len(pieces))):
            return None
        self._drop(key)
        return [pieces[number] for number in range(len(pieces))]

    def forget(self, stream: int, unordered: bool, number: int) -> None:
        """Drop what there is of the stream's messages up to that number."""
        for key in [key for key in self._messages if key[:2] == (stream, unordered) and key[2] <= number]:
            self._drop(key)

    def _drop(self, key: tuple[int, bool, int]) -> None:
        self.bytes -= sum(charge(piece.data) for piece in self._messages.pop(key).values())
        self._last.pop(key, None)
