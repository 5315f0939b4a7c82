"""Paging: messages of a long queue make room in memory, and come back at the front of the queue.

What goes is what will be wanted last: the tail.  Reading is done in the broker's thread, a page at a time,
and the operating system is told which page comes next, so that it mostly is in its cache by then.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from kernel.contracts.message import batch_of
from plugins.engines.broker.span import Span
from plugins.engines.broker.storage.framing import Damage, RecordReader
from plugins.engines.broker.storage.intervals import Intervals
from plugins.engines.broker.storage.location import Extent, Location
from plugins.engines.broker.storage.message_records import MESSAGE_KINDS, decode_head, decode_messages
from plugins.engines.broker.storage.page import Page

if TYPE_CHECKING:
    from plugins.engines.broker.queue import Queue
    from plugins.engines.broker.storage.log import Log
    from plugins.engines.broker.storage.stored_queue import StoredQueue

Found: TypeAlias = "tuple[int, list[bytes], bytes, float, Extent]"
"""First position, bodies, envelope, expiry (time of day; 0: never), and where it was."""


def read_page(log: Log, page: Page) -> list[Span]:
    """Return a page's messages; those that cannot be read any more are missing, and reported."""
    stored = page.stored
    wanted = Intervals(page.ranges)
    found: list[Found] = []
    why = "not where they were written"
    for extent in page.extents:
        try:
            found += _found_in(log, extent, stored, wanted)
        except OSError as error:
            why = str(error)
            log.counters.last_error = why
    page.detach()
    if wanted:
        log.has_lost(stored, wanted, why)
    found.sort(key=lambda one: one[0])
    return _spans(log, page, _joined(found))


def weigh(log: Log, page: Page) -> int:
    """Return how large the bodies of a page's messages are together; if they cannot be read, what it says itself."""
    wanted = Intervals(page.ranges)
    try:
        found = [one for extent in page.extents for one in _found_in(log, extent, page.stored, wanted)]
    except OSError:
        return page.size  # told when it is read
    return sum(len(body) for _, bodies, *_ in found for body in bodies)


def will_read(log: Log, page: Page) -> None:
    """Have the operating system fetch a page."""
    files = log.files
    try:
        for segment, start, stop in page.extents:
            files.will_read(segment.name, start, stop - start)
    except OSError:
        return  # told when it is read


def _found_in(log: Log, extent: Extent, stored: StoredQueue, wanted: Intervals) -> list[Found]:
    number = stored.number
    segment = extent.segment
    found: list[Found] = []

    def read(offset: int, length: int) -> bytes:
        return log.files.read(segment.name, offset, length)

    for record in RecordReader(read, log.marker, extent.start, extent.stop):
        if isinstance(record, Damage):
            log.has_damage(segment, record)
            continue
        if record.kind not in MESSAGE_KINDS:
            continue
        entries = [entry for entry in decode_head(record.payload).entries if entry.queue == number]
        if not any(wanted.overlaps(entry.first, entry.last) for entry in entries):
            continue
        messages = decode_messages(record.payload)
        envelope = log.envelopes.current(record.kind, messages.envelope)
        at = Extent(segment, record.start, record.stop)
        for entry in entries:
            for first, stop in wanted.within(entry.first, entry.last):
                wanted.remove(first, stop)
                bodies = messages.bodies[first - entry.base : stop - entry.base]
                found.append((first, bodies, envelope, entry.expires, at))
    return found


def _joined(found: list[Found]) -> list[Found]:
    """Make one of neighbours that have everything in common: single messages become batches again."""
    joined: list[Found] = []
    for one in found:
        first, bodies, envelope, expires, extent = one
        if joined:
            before, others, its_envelope, its_expires, its_extent = joined[-1]
            follows = before + len(others) == first and its_extent.segment is extent.segment
            if follows and its_expires == expires and its_envelope == envelope:
                others += bodies
                start, stop = min(its_extent.start, extent.start), max(its_extent.stop, extent.stop)
                joined[-1] = before, others, envelope, expires, Extent(extent.segment, start, stop)
                continue
        joined.append(one)
    return joined


def _spans(log: Log, page: Page, found: list[Found]) -> list[Span]:
    spans: list[Span] = []
    for first, bodies, octets, expires, extent in found:
        batch = batch_of(bodies, log.envelopes.decode(octets))
        span = Span(
            first, batch, 0, len(bodies), expires - log.clock_ahead if expires else None, page.redelivered
        )
        span.location = Location(log.durable, *extent)
        spans.append(span)
    return spans


def page_out(queue: Queue, write: Callable[[Span], None]) -> bool:
    """Turn the tail of a queue into pages; return whether there will be more to do once the logs have written.

    ``write`` writes down what is on no disk yet, or cannot be found there any more (it was moved while a client had it).
    """
    backlog = queue.backlog
    excess = backlog.size - backlog.paged - queue.most_resident
    waits = False
    for level in backlog.levels:
        tail: list[Span | Page] = []
        while level and excess > 0:
            item = level.pop()
            tail.append(item)
            if isinstance(item, Span):
                excess -= item.size()
                if item.location is None or (
                    item.location.segment is not None and item.location.segment.gone
                ):
                    write(item)
                waits = waits or not _readable(item)
        backlog.paged += _put_back(level, tail, queue)
    return waits


def _put_back(level: deque[Span | Page], tail: list[Span | Page], queue: Queue) -> int:
    """Return to a level what was taken off its end, as pages where it can be; return the octets in new pages."""
    paged = 0
    for item in reversed(tail):
        if isinstance(item, Page) or not _readable(item):
            level.append(item)
            continue
        size = item.size()
        paged += size
        last = level[-1] if level else None
        if not (isinstance(last, Page) and _extend(last, item, size)):
            page = _page_of(item, size, queue)
            page.attach()
            level.append(page)
    return paged


def _readable(span: Span) -> bool:
    return span.location is not None and span.location.readable


def _extend(page: Page, span: Span, size: int) -> bool:
    assert span.location is not None
    if page.stored.durable is not span.location.durable or page.redelivered != span.redelivered:
        return False
    may_expire = span.expires_at is not None
    return page.extend(span.location.extent, span.first, span.base + span.stop, size, may_expire=may_expire)


def _page_of(span: Span, size: int, queue: Queue) -> Page:
    assert span.location is not None
    stored = queue.stored if span.location.durable else queue.overflow
    assert stored is not None, "what has a location has been stored"
    return Page(
        stored,
        span.location.extent,
        [(span.first, span.base + span.stop)],
        size,
        expires_at=span.expires_at,
        redelivered=span.redelivered,
    )
