"""Backlog: the ready messages of a queue, in order, by priority.

There is one deque for each priority level.  Its items are spans (messages in memory) and pages (messages on
disk).  The items of a level are in the order of their positions, and their ranges of positions do not
overlap, but for one case: a requeued message may belong into a gap of a page.  Then the page is read first.
A message that is requeued gets its old place again, so that messages published later do not overtake it
(RabbitMQ since 2.7).

A page is read when it is at the front.  Until then ``count`` relies on what the page says, and ``size`` on
what it estimates.  Reading replaces the page by its spans and corrects both figures.  So a caller that
computes how much to take has to look again after a page was read.

Taking from the front costs the same however long the queue is.  Messages that are put back wait in
``_returned`` until somebody looks at the items, and are put among them together then.  A client may return
its messages one by one, in the order in which it got them: if each took its place at once, it would have to
pass all that came back before it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Sequence
from operator import attrgetter
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


_FIRST = attrgetter("first")


class Backlog:
    """The items of one queue."""

    __slots__ = ("_levels", "_returned", "count", "paged", "read", "size")

    def __init__(self, highest_priority: int, read: Read) -> None:
        self._levels: list[deque[Any]] = [deque() for _ in range(highest_priority + 1)]
        self._returned: list[Span] = []
        """Messages that were put back, and are in ``count`` and ``size`` already."""
        self.count = 0
        self.size = 0
        self.paged = 0
        """The part of ``size`` that is in pages, and so not in memory."""
        self.read = read

    @property
    def levels(self) -> list[deque[Any]]:
        """Deques of items by priority, the lowest first.

        A page differs from a span in its ``batch``, which is None.
        """
        if self._returned:
            self._put_among()
        return self._levels

    def append(self, span: Span, size: int) -> None:
        """Add new messages behind all others of their priority."""
        # Those that were put back are older, whatever waits in ``_returned``.
        levels = self._levels
        # Most queues have no priorities.  Then the envelope need not be looked at.
        level = levels[0] if len(levels) == 1 else self._level_of(span)
        level.append(span)
        self.count += span.stop - span.start
        self.size += size

    def append_page(self, page: Paged, priority: int) -> None:
        """Add a page behind all other items of its priority."""
        levels = self._levels
        levels[min(priority, len(levels) - 1)].append(page)
        self.count += page.count
        self.size += page.size
        self.paged += page.size

    def put_back(self, span: Span) -> None:
        """Put messages back at their old position."""
        self.count += len(span)
        self.size += span.size()
        self._returned.append(span)

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
                self._levels[index] = deque()
                if items:
                    items.extend(level)
                else:
                    items = level
        self.count = self.size = self.paged = 0
        return items

    def _put_among(self) -> None:
        """Put what was put back among the other items of its priority."""
        returned, self._returned = self._returned, []
        if len(self._levels) == 1:
            self._put_in(self._levels[0], returned)
            return
        by_level: dict[int, list[Span]] = {}
        for span in returned:
            by_level.setdefault(self._number_of_level(span), []).append(span)
        for number, spans in by_level.items():
            self._put_in(self._levels[number], spans)

    def _put_in(self, level: deque[Any], spans: list[Span]) -> None:
        """Put spans into a level, at their positions: a few steps for each, and for each item between."""
        spans.sort(key=_FIRST)
        # The item in front of the first span is looked at, too: it may be a page with a gap, or be continued.
        low = max(bisect_left(level, spans[0].first, key=_FIRST) - 1, 0)
        high = bisect_left(level, spans[-1].first, lo=low, key=_FIRST)
        # To rotate a deque is a copy of blocks of pointers, however many items stay in front.
        level.rotate(-low)
        among = [level.popleft() for _ in range(high - low)]
        if any(item.batch is None for item in among):
            among = self._with_gaps(among, spans)
        level.extendleft(reversed(_joined(sorted(among + spans, key=_FIRST))))
        level.rotate(low)

    def _with_gaps(self, items: Sequence[Item], spans: Sequence[Span]) -> list[Item]:
        """Read the pages in which one of these spans has its place; return all items."""
        read: list[Item] = []
        for item in items:
            index = bisect_left(spans, item.first, key=_FIRST)
            if item.batch is None and index < len(spans) and spans[index].first < item.stop:
                read += self._read_page(item, None)
            else:
                read.append(item)
        return read

    def _has_front(self, level: deque[Any]) -> bool:
        """Read pages until a span is at the front of a level; return False if the level is empty then."""
        while level and level[0].batch is None:
            self._read_front(level)
        return bool(level)

    def _read_front(self, level: deque[Any]) -> None:
        """Replace a level's first page by its spans."""
        page = level.popleft()
        # The store may read the next page ahead, so it is told which one that is.
        level.extendleft(reversed(self._read_page(page, level[0] if level else None)))

    def _read_page(self, page: Any, following: Item | None) -> list[Span]:
        """Return the spans of a page, and correct the counts.

        Messages of the page may be lost, and its size may have been an estimate.
        """
        spans = self.read(page, following)
        self.paged -= page.size
        self.count += sum(map(len, spans)) - page.count
        self.size += sum(span.batch.size for span in spans) - page.size
        return spans

    def _taken(self, span: Span) -> Span:
        self.count -= span.stop - span.start
        self.size -= span.size()
        return span

    def _level_of(self, span: Span) -> deque[Any]:
        return self._levels[self._number_of_level(span)]

    def _number_of_level(self, span: Span) -> int:
        # A priority above x-max-priority counts as that (RabbitMQ).  Publishers choose it freely.
        return max(0, min(span.batch.envelope.priority, len(self._levels) - 1))


def _joined(items: list[Item]) -> list[Item]:
    """Return these items, and one span for those that continue each other.

    So messages that were requeued one by one are delivered as one batch.
    """
    joined: list[Item] = []
    for item in items:
        last = joined[-1] if joined else None
        if type(item) is Span and type(last) is Span and item.continues(last):
            last.stop = item.stop
        else:
            joined.append(item)
    return joined


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
