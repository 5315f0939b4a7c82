"""Stored queue: what a log knows of one queue, or of one stored set."""

from __future__ import annotations

from plugins.engines.broker.storage.intervals import Intervals


class StoredQueue:
    """The messages of one queue, or of one set, that are in a log.

    The broker's queue or set refers to it and does not look into it.
    """

    __slots__ = ("acknowledged", "durable", "live", "number")

    def __init__(self, number: int, *, durable: bool) -> None:
        """``durable``: it is in the durable log, otherwise in the overflow log."""
        self.number = number
        self.durable = durable
        # A few ranges, however many messages: positions are added at the end and mostly removed in order.
        self.live = Intervals()
        """Positions of messages that were stored and not acknowledged."""
        self.acknowledged: list[tuple[int, int]] = []
        """Ranges that the next group writes as ACKNOWLEDGED records."""

    def __repr__(self) -> str:
        return f"<StoredQueue {self.number}, {len(self.live)} messages>"
