"""Backlog: the messages of a queue that wait for a consumer, in order, by priority.

The order is that of the positions; what comes back (requeue) finds its old place again, because a
reader that rejects a message must not see it overtaken by later ones (RabbitMQ since 2.7).
"""

from __future__ import annotations

from collections import deque

from kernel.contracts.message import Run
from plugins.engines.broker.span import Span


class Backlog:
    """Spans in order; one lane a priority, the highest lane first."""

    __slots__ = ("count", "lanes", "size")

    def __init__(self, highest_priority: int = 0) -> None:
        self.lanes: list[deque[Span]] = [deque() for _ in range(highest_priority + 1)]
        self.count = 0
        self.size = 0

    def append(self, span: Span, size: int) -> None:
        """Add new messages behind all others of their priority."""
        lanes = self.lanes
        lane = lanes[0] if len(lanes) == 1 else self._lane_of(span)
        lane.append(span)
        self.count += span.stop - span.start
        self.size += size

    def put_back(self, span: Span) -> None:
        """Return messages to their old place."""
        self.count += len(span)
        self.size += span.size()
        lane = self._lane_of(span)
        overtaken: list[Span] = []
        while lane and lane[0].first < span.first:
            overtaken.append(lane.popleft())
        if overtaken and span.continues(overtaken[-1]):
            overtaken[-1].stop = span.stop
        else:
            lane.appendleft(span)
        lane.extendleft(reversed(overtaken))

    def head(self) -> Span | None:
        """Return the span that leaves next."""
        for lane in reversed(self.lanes):
            if lane:
                return lane[0]
        return None

    def take_one(self) -> Span | None:
        """Remove the message that leaves next."""
        for lane in reversed(self.lanes):
            if lane:
                return self._taken(_front_of(lane, 1))
        return None

    def take(self, most: int, most_bytes: int) -> tuple[list[Span], int, int]:
        """Remove up to ``most`` messages; return their spans, how many and how large they are.

        ``most_bytes`` is passed by a message at most; within a run it is kept to on the average, since
        weighing each message would cost more than it saves.
        """
        spans: list[Span] = []
        count = size = 0
        for lane in reversed(self.lanes):
            while lane and count < most and size < most_bytes:
                span = lane[0]
                run = span.run
                length = span.stop - span.start
                if count + length <= most and size + run.size <= most_bytes:
                    lane.popleft()
                else:
                    span = _front_of(lane, min(most - count, _share(run, most_bytes - size)))
                    length = span.stop - span.start
                spans.append(span)
                count += length
                size += run.size if length == len(run.bodies) else span.size()
        self.count -= count
        self.size -= size
        return spans, count, size

    def take_oldest(self, most: int) -> Span | None:
        """Remove up to ``most`` messages at the front of the lowest priority: what is shed first."""
        for lane in self.lanes:
            if lane:
                return self._taken(_front_of(lane, most))
        return None

    def take_expired(self, now: float) -> list[Span]:
        """Remove what has expired at the front of each lane (behind the front RabbitMQ lets it wait, too)."""
        expired: list[Span] = []
        for lane in self.lanes:
            while lane and (when := lane[0].expires_at) is not None and when <= now:
                expired.append(self._taken(lane.popleft()))
        return expired

    def next_expiry(self) -> float | None:
        """Return when the first of the fronts expires."""
        times = [lane[0].expires_at for lane in self.lanes if lane]
        return min((time for time in times if time is not None), default=None)

    def take_all(self) -> list[Span]:
        """Remove everything."""
        spans = [span for lane in self.lanes for span in lane]
        for lane in self.lanes:
            lane.clear()
        self.count = self.size = 0
        return spans

    def _taken(self, span: Span) -> Span:
        self.count -= span.stop - span.start
        self.size -= span.size()
        return span

    def _lane_of(self, span: Span) -> deque[Span]:
        return self.lanes[min(span.run.envelope.priority, len(self.lanes) - 1)]


def _share(run: Run, most_bytes: int) -> int:
    """How many messages of average size make so many bytes, at least one."""
    return max(1, most_bytes * len(run.bodies) // run.size) if run.size else len(run.bodies)


def _front_of(lane: deque[Span], most: int) -> Span:
    """Remove up to ``most`` messages of the first span."""
    return lane.popleft() if len(lane[0]) <= most else lane[0].split(most)
