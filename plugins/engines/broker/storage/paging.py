"""Paging: replaces the tail of a long queue by pages on disk, and reads them at the front of the queue.

The tail is what will be needed last.  The broker's thread reads one page at a time.  It tells the operating
system which page is next, so that this one is mostly in the cache when it is read.

A span becomes a page in two steps.  First it needs a location: persistent messages in durable queues have one
anyhow, others are written to the overflow log now.  The location gets its offsets when the group is written.
Then ``page_out`` is called again and replaces the span by a page, which frees the memory of the bodies.

A page reads whole records, so it meets messages of other queues and messages that are acknowledged.  It takes
what is both in its ``ranges`` and in an entry of its queue.
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
from plugins.engines.broker.storage.message_records import (
    MESSAGE_KINDS,
    Messages,
    decode_messages,
    entries_of,
)
from plugins.engines.broker.storage.page import Page
from plugins.engines.broker.stored_set import KeptMessage

if TYPE_CHECKING:
    from plugins.engines.broker.queue import Queue
    from plugins.engines.broker.storage.log import Log
    from plugins.engines.broker.storage.stored_queue import StoredQueue

Found: TypeAlias = "tuple[int, list[bytes], bytes, float, Extent]"
"""First position, bodies, envelope, expiry (by the disk's clock; 0: never), and where it was read."""


def read_page(log: Log, page: Page) -> list[Span]:
    """Return the messages of a page.

    Messages that cannot be read are missing in the result, and reported.
    """
    return _spans(log, page, _joined(_read(log, page)))


def read_kept(log: Log, page: Page) -> list[KeptMessage]:
    """Return those messages of a page of a set that were not dropped since the page was made."""
    # Of a queue's page all messages are live: the page is read or forgotten as a whole.
    page.ranges = [one for first, stop in page.ranges for one in page.stored.live.within(first, stop)]
    if not page.ranges:
        page.detach()
        return []
    decode, ahead = log.envelopes.decode, log.clock_ahead
    return [
        KeptMessage(number, decode(octets), body, expires - ahead if expires else None)
        for first, bodies, octets, expires, _ in _read(log, page)
        for number, body in enumerate(bodies, first)
    ]


def _read(log: Log, page: Page) -> list[Found]:
    """Return the messages of a page in the order of positions; report those that cannot be read."""
    stored = page.stored
    # What is found is removed from it, so what is left at the end cannot be read.
    wanted = Intervals(page.ranges)
    found: list[Found] = []
    why = "not where they were written"
    for extent in page.extents:
        # Nothing in a deleted segment was live.
        if extent.segment.gone:
            continue
        try:
            # An extent that cannot be read costs its own messages, not those of the others.
            found += _found_in(log, extent, stored, wanted)
        except OSError as error:
            why = str(error)
            log.counters.last_error = why
    # The page is not needed any more: the compactor must not change it.
    page.detach()
    if wanted:
        # Counted and reported, and not live any more: otherwise their segment would be kept for ever.
        log.has_lost(stored, wanted, why)
    # After a compaction, or with priorities, the order on disk is not that of the queue.
    found.sort(key=lambda one: one[0])
    return found


def weigh(log: Log, page: Page) -> int:
    """Read a page and return the octets of its bodies; if it cannot be read, return its estimate."""
    wanted = Intervals(page.ranges)
    try:
        found = [one for extent in page.extents for one in _found_in(log, extent, page.stored, wanted)]
    except OSError:
        return page.size  # reported when the page is read
    return sum(len(body) for _, bodies, *_ in found for body in bodies)


def look(log: Log, page: Page) -> list[Span]:
    """Return the messages of a page, which stays as it is; empty if the disk fails."""
    wanted = Intervals(page.ranges)
    try:
        found = [
            one
            for extent in page.extents
            if not extent.segment.gone
            for one in _found_in(log, extent, page.stored, wanted)
        ]
    except OSError:
        return []  # reported when the page is read
    found.sort(key=lambda one: one[0])
    return _spans(log, page, _joined(found))


def will_read(log: Log, page: Page) -> None:
    """Tell the operating system that a page will be read soon."""
    files = log.files
    try:
        for segment, start, stop in page.extents:
            files.will_read(segment.name, start, stop - start)
    except OSError:
        return  # reported when the page is read


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
        messages: Messages | None = None
        for entry in entries_of(number, record.payload):
            # Removed at once: a message that is there twice is taken once.
            for first, stop in wanted.within(entry.first, entry.last):
                wanted.remove(first, stop)
                # Only now: most records of other queues are skipped without copying a body.
                if messages is None:
                    messages = decode_messages(record.payload)
                    envelope = log.envelopes.current(record.kind, messages.envelope)
                    at = Extent(segment, record.start, record.stop)
                bodies = messages.bodies[first - entry.base : stop - entry.base]
                found.append((first, bodies, envelope, entry.expires, at))
    return found


def _joined(found: list[Found]) -> list[Found]:
    """Join consecutive messages with the same envelope and expiry.

    So messages that were published one by one become batches.
    """
    joined: list[Found] = []
    for one in found:
        first, bodies, envelope, expires, extent = one
        if joined:
            before, others, its_envelope, its_expires, its_extent = joined[-1]
            follows = before + len(others) == first and its_extent.segment is extent.segment
            # By value: these envelopes are octets that were just read.
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
        # They are still on the disk, so they can become a page again without being written.
        span.location = Location(log.durable, *extent)
        spans.append(span)
    return spans


def page_out(queue: Queue, write: Callable[[Span], None]) -> bool:
    """Replace the tail of a queue by pages; return whether to call this again when the logs have written.

    ``write`` writes messages that are not on disk, or whose location is unknown because the compactor moved
    them while a client had them.
    """
    backlog = queue.backlog
    excess = backlog.size - backlog.paged - queue.most_resident
    waits = False
    for level in backlog.levels:
        tail: list[Span | Page] = []
        while level and excess > 0:
            # From the end of the level, which is delivered last.
            item = level.pop()
            tail.append(item)
            if isinstance(item, Span):
                excess -= item.size()
                if item.location is None or (
                    # The compactor has moved the messages: their new place is unknown.
                    item.location.segment is not None and item.location.segment.gone
                ):
                    write(item)
                waits = waits or not _readable(item)
        backlog.paged += _put_back(level, tail, queue)
    return waits


def _put_back(level: deque[Span | Page], tail: list[Span | Page], queue: Queue) -> int:
    """Put items back at the end of a level, as pages if they can be read from disk.

    Return the octets in new pages.
    """
    paged = 0
    # In the original order.  Neighbours that are read together become one page.
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
    # A page is in one log, and all its messages have the same flag ``redelivered``.
    if page.stored.durable is not span.location.durable or page.redelivered != span.redelivered:
        return False
    may_expire = span.expires_at is not None
    return page.extend(span.location.extent, span.first, span.base + span.stop, size, may_expire=may_expire)


def _page_of(span: Span, size: int, queue: Queue) -> Page:
    assert span.location is not None
    stored = queue.stored if span.location.durable else queue.overflow
    assert stored is not None, "a span with a location is stored"
    return Page(
        stored,
        span.location.extent,
        [(span.first, span.base + span.stop)],
        size,
        expires_at=span.expires_at,
        redelivered=span.redelivered,
    )
