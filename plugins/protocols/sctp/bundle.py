"""Bundles: DATA chunks that were sent in one packet."""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate
from operator import attrgetter

import msgspec

from plugins.protocols.sctp.path import Path
from plugins.protocols.sctp.schedule import Outgoing

_first = attrgetter("first")


class Bundle(msgspec.Struct, eq=False):
    """DATA or I-DATA chunks with consecutive TSNs that were sent in one packet.

    They are lost or received together. A bundle is split when they are not: when the peer keeps some of the
    chunks only, or when a message is abandoned.
    """

    first: int
    last: int
    """First and last TSN."""
    parts: list[bytes]
    """Two byte strings per chunk: its header, and its data with padding."""
    messages: list[Outgoing]
    """One message per chunk."""
    path: Path
    size: int = 0
    """Bytes of user data."""
    length: int = 0
    """Bytes of the chunks, headers and padding included."""
    limited: bool = False
    """Whether one of the messages may be abandoned."""
    sends: int = 0
    sent_before: int = 0
    """The first TSN that was sent after the last retransmission of this bundle; 0 without one."""
    sent_at: float = 0.0
    missing_reports: int = 0
    in_flight: bool = False
    fast_retransmitted: bool = False
    """Whether it was retransmitted fast, which is done once only (7.2.4, step 5)."""
    acknowledged: bool = False
    """Acknowledged by a gap block, which the peer may revoke (6.2)."""
    abandoned: bool = False

    def awaits_retransmission(self) -> bool:
        """Whether it is lost, and to be retransmitted."""
        return not (self.in_flight or self.acknowledged or self.abandoned)

    def fitting(self, room: int) -> int:
        """Return how many of the chunks, from the first on, fit into ``room`` bytes."""
        if self.length <= room:
            return len(self.messages)
        # The packet may be narrower than the one in which the bundle was sent: another path, or a path MTU
        # that has shrunk.
        lengths = [
            len(header) + len(data) for header, data in zip(self.parts[::2], self.parts[1::2], strict=True)
        ]
        return sum(length <= room for length in accumulate(lengths))

    def split(self, tsn: int) -> Bundle:
        """Keep the chunks before ``tsn``; return a bundle of the others."""
        # TSNs of a bundle are consecutive, one for each chunk.
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
    """Return the length of the user data of a chunk, from its header."""
    return int.from_bytes(header[2:4], "big") - len(header)


class Bundles(list[Bundle]):
    """Bundles in the order of their TSNs, without gaps between them."""

    def at(self, tsn: int) -> int:
        """Return the index of the bundle with ``tsn``.

        It is -1 if ``tsn`` is below all, and the last index if it is above all.
        """
        return bisect_right(self, tsn, key=_first) - 1

    def find(self, tsn: int) -> Bundle | None:
        """Return the bundle with ``tsn``, or None."""
        at = self.at(tsn)
        return self[at] if at >= 0 and tsn <= self[at].last else None

    def cut(self, tsn: int) -> int:
        """Split so that a bundle begins at ``tsn``; return its index, or the index where it would be."""
        at = self.at(tsn)
        if at < 0 or self[at].first == tsn:
            return max(at, 0)
        if tsn > self[at].last:
            return at + 1
        rest = self[at].split(tsn)
        self.insert(at + 1, rest)
        # The heap of lost TSNs has the first TSN of each bundle only: the second half needs an entry of its
        # own.
        if rest.awaits_retransmission():
            rest.path.is_lost(tsn)
        return at + 1

    def between(self, first: int, last: int) -> list[Bundle]:
        """Return the bundles of a range of TSNs, after splitting those at its ends."""
        # In this order: the first cut moves the index that the second one returns.
        begin = self.cut(first)
        return self[begin : self.cut(last + 1)]
