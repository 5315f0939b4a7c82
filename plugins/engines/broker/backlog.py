"""Backlog: the messages of a queue that wait for a consumer, in order, by priority.

The order is that of the positions; what comes back (requeue) finds its old place again, because a
reader that rejects a message must not see it overtaken by later ones (RabbitMQ since 2.7).
"""

from __future__ import annotations

from collections import deque

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
        self._lane_of(span).append(span)
        self.count += len(span)
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

    def take(self, most: int, most_bytes: int) -> Span | None:
        """Remove up to ``most`` messages from the front span.

        ``most_bytes`` is kept to on the average size of the run, and never holds up a message alone:
        counting each would cost more than it saves.
        """
        for lane in reversed(self.lanes):
            if lane:
                return self._take_from(lane, most, most_bytes)
        return None

    def take_oldest(self, most: int) -> Span | None:
        """Remove up to ``most`` messages at the front of the lowest priority: what is shed first."""
        for lane in self.lanes:
            if lane:
                return self._taken(lane.popleft() if len(lane[0]) <= most else lane[0].split(most))
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

    def _take_from(self, lane: deque[Span], most: int, most_bytes: int) -> Span:
        span = lane[0]
        run = span.run
        if run.size > most_bytes:
            most = min(most, max(1, most_bytes * len(run.bodies) // run.size))
        if span.stop - span.start <= most:
            return self._taken(lane.popleft())
        return self._taken(span.split(most))

    def _taken(self, span: Span) -> Span:
        self.count -= span.stop - span.start
        self.size -= span.size()
        return span

    def _lane_of(self, span: Span) -> deque[Span]:
        lanes = self.lanes
        highest = len(lanes) - 1
        if not highest:
            return lanes[0]
        return lanes[min(span.run.envelope.priority, highest)]
