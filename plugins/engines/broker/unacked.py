"""Unacked: the messages that were delivered to one receiver and not acknowledged, as ranges of delivery tags.

A range is one span, however many messages it has.  To acknowledge a thousand messages at once costs as much
as one, and single acknowledgements in order only move the start of the first range.

The ranges are in a list, in the order of the tags.  The list is not shortened for each range that is removed
at the front: ``_first`` is the index of the first range that is still there.  Entries before it are stale.

Invariants: first tags ascend, ranges do not overlap, and no range is empty.  There are gaps between ranges:
tags that were acknowledged, and tags of deliveries that need no acknowledgement, which never were here.

What is done often is cheap: a new range is appended, and the first range is found without a search, because
clients mostly acknowledge in the order of delivery.  Another tag is found by bisection.  Only an
acknowledgement out of order moves the entries behind it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from itertools import islice
from operator import attrgetter
from typing import TYPE_CHECKING

import msgspec

from plugins.engines.broker.errors import PreconditionFailed
from plugins.engines.broker.span import Span

if TYPE_CHECKING:
    from plugins.engines.broker.consumer import Consumer
    from plugins.engines.broker.queue import Queue

_FIRST_TAG = attrgetter("first_tag")
_SAMPLE = 1000
"""Ranges from which the size of all bodies is estimated."""
_FORGET_AFTER = 64
"""The list is shortened when at least so many ranges at its front have been removed."""


class UnackedRange(msgspec.Struct):
    """A range of delivery tags: consecutive messages of one queue for one consumer.

    A ``get`` has no consumer.
    """

    first_tag: int
    span: Span
    queue: Queue
    consumer: Consumer | None

    def __len__(self) -> int:
        return self.span.stop - self.span.start

    def split(self, count: int) -> UnackedRange:
        """Remove the first ``count`` tags from this range and return them as another one."""
        front = UnackedRange(self.first_tag, self.span.split(count), self.queue, self.consumer)
        self.first_tag += count
        return front


class UnknownTag(Exception):
    """A tag in a range is not unacknowledged; ``taken`` has the ranges before it, which were removed."""

    def __init__(self, refusal: PreconditionFailed, taken: list[UnackedRange]) -> None:
        super().__init__(refusal.text)
        self.refusal = refusal
        self.taken = taken


class Unacked:
    """Assigns delivery tags, and finds the messages of a tag."""

    __slots__ = ("_first", "_ranges", "count", "next_tag")

    def __init__(self) -> None:
        self._ranges: list[UnackedRange] = []
        self._first = 0
        self.next_tag = 1
        self.count = 0

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[UnackedRange]:
        """Iterate over the ranges in the order of the tags.  They must not change meanwhile."""
        return islice(self._ranges, self._first, None)

    def add(self, span: Span, queue: Queue, consumer: Consumer | None) -> int:
        """Add a span; return its first delivery tag."""
        # Not ``len(span)``, which costs a call for each delivery.
        tag = self.next_tag
        count = span.stop - span.start
        self.next_tag = tag + count
        self._ranges.append(UnackedRange(tag, span, queue, consumer))
        self.count += count
        return tag

    def take_up_to(self, tag: int) -> list[UnackedRange]:
        """Remove all tags up to ``tag`` (0: all) and return their ranges, in order.

        Raises ``PreconditionFailed`` if ``tag`` is not unacknowledged, even if earlier tags are: RabbitMQ
        does.
        """
        # AMQP 0-9-1, basic.ack: with multiple, a delivery tag of 0 means all outstanding messages.
        if tag == 0:
            return self.take_all()
        index = self._find(tag)
        return self._take_up_to(index, tag - self._ranges[index].first_tag + 1)

    def take_range(self, first: int, last: int) -> list[UnackedRange]:
        """Remove the tags ``first`` to ``last`` and return their ranges.

        Raises ``UnknownTag`` at the first tag that is not unacknowledged; those before it are removed.
        """
        taken: list[UnackedRange] = []
        # Each step takes what one range has of the tags, so the number of steps is that of the ranges.
        while first <= last:
            try:
                index = self._find(first)
            except PreconditionFailed as refusal:
                raise UnknownTag(refusal, taken) from None
            handed = self._take_some(index, first - self._ranges[index].first_tag, last - first + 1)
            span = handed.span
            first += span.stop - span.start
            taken.append(handed)
        return taken

    def take_oldest(self, tag: int) -> UnackedRange | None:
        """Remove the oldest tag and return it as a range, if it is this one.

        None: it is not, and nothing has changed; ``take_range`` then says more.  For clients that
        acknowledge message by message, in the order of delivery: it is one call and not five.
        """
        ranges = self._ranges
        index = self._first
        if index == len(ranges):
            return None
        handed = ranges[index]
        span = handed.span
        if handed.first_tag != tag:
            return None
        self.count -= 1
        if span.stop - span.start > 1:
            return handed.split(1)
        self._first = index = index + 1
        if index == len(ranges):
            # Nothing is left: the stale entries go without a look at their number.
            ranges.clear()
            self._first = 0
        elif index > _FORGET_AFTER:
            self._forget()
        return handed

    def take_all(self) -> list[UnackedRange]:
        """Remove all ranges and return them in order."""
        ranges = self._ranges[self._first :]
        self._ranges = []
        self._first = 0
        self.count = 0
        return ranges

    def restore(self, taken: list[UnackedRange]) -> None:
        """Add ranges again that were removed, under their old tags (a transaction was rolled back)."""
        # Their tags may be lower than those of later deliveries, or between them.  A rollback is rare, so the
        # cost of sorting does not matter.
        self._ranges = sorted(self._ranges[self._first :] + taken, key=_FIRST_TAG)
        self._first = 0
        self.count += sum(map(len, taken))

    def estimated_size(self) -> int:
        """Return an estimate of the octets of all bodies, from a sample of the ranges."""
        if not self.count:
            return 0
        ranges = self._ranges
        size = count = 0
        # The alarms ask twice a second.  A client may have a range for each of a million messages, so that
        # looking at all of them would stop the broker for too long.
        for index in range(self._first, len(ranges), 1 + (len(ranges) - self._first) // _SAMPLE):
            span = ranges[index].span
            count += len(span)
            # The average of the batch: the exact size of a part would make a slice.
            size += span.batch.size * len(span) // len(span.batch.bodies)
        return size * self.count // count

    def _find(self, tag: int) -> int:
        ranges = self._ranges
        index = self._first
        if index < len(ranges):
            handed = ranges[index]
            span = handed.span
            # Clients mostly acknowledge in the order of delivery.  Then the first range is the one.
            if 0 <= tag - handed.first_tag < span.stop - span.start:
                return index
            index = bisect_right(ranges, tag, lo=index, key=_FIRST_TAG) - 1
            handed = ranges[index]
            # For a tag before the first range, the index is that of a stale entry (or -1).  For a tag in a
            # gap, the range that begins before it ends before it, too.
            if index >= self._first and handed.first_tag <= tag < handed.first_tag + len(handed):
                return index
        raise PreconditionFailed(f"unknown delivery tag {tag}")

    def _take_up_to(self, index: int, count: int) -> list[UnackedRange]:
        taken = self._ranges[self._first : index]
        last = self._ranges[index]
        if count == len(last):
            taken.append(last)
            self._first = index + 1
        else:
            taken.append(last.split(count))
            self._first = index
        self.count -= sum(map(len, taken))
        self._forget()
        return taken

    def _take_some(self, index: int, offset: int, most: int) -> UnackedRange:
        """Remove up to ``most`` tags of one range, from ``offset`` in it."""
        ranges = self._ranges
        handed = ranges[index]
        # The tags before ``offset`` stay, as a range of their own in front of this one.
        if offset:
            ranges.insert(index, handed.split(offset))
            index += 1
        span = handed.span
        count = span.stop - span.start
        if count > most:
            handed, count = handed.split(most), most
        elif index == self._first:
            self._first += 1
            self._forget()
        else:
            del ranges[index]
        self.count -= count
        return handed

    def _forget(self) -> None:
        first = self._first
        # Only when more than half of the list is stale.  To delete the front moves the rest, which is then no
        # longer than what was removed since the last time.
        if first > _FORGET_AFTER and first * 2 > len(self._ranges):
            del self._ranges[:first]
            self._first = 0
