"""Backlog: the messages of a queue that wait for a consumer, in order, by priority.

The order is that of the positions; what comes back (requeue) finds its old place again, because a
reader that rejects a message must not see it overtaken by later ones (RabbitMQ since 2.7).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, TypeAlias

from kernel.contracts.message import Batch
from plugins.engines.broker.paged import Paged
from plugins.engines.broker.span import Span

PER_MESSAGE = 64
"""Octets that a message costs besides its body: a bytes object, its places in lists (measured: 52)."""

Item: TypeAlias = Span | Paged
Read: TypeAlias = Callable[[Paged, Item | None], list[Span]]
"""A page, and what follows it, to the page's spans."""


class Backlog:
    """Spans in order, or pages of them that lie on disk; one lane a priority, the highest lane first."""

    __slots__ = ("count", "lanes", "paged", "read", "size")

    def __init__(self, highest_priority: int, read: Read) -> None:
        self.lanes: list[deque[Any]] = [deque() for _ in range(highest_priority + 1)]
        """Of items; a page is known by its ``batch``, which is None."""
        self.count = 0
        self.size = 0
        self.paged = 0
        """How much of ``size`` is in pages."""
        self.read = read

    def append(self, span: Span, size: int) -> None:
        """Add new messages behind all others of their priority."""
        lanes = self.lanes
        lane = lanes[0] if len(lanes) == 1 else self._lane_of(span)
        lane.append(span)
        self.count += span.stop - span.start
        self.size += size

    def append_page(self, page: Paged, priority: int) -> None:
        """Add what lies on disk, behind all others of its priority."""
        self.lanes[min(priority, len(self.lanes) - 1)].append(page)
        self.count += page.count
        self.size += page.size
        self.paged += page.size

    def put_back(self, span: Span) -> None:
        """Return messages to their old place."""
        self.count += len(span)
        self.size += span.size()
        lane = self._lane_of(span)
        overtaken: list[Item] = []
        while lane and lane[0].first < span.first:
            item = lane[0]
            if item.batch is None and item.stop > span.first:
                self._read_front(lane)
            else:
                overtaken.append(lane.popleft())
        if overtaken and (last := overtaken[-1]).batch is not None and span.continues(last):
            last.stop = span.stop
        else:
            lane.appendleft(span)
        lane.extendleft(reversed(overtaken))

    def take_one(self) -> Span | None:
        """Remove the message that leaves next."""
        for lane in reversed(self.lanes):
            if lane and self._has_front(lane):
                return self._taken(_front_of(lane, 1))
        return None

    def take(self, most: int, most_bytes: int) -> tuple[list[Span], int, int]:
        """Remove up to ``most`` messages; return their spans, how many and how large they are.

        ``most_bytes`` is passed by a message at most; within a batch it is kept to on the average, since
        weighing each message would cost more than it saves.
        """
        spans: list[Span] = []
        count = size = 0
        for lane in reversed(self.lanes):
            while lane and count < most and size < most_bytes:
                span = lane[0]
                batch = span.batch
                if batch is None:
                    self._read_front(lane)
                    continue
                length = span.stop - span.start
                if count + length <= most and size + batch.size <= most_bytes:
                    lane.popleft()
                else:
                    span = _front_of(lane, min(most - count, _share(batch, most_bytes - size)))
                    length = span.stop - span.start
                spans.append(span)
                count += length
                size += batch.size if length == len(batch.bodies) else span.size()
        self.count -= count
        self.size -= size
        return spans, count, size

    def take_oldest(self, most: int) -> Span | None:
        """Remove up to ``most`` messages at the front of the lowest priority: what is shed first.

        None: they had to be read, and may be fewer, or less, than was thought.
        """
        lane = next(lane for lane in self.lanes if lane)
        if lane[0].batch is None:
            self._read_front(lane)
            return None
        return self._taken(_front_of(lane, most))

    def take_expired(self, now: float) -> list[Span]:
        """Remove what has expired at the front of each lane (behind the front RabbitMQ lets it wait, too)."""
        expired: list[Span] = []
        for lane in self.lanes:
            while lane and (when := lane[0].expires_at) is not None and when <= now:
                if lane[0].batch is None:
                    self._read_front(lane)
                else:
                    expired.append(self._taken(lane.popleft()))
        return expired

    def next_expiry(self) -> float | None:
        """Return when the first of the fronts expires."""
        times = [lane[0].expires_at for lane in self.lanes if lane]
        return min((time for time in times if time is not None), default=None)

    def take_all(self) -> list[Item]:
        """Remove everything."""
        items = [item for lane in self.lanes for item in lane]
        for lane in self.lanes:
            lane.clear()
        self.count = self.size = self.paged = 0
        return items

    def _has_front(self, lane: deque[Any]) -> bool:
        """Whether a lane that is not empty has a message, once it has been read."""
        while lane and lane[0].batch is None:
            self._read_front(lane)
        return bool(lane)

    def _read_front(self, lane: deque[Any]) -> None:
        """Put the spans of a lane's first page in its place; some may be lost, the sizes were estimated."""
        page = lane.popleft()
        spans = self.read(page, lane[0] if lane else None)
        lane.extendleft(reversed(spans))
        self.paged -= page.size
        self.count += sum(map(len, spans)) - page.count
        self.size += sum(span.batch.size for span in spans) - page.size

    def _taken(self, span: Span) -> Span:
        self.count -= span.stop - span.start
        self.size -= span.size()
        return span

    def _lane_of(self, span: Span) -> deque[Any]:
        return self.lanes[max(0, min(span.batch.envelope.priority, len(self.lanes) - 1))]


def _share(batch: Batch, most_bytes: int) -> int:
    """How many messages of average size make so many bytes, at least one."""
    return max(1, most_bytes * len(batch.bodies) // batch.size) if batch.size else len(batch.bodies)


def _front_of(lane: deque[Any], most: int) -> Span:
    """Remove up to ``most`` messages of the first item, a span."""
    span: Span = lane[0]
    if len(span) > most:
        return span.split(most)
    lane.popleft()
    return span
