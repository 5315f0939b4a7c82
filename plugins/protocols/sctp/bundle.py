"""DATA chunks that went out together, and their sizes."""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate
from operator import attrgetter

import msgspec

from plugins.protocols.sctp.path import Path
from plugins.protocols.sctp.schedule import Outgoing

_first = attrgetter("first")


class Bundle(msgspec.Struct, eq=False):
    """Chunks of DATA or I-DATA with TSNs that follow each other: one packet's, and so they share their fate.

    When they do not, because the peer has kept some, or a message is given up, the bundle is split.
    """

    first: int
    last: int
    """TSNs."""
    parts: list[bytes]
    """Two for each chunk: its header, and its data with the padding."""
    messages: list[Outgoing]
    """One for each chunk."""
    path: Path
    size: int = 0
    """Bytes of user data."""
    length: int = 0
    """Bytes of the chunks."""
    limited: bool = False
    """Whether one of the messages may be given up."""
    sends: int = 0
    sent_at: float = 0.0
    missing_reports: int = 0
    in_flight: bool = False
    fast_retransmitted: bool = False
    """Whether it was retransmitted fast: that happens once (7.2.4)."""
    acknowledged: bool = False
    """By a gap block, which the peer may take back."""
    abandoned: bool = False

    def awaits_retransmission(self) -> bool:
        """Whether it is to be sent again."""
        return not (self.in_flight or self.acknowledged or self.abandoned)

    def fitting(self, room: int) -> int:
        """Return how many of the chunks, from the first, fit into ``room`` bytes."""
        if self.length <= room:
            return len(self.messages)
        lengths = [
            len(header) + len(data) for header, data in zip(self.parts[::2], self.parts[1::2], strict=True)
        ]
        return sum(length <= room for length in accumulate(lengths))

    def split(self, tsn: int) -> Bundle:
        """Keep what is before ``tsn``, and return the rest."""
        count = tsn - self.first
        parts = self.parts[2 * count :]
        rest = msgspec.structs.replace(
            self,
            first=tsn,
            parts=parts,
            messages=self.messages[count:],
            size=sum(map(_data_size, parts[::2])),
            length=sum(map(len, parts)),
        )
        del self.parts[2 * count :], self.messages[count:]
        self.last = tsn - 1
        self.size -= rest.size
        self.length -= rest.length
        return rest


def _data_size(header: bytes) -> int:
    """Return the bytes of data that a chunk's header announces."""
    return int.from_bytes(header[2:4], "big") - len(header)


class Bundles(list[Bundle]):
    """Bundles in the order of their TSNs, which follow each other without a gap."""

    def at(self, tsn: int) -> int:
        """Return the index of the bundle that ``tsn`` is in; -1 when it is below all, and the last index when above."""
        return bisect_right(self, tsn, key=_first) - 1

    def find(self, tsn: int) -> Bundle | None:
        """Return the bundle that ``tsn`` is in."""
        at = self.at(tsn)
        return self[at] if at >= 0 and tsn <= self[at].last else None

    def cut(self, tsn: int) -> int:
        """Have a bundle begin at ``tsn``; return its index, or that of what would follow."""
        at = self.at(tsn)
        if at < 0 or self[at].first == tsn:
            return max(at, 0)
        if tsn > self[at].last:
            return at + 1
        rest = self[at].split(tsn)
        self.insert(at + 1, rest)
        if rest.awaits_retransmission():
            rest.path.is_lost(tsn)
        return at + 1

    def between(self, first: int, last: int) -> list[Bundle]:
        """Return the bundles of these TSNs; those at the ends are cut."""
        begin = self.cut(first)
        return self[begin : self.cut(last + 1)]
