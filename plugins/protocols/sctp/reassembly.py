"""Reassembly of fragments.

DATA is joined by consecutive TSNs (RFC 9260, 6.9), I-DATA by message and fragment number (RFC 8260, 2.2).

Fragments are stored as they arrive. ``bytes`` is what is stored, as ``charge`` counts it.
"""

from __future__ import annotations

from plugins.protocols.sctp.chunks import BEGINNING, ENDING, UNORDERED, Data
from plugins.protocols.sctp.numbered import Numbered

MIN_CHARGE = 64
"""Bytes that one stored fragment counts at least."""


def charge(data: bytes) -> int:
    """Return how many bytes of the window ``data`` takes.

    A stored byte costs more than a byte of memory, and a peer may send nothing but single bytes.
    """
    return max(len(data), MIN_CHARGE)


def _belong_together(earlier: Data, later: Data) -> bool:
    """Whether the message that ``earlier`` leaves incomplete goes on with ``later``, the next TSN."""
    return (
        not earlier.flags & ENDING
        and not later.flags & BEGINNING
        and (earlier.stream, earlier.number, earlier.flags & UNORDERED)
        == (later.stream, later.number, later.flags & UNORDERED)
    )


class ByTsn:
    """Reassembly of DATA.

    Consecutive fragments of one message are a sequence. Sequences are indexed by first and last TSN, so that
    a fragment finds its neighbours, and joins them, in O(1), whatever the order in which they come.
    """

    def __init__(self) -> None:
        self.bytes = 0
        self._fragments: dict[int, Data] = {}
        self._ends: dict[int, int] = {}
        """The last TSN of each sequence, by its first."""
        self._starts: dict[int, int] = {}
        """The first TSN of each sequence, by its last."""
        self._forgotten = -1
        """The TSN of the last ``forget``: no sequence begins at it or below."""

    def add(self, tsn: int, fragment: Data) -> list[Data] | None:
        """Store a fragment; return all fragments of its message when they are complete, else None."""
        fragments = self._fragments
        fragments[tsn] = fragment
        self.bytes += charge(fragment.data)
        start = end = tsn
        if tsn - 1 in self._starts and _belong_together(fragments[tsn - 1], fragment):
            start = self._starts.pop(tsn - 1)
        # The fragment may join two sequences into one.
        if tsn + 1 in self._ends and _belong_together(fragment, fragments[tsn + 1]):
            end = self._ends.pop(tsn + 1)
        self._ends[start] = end
        self._starts[end] = start
        # Consecutive TSNs from B to E are a whole message (6.9), whatever the order of arrival.
        if not (fragments[start].flags & BEGINNING and fragments[end].flags & ENDING):
            return None
        return self._take(start, end)

    def forget(self, cumulative: int) -> None:
        """Drop all fragments up to a TSN: the peer has abandoned their messages."""
        # The shorter of the two is walked, the TSNs that are newly passed or what is stored: a packet may
        # have thousands of FORWARD-TSNs, each of which passes a single TSN, while much is stored far ahead.
        passed = range(self._forgotten + 1, cumulative + 1)
        if len(passed) < len(self._ends):
            begun = [tsn for tsn in passed if tsn in self._ends]
        else:
            begun = [tsn for tsn in self._ends if tsn <= cumulative]
        self._forgotten = max(self._forgotten, cumulative)
        for start in begun:
            end = self._ends[start]
            self._take(start, min(end, cumulative))
            # Later fragments of the same message stay until another FORWARD-TSN covers them.
            if end > cumulative:
                self._ends[cumulative + 1] = end
                self._starts[end] = cumulative + 1

    def _take(self, start: int, end: int) -> list[Data]:
        """Remove and return the fragments from the start of a sequence up to ``end``."""
        self._starts.pop(self._ends.pop(start))
        taken = [self._fragments.pop(tsn) for tsn in range(start, end + 1)]
        self.bytes -= sum(charge(fragment.data) for fragment in taken)
        return taken


class _Incomplete:
    """The fragments of one message that have arrived, by number."""

    __slots__ = ("fragments", "highest", "last")

    def __init__(self) -> None:
        self.fragments: dict[int, Data] = {}
        self.highest = -1
        self.last: int | None = None
        """The number of the last fragment, if that has arrived."""

    def is_complete(self) -> bool:
        """Whether all fragments are there: as many as the last one says, and none behind it."""
        return self.last is not None and len(self.fragments) - 1 == self.last == self.highest

    def charge(self) -> int:
        return sum(charge(fragment.data) for fragment in self.fragments.values())


class ByNumber:
    """Reassembly of I-DATA, whose fragments carry the number of their message (MID) and their own (FSN)."""

    def __init__(self) -> None:
        self.bytes = 0
        self._streams: dict[tuple[int, bool], Numbered[_Incomplete]] = {}

    def add(self, stream: int, unordered: bool, number: int, fragment: Data) -> list[Data] | None:
        """Store a fragment of the message with that number (MID).

        Return all fragments when complete, else None.
        """
        messages = self._streams.get((stream, unordered))
        if messages is None:
            messages = self._streams[stream, unordered] = Numbered()
        message = messages.items.get(number)
        if message is None:
            message = _Incomplete()
            messages.add(number, message)
        fragments, fsn = message.fragments, fragment.fsn
        # A repeated FSN under a new TSN is a fault of the peer; the first one counts.
        if fsn in fragments:
            return None
        fragments[fsn] = fragment
        message.highest = max(message.highest, fsn)
        self.bytes += charge(fragment.data)
        # The last fragment may come before others.
        if fragment.flags & ENDING:
            message.last = fsn
        if not message.is_complete():
            return None
        self.bytes -= messages.remove(number).charge()
        if not messages.items:
            del self._streams[stream, unordered]
        return [fragments[number] for number in range(len(fragments))]

    def forget(self, stream: int, unordered: bool, number: int) -> None:
        """Drop the fragments of a stream's messages up to and including that MID."""
        messages = self._streams.get((stream, unordered))
        if messages is None:
            return
        # I-FORWARD-TSN names the last skipped message of a stream; all before it are skipped, too (RFC 8260,
        # 2.3.1).
        for message in messages.remove_until(number):
            self.bytes -= message.charge()
        if not messages.items:
            del self._streams[stream, unordered]
