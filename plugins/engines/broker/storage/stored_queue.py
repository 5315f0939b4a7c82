"""Stored queue: what a log knows of one queue."""

from __future__ import annotations

from plugins.engines.broker.storage.intervals import Intervals


class StoredQueue:
    """Which messages of a queue a log has.  Known to the broker's queue as something opaque."""

    __slots__ = ("durable", "live", "number", "settled")

    def __init__(self, number: int, *, durable: bool) -> None:
        """``durable``: it is in the durable log, otherwise in the overflow log."""
        self.number = number
        self.durable = durable
        self.live = Intervals()
        """Positions of messages that were stored and not settled."""
        self.settled: list[tuple[int, int]] = []
        """What the next group says of it."""

    def __repr__(self) -> str:
        return f"<StoredQueue {self.number}, {len(self.live)} messages>"
