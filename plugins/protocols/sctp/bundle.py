"""DATA chunks that went out together, and their sizes."""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate
from operator import attrgetter

from plugins.protocols.sctp.path import Path
from plugins.protocols.sctp.schedule import Outgoing

_first = attrgetter("first")


class Bundle:
    """Chunks of DATA or I-DATA with TSNs that follow each other: one packet's, and so they share their fate.

    When they do not, because the peer has kept some, or a message is given up, the bundle is split.
    """

    __slots__ = (
        "abandoned",
        "acknowledged",
        "fast",
        "first",
        "in_flight",
        "last",
        "length",
        "limited",
        "messages",
        "misses",
        "parts",
        "path",
        "sends",
        "sent_at",
        "size",
    )

    def __init__(self, first: int, parts: list[bytes], messages: list[Outgoing], path: Path) -> None:
        self.first = first
        """TSN."""
        self.last = first + len(messages) - 1
        self.parts = parts
        """Two for each chunk: its header, and its data with the padding."""
        self.messages = messages
        """One for each chunk."""
        self.path = path
        self.size = 0
        """Bytes of user data."""
        self.length = 0
        """Bytes of the chunks."""
        self.limited = False
        """Whether one of the messages may be given up."""
        self.sends = 0
        self.sent_at = 0.0
        self.misses = 0
        self.in_flight = False
        self.fast = False
        """Whether it was retransmitted fast: that happens once (7.2.4)."""
        self.acknowledged = False
        """By a gap block, which the peer may take back."""
        self.abandoned = False

    def waits(self) -> bool:
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
        rest = Bundle(tsn, self.parts[2 * count :], self.messages[count:], self.path)
        del self.parts[2 * count :], self.messages[count:]
        self.last = tsn - 1
        rest.size = sum(map(_data_size, rest.parts[::2]))
        rest.length = sum(map(len, rest.parts))
        self.size -= rest.size
        self.length -= rest.length
        for same in (
            "limited",
            "sends",
            "sent_at",
            "misses",
            "in_flight",
            "fast",
            "acknowledged",
            "abandoned",
        ):
            setattr(rest, same, getattr(self, same))
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
        if rest.waits():
            rest.path.is_lost(tsn)
        return at + 1

    def between(self, first: int, last: int) -> list[Bundle]:
        """Return the bundles of these TSNs; those at the ends are cut."""
        begin = self.cut(first)
        return self[begin : self.cut(last + 1)]
