"""Location: where in a log something lies."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from plugins.engines.broker.storage.segment import Segment


class Extent(NamedTuple):
    """Octets ``start`` up to ``stop`` of a segment."""

    segment: Segment
    start: int
    stop: int


class Location(msgspec.Struct, eq=False, gc=False):
    """Where a stored batch lies, once that is known; shared by all spans of the batch in all queues.

    Octets ``start`` up to ``stop`` of a segment; no segment: not safe on disk yet.
    """

    durable: bool
    """Whether that is the durable log, or the overflow log."""
    segment: Segment | None = None
    start: int = 0
    stop: int = 0

    @property
    def readable(self) -> bool:
        """Whether the batch can be read back from here (it may be on its way, or have been moved)."""
        return self.segment is not None and not self.segment.gone

    @property
    def extent(self) -> Extent:
        """The same, of what is readable."""
        assert self.segment is not None
        return Extent(self.segment, self.start, self.stop)
