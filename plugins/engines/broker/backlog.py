"""Backlog: the ready messages of a queue, in order, by priority.

There is one deque for each priority level.  Its items are spans (messages in memory) and pages (messages on
disk).  The items of a level are in the order of their positions, and their ranges of positions do not
overlap, but for one case: a requeued message may belong into a gap of a page.  Then the page is read first.
A message that is requeued gets its old place again, so that messages published later do not overtake it
(RabbitMQ since 2.7).

A page is read when it is at the front.  Until then ``count`` relies on what the page says, and ``size`` on
what it estimates.  Reading replaces the page by its spans and corrects both figures.  So a caller that
computes how much to take has to look again after a page was read.

Taking from the front costs the same however long the queue is.  Putting back costs a step for each item that
stays in front of it; requeued messages are old, so these are few.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, TypeAlias

from kernel.contracts.message import Batch
from kernel.contracts.mixed_batch import KeyedBatch
from plugins.engines.broker.paged import Paged
from plugins.engines.broker.span import Span

PER_MESSAGE = 64
"""Octets of memory for a message besides its body: the bytes object, and references in lists (measured:
52)."""

Item: TypeAlias = Span | Paged
Read: TypeAlias = Callable[[Paged, Item | None], list[Span]]
"""``read(page, following)`` returns the spans of a page; ``following`` is the item behind it."""


class Backlog:
    """The items of one queue."""

    __slots__ = ("count", "levels", "paged", "read", "size")

    def __init__(self, highest_priority: int, read: Read) -> None:
        self.levels: list[deque[Any]] = [deque() for _ in range(highest_priority + 1)]
        """Deques of items by priority, the lowest first.  A page differs from a span in its ``batch``, which
        is None."""
        self.count = 0
        self.size = 0
        self.paged = 0
        """The part of ``size`` that is in pages, and so not in memory."""
        self.read = read

    def append(self, span: Span, size: int) -> None:
        """Add new messages behind all others of their priority."""
        levels = self.levels
        # Most queues have no priorities.  Then the envelope need not be looked at.
        level = levels[0] if len(levels) == 1 else self._level_of(span)
        level.append(span)
        self.count += span.stop - span.start
        self.size += size

    def append_page(self, page: Paged, priority: int) -> None:
        """Add a page behind all other items of its priority."""
        self.levels[min(priority, len(self.levels) - 1)].append(page)
        self.count += page.count
        self.size += page.size
        self.paged += page.size

    def put_back(self, span: Span) -> None:
        """Put messages back at their old position."""
        self.count += len(span)
        self.size += span.size()
        level = self._level_of(span)
        # The items that stay in front of the span are taken off, and put back behind the insertion.
        overtaken: list[Item] = []
        while level and level[0].first < span.first:
            item = level[0]
            if item.batch is None and item.stop > span.first:
                # The span belongs into a gap of this page, and only spans can be inserted between.
                self._read_front(level)
            else:
                overtaken.append(level.popleft())
        # Messages that are requeued one by one are joined again, so that they are delivered as one batch.
        if overtaken and (last := overtaken[-1]).batch is not None and span.continues(last):
            last.stop = span.stop
        else:
            level.appendleft(span)
        level.extendleft(reversed(overtaken))

    def divide_from(self, first: int) -> None:
        """Put batches in place of the keyed batches whose position is ``first`` or behind it."""
        for level in self.levels:
            divided: list[Item] = []
            while level and level[-1].first >= first:
                item = level.pop()
                # From the last one on.
                divided += reversed(item.divided()) if type(item.batch) is KeyedBatch else (item,)
            level.extend(reversed(divided))

    def take_one(self) -> Span | None:
        """Remove and return the first message of the highest priority; None: the backlog is empty."""
        # A level may be empty after all of its pages turned out to be lost, so the next one is tried.
        for level in reversed(self.levels):
            if level and self._has_front(level):
                return self._taken(_front_of(level, 1))
        return None

    def take_at(self, position: int) -> Span | None:
        """Remove and return the message with this position; None: it is not here."""
        for level in self.levels:
            # What is in front of the message is taken off, and put back.
            before: list[Item] = []
            found = None
            while level and level[0].first <= position:
                item = level[0]
                if position >= (item.stop if item.batch is None else item.base + item.stop):
                    before.append(level.popleft())
                elif item.batch is None:
                    self._read_front(level)
                else:
                    if position > item.first:
                        before.append(item.split(position - item.first))
                    found = self._taken(_front_of(level, 1))
                    break
            level.extendleft(reversed(before))
            if found is not None:
                return found
        return None

    def take(self, most: int, most_bytes: int, expired: float | None = None) -> tuple[list[Span], int, int]:
        """Remove up to ``most`` messages; return their spans, their number and the octets of their bodies.

        ``expired``: stop in each level at a message that expires then or before, behind others that do not.
        ``most_bytes`` may be exceeded by one message.  A batch is split by the average size of its messages,
        because to add up the size of each would cost more than it saves.
        """
        spans: list[Span] = []
        count = size = 0
        # The highest priority first, and in each level the oldest first.
        for level in reversed(self.levels):
            while level and count < most and size < most_bytes:
                span = level[0]
                batch = span.batch
                # Not a page that says 0: when it expires is known only after it was read.
                if expired is not None and span.expires_at is not None and 0 < span.expires_at <= expired:
                    break
                if batch is None:
                    self._read_front(level)
                    continue
                length = span.stop - span.start
                # The size of the whole batch is an upper bound for a span that has a part of it.
                if count + length <= most and size + batch.size <= most_bytes:
                    level.popleft()
                else:
                    wanted = most - count
                    # A share is one message at least.
                    if wanted > 1:
                        wanted = min(wanted, _share(batch, most_bytes - size))
                    # As ``_front_of``, without its calls: consumers that work message by message come here.
                    if length > wanted:
                        span = span.split(wanted)
                        length = wanted
                    else:
                        level.popleft()
                spans.append(span)
                count += length
                # As ``Span.size``, which would be a call for each batch.
                size += length * batch.width or span.size()
        # Subtracted, not assigned: reading a page has changed both figures meanwhile.
        self.count -= count
        self.size -= size
        return spans, count, size

    def take_oldest(self, most: int) -> list[Span]:
        """Remove up to ``most`` messages at the front of the lowest priority: those that are dropped first.

        There may be more of them.  Empty: a page was read instead, which may have fewer messages or octets
        than it said.  So the caller looks again.
        """
        level = next(level for level in self.levels if level)
        if level[0].batch is None:
            # The page is on disk already, but it may have fewer messages than it said.
            self._read_front(level)
            return []
        spans: list[Span] = []
        count = size = 0
        # In a queue with a limit and a full backlog, as many go in each turn as come.
        while level and count < most and level[0].batch is not None:
            span = level[0]
            length = span.stop - span.start
            if length > most - count:
                length = most - count
                span = span.split(length)
            else:
                level.popleft()
            spans.append(span)
            count += length
            size += length * span.batch.width or span.size()
        self.count -= count
        self.size -= size
        return spans

    def take_expired(self, now: float) -> list[Span]:
        """Remove the expired messages at the front of each level.

        Expired messages behind one that has not expired stay until they are at the front, as in RabbitMQ.
        """
        expired: list[Span] = []
        for level in self.levels:
            while level and (when := level[0].expires_at) is not None and when <= now:
                # Dead letters need the bodies, so a page is read.  A page of which the expiry is not known
                # says 0, and is read here, too.
                if level[0].batch is None:
                    self._read_front(level)
                else:
                    expired.append(self._taken(level.popleft()))
        return expired

    def next_expiry(self) -> float | None:
        """Return when the first message at the front of a level expires; None: none of them does."""
        times = [level[0].expires_at for level in self.levels if level]
        return min((time for time in times if time is not None), default=None)

    def take_all(self) -> deque[Item]:
        """Remove and return all items."""
        # Pages are not read: the caller drops or detaches them as they are.  Mostly there is one level, which
        # is handed over as it is: to copy a million items would take 60 ms.
        items: deque[Item] = deque()
        for index, level in enumerate(self.levels):
            if level:
                self.levels[index] = deque()
                if items:
                    items.extend(level)
                else:
                    items = level
        self.count = self.size = self.paged = 0
        return items

    def _has_front(self, level: deque[Any]) -> bool:
        """Read pages until a span is at the front of a level; return False if the level is empty then."""
        while level and level[0].batch is None:
            self._read_front(level)
        return bool(level)

    def _read_front(self, level: deque[Any]) -> None:
        """Replace a level's first page by its spans, and correct the counts.

        Messages of the page may be lost, and its size may have been an estimate.
        """
        page = level.popleft()
        # The store may read the next page ahead, so it is told which one that is.
        spans = self.read(page, level[0] if level else None)
        level.extendleft(reversed(spans))
        self.paged -= page.size
        self.count += sum(map(len, spans)) - page.count
        self.size += sum(span.batch.size for span in spans) - page.size

    def _taken(self, span: Span) -> Span:
        self.count -= span.stop - span.start
        self.size -= span.size()
        return span

    def _level_of(self, span: Span) -> deque[Any]:
        # A priority above x-max-priority counts as that (RabbitMQ).  Publishers choose it freely.
        return self.levels[max(0, min(span.batch.envelope.priority, len(self.levels) - 1))]


def _share(batch: Batch, most_bytes: int) -> int:
    """Return how many messages of the batch's average size have so many octets; at least one."""
    # A batch of empty bodies takes no room, whatever their number.
    return max(1, most_bytes * len(batch.bodies) // batch.size) if batch.size else len(batch.bodies)


def _front_of(level: deque[Any], most: int) -> Span:
    """Remove up to ``most`` messages of a level's first item, which is a span."""
    span: Span = level[0]
    # ``split`` returns the front as another span.  The rest is still the object in the deque.
    if len(span) > most:
        return span.split(most)
    level.popleft()
    return span
