"""Page: an item of a backlog whose messages are on disk only (see ``Paged``).

A page has the extents of segments to read, and the positions of its messages there.  It covers many records:
a million stored messages are a few thousand pages.  When it is at the front of the queue, spans replace it.
"""

from __future__ import annotations

from plugins.engines.broker.storage.location import Extent
from plugins.engines.broker.storage.stored_queue import StoredQueue

LARGEST = 256 * 1024
"""Octets of a segment that one page may cover (a single larger record is a page by itself)."""
_WORTH_READING = 4096
"""Octets that may be read however few of them are needed."""
_OVERHEAD = 64
"""Octets that a message counts besides its body, when a page is extended."""


class Page:
    """Messages at ``ranges`` of positions, ``count`` of them with bodies of ``size`` octets."""

    __slots__ = ("count", "expires_at", "extents", "may_expire", "ranges", "redelivered", "size", "stored")

    batch: None = None
    """This tells a page from a span."""

    def __init__(
        self,
        stored: StoredQueue,
        extent: Extent,
        ranges: list[tuple[int, int]],
        size: int,
        *,
        expires_at: float | None,
        redelivered: bool,
    ) -> None:
        self.stored = stored
        self.extents = [extent]
        self.ranges = ranges
        self.count = sum(stop - first for first, stop in ranges)
        self.size = size
        self.expires_at = expires_at
        """When the first message expires; None: none does; 0: not known until it is read."""
        self.may_expire = expires_at is not None
        """Whether any of the messages expires."""
        self.redelivered = redelivered

    def __repr__(self) -> str:
        return f"<Page of {self.count} messages from {self.first} on>"

    def __len__(self) -> int:
        return self.count

    @property
    def first(self) -> int:
        """The position of the first message."""
        return self.ranges[0][0]

    @property
    def stop(self) -> int:
        """The position behind the last message."""
        return self.ranges[-1][1]

    def extend(self, extent: Extent, first: int, stop: int, size: int, *, may_expire: bool) -> bool:
        """Add messages that follow, if it is worth reading them together; return whether they were added."""
        (segment, start, end) = self.extents[-1]
        # Messages are added in the order of positions, and mostly lie in this order in the segment, too.
        # Those that a compaction or another priority has put elsewhere begin a page of their own.
        if extent.segment is not segment or extent.start < start or first < self.stop:
            return False
        # Otherwise the record is already covered: single messages that were joined to one record share its
        # extent.
        if extent.stop > end:
            # What lies between the two extents is read as well.  It is not worth it if the page covers too
            # much, or if less than an eighth of what is read is wanted.
            span = extent.stop - start
            wanted = self.size + size + _OVERHEAD * (self.count + stop - first)
            if span > LARGEST or span > 8 * wanted + _WORTH_READING:
                return False
            self.extents[-1] = Extent(segment, start, extent.stop)
        if first == self.stop:
            self.ranges[-1] = self.ranges[-1][0], stop
        else:
            self.ranges.append((first, stop))
        self.count += stop - first
        self.size += size
        self.may_expire = self.may_expire or may_expire
        return True

    def of(self, ranges: list[tuple[int, int]], *, redelivered: bool) -> Page:
        """Return a page of some of the messages; their size is estimated until they are read."""
        count = sum(stop - first for first, stop in ranges)
        expires_at = self.expires_at
        # ``expires_at`` is that of the first message.  Of another one it is not known before the page is
        # read, which 0 says.
        if ranges[0][0] != self.first:
            expires_at = 0.0 if self.may_expire else None
        page = Page(
            self.stored,
            self.extents[0],
            ranges,
            self.size * count // self.count,
            expires_at=expires_at,
            redelivered=redelivered,
        )
        page.may_expire = self.may_expire
        # A copy: each page changes its own extents when the compactor moves messages.
        page.extents = list(self.extents)
        return page

    def attach(self) -> None:
        """Register with the segments, so that the compactor changes the extents when it moves messages."""
        for extent in self.extents:
            extent.segment.pages[self] = None

    def detach(self) -> None:
        """Unregister: the page was read, or is not needed any more."""
        for extent in self.extents:
            extent.segment.pages.pop(self, None)
