"""Ledger: what one receiver was handed and has not acknowledged, as ranges of delivery tags.

A range is one span, however many messages it has: acknowledging a thousand at once costs as much as
one, and single acknowledgements in order only move the start of the first range.
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
_FORGET_AFTER = 64
"""Settled ranges at the front of the list that are kept before it is shortened."""


class Handed(msgspec.Struct):
    """A range of delivery tags: consecutive messages of one queue handed to one consumer (or to a ``get``)."""

    first_tag: int
    span: Span
    queue: Queue
    consumer: Consumer | None

    def __len__(self) -> int:
        return self.span.stop - self.span.start

    def split(self, count: int) -> Handed:
        """Cut the first ``count`` tags off and return them."""
        front = Handed(self.first_tag, self.span.split(count), self.queue, self.consumer)
        self.first_tag += count
        return front


class UnknownTag(Exception):
    """A tag in a range is not outstanding; ``settled`` came before it."""

    def __init__(self, refusal: PreconditionFailed, settled: list[Handed]) -> None:
        super().__init__(refusal.text)
        self.refusal = refusal
        self.settled = settled


class Ledger:
    """Gives out delivery tags, and finds again what they stand for."""

    __slots__ = ("_first", "_ranges", "count", "next_tag")

    def __init__(self) -> None:
        self._ranges: list[Handed] = []
        self._first = 0
        self.next_tag = 1
        self.count = 0

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[Handed]:
        """Iterate over what is outstanding, in the order of the tags.  Nothing may be settled meanwhile."""
        return islice(self._ranges, self._first, None)

    def hand_out(self, span: Span, queue: Queue, consumer: Consumer | None) -> int:
        """Give a span its delivery tags, remember it, and return the first of them."""
        tag = self.next_tag
        count = span.stop - span.start
        self.next_tag = tag + count
        self._ranges.append(Handed(tag, span, queue, consumer))
        self.count += count
        return tag

    def settle_up_to(self, tag: int) -> list[Handed]:
        """Remove all tags up to one (0: all there are) and return what they stood for, in order.

        RabbitMQ refuses a tag that is not outstanding even if earlier ones are.
        """
        if tag == 0:
            return self.settle_all()
        index = self._find(tag)
        return self._settle_up_to(index, tag - self._ranges[index].first_tag + 1)

    def settle_range(self, first: int, last: int) -> list[Handed]:
        """Remove the tags ``first`` to ``last``; the first that is not outstanding is refused, those before are not."""
        settled: list[Handed] = []
        while first <= last:
            try:
                index = self._find(first)
            except PreconditionFailed as refusal:
                raise UnknownTag(refusal, settled) from None
            handed = self._settle_some(index, first - self._ranges[index].first_tag, last - first + 1)
            first += len(handed)
            settled.append(handed)
        return settled

    def settle_all(self) -> list[Handed]:
        """Remove everything and return it in order."""
        ranges = self._ranges[self._first :]
        self._ranges = []
        self._first = 0
        self.count = 0
        return ranges

    def restore(self, settled: list[Handed]) -> None:
        """Take back what was settled: it is outstanding again, under its old tags."""
        self._ranges = sorted(self._ranges[self._first :] + settled, key=_FIRST_TAG)
        self._first = 0
        self.count += sum(map(len, settled))

    def estimated_size(self) -> int:
        """Return about how many bytes the bodies of what is outstanding have, from a sample of the ranges."""
        if not self.count:
            return 0
        ranges = self._ranges
        size = count = 0
        for index in range(self._first, len(ranges), 1 + (len(ranges) - self._first) // _SAMPLE):
            span = ranges[index].span
            count += len(span)
            size += span.batch.size * len(span) // len(span.batch.bodies)
        return size * self.count // count

    def _find(self, tag: int) -> int:
        ranges = self._ranges
        index = self._first
        if index < len(ranges):
            handed = ranges[index]
            if not handed.first_tag <= tag < handed.first_tag + len(handed):
                index = bisect_right(ranges, tag, lo=index, key=_FIRST_TAG) - 1
                handed = ranges[index]
            if index >= self._first and handed.first_tag <= tag < handed.first_tag + len(handed):
                return index
        raise PreconditionFailed(f"unknown delivery tag {tag}")

    def _settle_up_to(self, index: int, count: int) -> list[Handed]:
        settled = self._ranges[self._first : index]
        last = self._ranges[index]
        if count == len(last):
            settled.append(last)
            self._first = index + 1
        else:
            settled.append(last.split(count))
            self._first = index
        self.count -= sum(map(len, settled))
        self._forget()
        return settled

    def _settle_some(self, index: int, offset: int, most: int) -> Handed:
        """Remove up to ``most`` tags of one range, from ``offset`` in it."""
        ranges = self._ranges
        handed = ranges[index]
        if offset:
            ranges.insert(index, handed.split(offset))
            index += 1
        if len(handed) > most:
            handed = handed.split(most)
        elif index == self._first:
            self._first += 1
            self._forget()
        else:
            del ranges[index]
        self.count -= len(handed)
        return handed

    def _forget(self) -> None:
        first = self._first
        if first > _FORGET_AFTER and first * 2 > len(self._ranges):
            del self._ranges[:first]
            self._first = 0
