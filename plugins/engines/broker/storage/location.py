"""Location: where a stored batch lies, once that is known; shared by all spans of the batch in all queues."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from plugins.engines.broker.storage.log import Log
    from plugins.engines.broker.storage.segment import Segment


class Location(msgspec.Struct, eq=False, gc=False):
    """Octets ``start`` up to ``stop`` of a segment; no segment: not safe on disk yet."""

    log: Log
    segment: Segment | None = None
    start: int = 0
    stop: int = 0

    @property
    def readable(self) -> bool:
        """Whether the batch can be read back from here (it may be on its way, or have been moved)."""
        return self.segment is not None and not self.segment.gone
