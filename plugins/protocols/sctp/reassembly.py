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


class _Sequence:
    """Consecutive fragments of one message."""

    __slots__ = ("end", "fragments", "start")

    def __init__(self, tsn: int, fragment: Data) -> None:
        self.start = self.end = tsn
        self.fragments = [fragment]

    def belongs_with(self, later: _Sequence) -> bool:
        """Whether ``later`` continues the message that this sequence leaves incomplete."""
        ours, theirs = self.fragments[-1], later.fragments[0]
        return (
            not ours.flags & ENDING
            and not theirs.flags & BEGINNING
            and (ours.stream, ours.number, ours.flags & UNORDERED)
            == (theirs.stream, theirs.number, theirs.flags & UNORDERED)
        )


class ByTsn:
    """Reassembly of DATA.

    Sequences are indexed by first and last TSN, so that a fragment finds its neighbours in O(1).
    """

    def __init__(self) -> None:
        self.bytes = 0
        self._starting: dict[int, _Sequence] = {}
        self._ending: dict[int, _Sequence] = {}
        self._forgotten = -1
        """The TSN of the last ``forget``: no sequence begins at it or below."""

    def add(self, tsn: int, fragment: Data) -> list[Data] | None:
        """Store a fragment; return all fragments of its message when they are complete, else None."""
        self.bytes += charge(fragment.data)
        sequence = _Sequence(tsn, fragment)
        before = self._ending.get(tsn - 1)
        if before is not None and before.belongs_with(sequence):
            before.fragments.append(fragment)
            before.end = tsn
            del self._ending[tsn - 1]
            sequence = before
        else:
            self._starting[tsn] = sequence
        # The fragment may join two sequences into one.
        after = self._starting.get(tsn + 1)
        if after is not None and sequence.belongs_with(after):
            sequence.fragments += after.fragments
            sequence.end = after.end
            del self._starting[tsn + 1]
        # Set last: ``end`` is only final here.
        self._ending[sequence.end] = sequence
        # Consecutive TSNs from B to E are a whole message (6.9), whatever the order of arrival.
        if not (sequence.fragments[0].flags & BEGINNING and sequence.fragments[-1].flags & ENDING):
            return None
        self._drop(sequence)
        return sequence.fragments

    def forget(self, cumulative: int) -> None:
        """Drop all fragments up to a TSN: the peer has abandoned their messages."""
        # The shorter of the two is walked, the TSNs that are newly passed or what is stored: a packet may
        # have thousands of FORWARD-TSNs, each of which passes a single TSN, while much is stored far ahead.
        passed = range(self._forgotten + 1, cumulative + 1)
        if len(passed) < len(self._starting):
            begun = [tsn for tsn in passed if tsn in self._starting]
        else:
            begun = sorted(tsn for tsn in self._starting if tsn <= cumulative)
        self._forgotten = max(self._forgotten, cumulative)
        for start in begun:
            sequence = self._starting[start]
            self._drop(sequence)
            # Later fragments of the same message stay until another FORWARD-TSN covers them.
            rest = sequence.fragments[cumulative + 1 - start :]
            for offset, fragment in enumerate(rest):
                self.add(cumulative + 1 + offset, fragment)

    def _drop(self, sequence: _Sequence) -> None:
        del self._starting[sequence.start]
        del self._ending[sequence.end]
        self.bytes -= sum(charge(fragment.data) for fragment in sequence.fragments)


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
