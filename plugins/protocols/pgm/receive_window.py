"""The receive window: puts the packets of one source into order (RFC 3208, 3.4 and 6.1).

A packet in order costs one comparison. A packet ahead of a gap is stored until the gap is filled or given up.
``ready`` collects what may be delivered, with ``LOST`` for what never will be.
"""

from __future__ import annotations

from typing import Any

from plugins.protocols.pgm.sequence import MASK, after, distance, span

LOST = None
"""Marks packets that were given up, in ``ready``."""


class ReceiveWindow:
    """Packets from ``next``, the first that was not delivered, to ``lead``, the last that is known.

    An item is whatever the caller makes of a packet; its ``size`` is in bytes.
    """

    __slots__ = (
        "_most",
        "_most_bytes",
        "_out_of_order",
        "_out_of_order_bytes",
        "found",
        "lead",
        "lost",
        "next",
        "ready",
    )

    def __init__(self, first: int, most: int, most_bytes: int) -> None:
        self.next = first
        self.lead = after(first, -1)
        self.ready: list[Any] = []
        self.found: list[tuple[int, int]] = []
        """Ranges that were newly found missing; the caller empties the list. What was given up since is still
        in them."""
        self.lost: list[tuple[int, int]] = []
        """Ranges that were given up; the caller empties the list."""
        self._most = most
        self._most_bytes = most_bytes
        self._out_of_order: dict[int, tuple[Any, int]] = {}
        self._out_of_order_bytes = 0

    def has(self, number: int) -> bool:
        """Whether a packet ahead of the gap is stored."""
        return number in self._out_of_order

    def extend(self, lead: int) -> None:
        """Record that the source has sent up to ``lead``: what is new is missing."""
        self._extend(lead, after(lead))

    def _extend(self, lead: int, limit: int) -> None:
        """Extend to ``lead``; what is new is missing up to ``limit``, without it."""
        beyond = distance(self.lead, lead)
        if beyond <= 0:
            return
        # No room to wait for all of them: the oldest are given up, so that the newest still fit. This also
        # bounds the range below, whatever leading edge an SPM claims.
        if distance(self.next, self.lead) + beyond >= self._most:
            self.give_up_before(after(lead, 1 - self._most))
        first = after(self.lead)
        # A range and not its numbers: one forged packet may jump over the whole window.
        if distance(first, limit) > 0:
            self.found.append((first, after(limit, -1)))
        self.lead = lead

    def put(self, number: int, item: Any, size: int) -> bool:
        """Add a packet; return whether it is new, and no duplicate."""
        ahead = (number - self.next) & MASK
        # More than half of the number space ahead means behind (3.2): delivered before, or given up.
        if ahead > MASK >> 1 or number in self._out_of_order:
            return False
        # The common case of a packet directly behind the newest one.
        if number == (self.lead + 1) & MASK and ahead < self._most:
            self.lead = number
        elif distance(self.lead, number) > 0:
            # All up to this packet are new, but this one has arrived.
            self._extend(number, number)
        if number == self.next:
            self.next = (number + 1) & MASK
            self.ready.append(item)
            if self._out_of_order:
                self._deliver()
            return True
        self._out_of_order[number] = item, size
        self._out_of_order_bytes += size
        # A bound in bytes besides that in packets: 65,536 packets of a jumbo size would be half a gigabyte.
        while self._out_of_order_bytes > self._most_bytes:
            self.give_up_first()
        return True

    def skip(self, number: int) -> None:
        """Give up one packet."""
        self.lost.append((number, number))
        # The loss takes the packet's place in the order, so that ``ready`` has its marker exactly where data
        # is missing.
        self.put(number, LOST, 0)

    def give_up_first(self) -> None:
        """Give up the oldest gap, up to the next packet that is stored."""
        stored = self._out_of_order
        first = self.next
        # Few large packets may be stored behind a long gap: no more numbers are walked than packets stored.
        for _ in range(len(stored)):
            if first in stored:
                break
            first = after(first)
        else:
            first = after(self.next, min(map(self._ahead, stored)))
        self.give_up_before(first)

    def give_up_before(self, limit: int) -> None:
        """Give up everything missing before ``limit``, and deliver what is stored of it."""
        way = distance(self.next, limit)
        if way <= 0:
            return
        # Walk the shorter of the two: the range, or what is stored. A range may be as long as half of the
        # number space, and a forged packet may move the window by all of its length.
        if way <= len(self._out_of_order):
            here = [number for number in span(self.next, after(limit, -1)) if number in self._out_of_order]
        else:
            here = sorted((n for n in self._out_of_order if distance(n, limit) > 0), key=self._ahead)
        for number in here:
            self._lose(number)
            self._take(number)
        self._lose(limit)
        # ``limit`` may be beyond everything heard so far, if the source's trailing edge is.
        if distance(self.lead, after(limit, -1)) > 0:
            self.lead = after(limit, -1)
        self._deliver()

    def _lose(self, until: int) -> None:
        """Report what is missing from ``next`` up to ``until`` as lost."""
        if self.next != until:
            self.lost.append((self.next, after(until, -1)))
            # One marker is enough: it tells the decoder that the data before and after does not belong
            # together.
            if not self.ready or self.ready[-1] is not LOST:
                self.ready.append(LOST)
            self.next = until

    def _deliver(self) -> None:
        out_of_order = self._out_of_order
        while self.next in out_of_order:
            self._take(self.next)

    def _take(self, number: int) -> None:
        item, size = self._out_of_order.pop(number)
        self._out_of_order_bytes -= size
        self.ready.append(item)
        self.next = after(number)

    def _ahead(self, number: int) -> int:
        return (number - self.next) & MASK
