"""Ledger: what one receiver was handed and has not acknowledged, as ranges of delivery tags.

A range is one span, however many messages it has: acknowledging a thousand at once costs as much as
one, and single acknowledgements in order only move the start of the first range.
"""

from __future__ import annotations

from bisect import bisect_right
from operator import attrgetter
from typing import TYPE_CHECKING

import msgspec

from plugins.engines.broker.errors import PreconditionFailed
from plugins.engines.broker.span import Span

if TYPE_CHECKING:
    from plugins.engines.broker.consumer import Consumer
    from plugins.engines.broker.queue import Queue

_FIRST_TAG = attrgetter("first_tag")
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

    def hand_out(self, span: Span, queue: Queue, consumer: Consumer | None, *, settled: bool) -> int:
        """Give a span its delivery tags and return the first; remember it unless it is settled already."""
        tag = self.next_tag
        count = span.stop - span.start
        self.next_tag = tag + count
        if not settled:
            self._ranges.append(Handed(tag, span, queue, consumer))
            self.count += count
        return tag

    def settle(self, tag: int, *, multiple: bool) -> list[Handed]:
        """Remove one tag, or all up to it, and return what they stood for, in order.

        ``tag`` 0 with ``multiple`` means all.  A tag that is not outstanding is refused in both forms.
        """
        if multiple and tag == 0:
            return self.settle_all()
        index = self._find(tag)
        handed = self._ranges[index]
        offset = tag - handed.first_tag
        if multiple:
            return self._settle_up_to(index, offset + 1)
        return [self._settle_one(index, offset)]

    def settle_all(self) -> list[Handed]:
        """Remove everything and return it in order."""
        ranges = self._ranges[self._first :]
        self._ranges = []
        self._first = 0
        self.count = 0
        return ranges

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

    def _settle_one(self, index: int, offset: int) -> Handed:
        ranges = self._ranges
        handed = ranges[index]
        self.count -= 1
        if offset:
            before = handed.split(offset)
            ranges.insert(index, before)
            index += 1
        if len(handed) > 1:
            return handed.split(1)
        if index == self._first:
            self._first += 1
            self._forget()
        else:
            del ranges[index]
        return handed

    def _forget(self) -> None:
        first = self._first
        if first > _FORGET_AFTER and first * 2 > len(self._ranges):
            del self._ranges[:first]
            self._first = 0
