"""Location: where in a log a batch is stored."""

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
    """Where a stored batch is; all spans of the batch in all queues share it.

    Octets ``start`` up to ``stop`` of a segment; without a segment: it is not written yet.
    """

    durable: bool
    """Whether it is in the durable log; otherwise it is in the overflow log."""
    segment: Segment | None = None
    start: int = 0
    stop: int = 0

    @property
    def readable(self) -> bool:
        """Whether the batch can be read from here.

        Not before it is written, and not after the compactor has moved it.
        """
        return self.segment is not None and not self.segment.gone

    @property
    def extent(self) -> Extent:
        """The location as an extent.  Only if it is readable."""
        assert self.segment is not None
        return Extent(self.segment, self.start, self.stop)
