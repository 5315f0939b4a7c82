"""Hold: batches that wait in a route for a pipe that can take them, in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator

from kernel.contracts.message import Batch
from kernel.dispatcher.ack_tracker import Entry
from kernel.pipes.water_marks import WaterMarks


class Hold:
    """What is held keeps its entry open, so that the source is not told that it is confirmed."""

    __slots__ = ("_batches", "bytes", "messages")

    def __init__(self) -> None:
        self._batches: deque[tuple[Batch, Entry | None]] = deque()
        self.messages: int = 0
        self.bytes: int = 0

    def append(self, batch: Batch, entry: Entry | None) -> None:
        """Hold one more batch, which came last."""
        self._batches.append((batch, entry))
        self._count(batch, entry)

    def prepend(self, batches: Iterable[Batch], entry: Entry | None) -> None:
        """Hold batches that are older than what is held already."""
        older = list(batches)
        self._batches.extendleft((batch, entry) for batch in reversed(older))
        for batch in older:
            self._count(batch, entry)

    def prepend_all(self, older: Hold) -> None:
        """Take over what another hold has; all of it is older."""
        self._batches.extendleft(reversed(older._batches))
        self.messages += older.messages
        self.bytes += older.bytes
        older.__init__()  # type: ignore[misc]

    def release(self) -> Iterator[tuple[Batch, Entry | None]]:
        """Give out the batches, the oldest first, each with the entry that stands for it now.

        Whoever takes one is answerable for it; what is not asked for stays.
        """
        while self._batches:
            batch, entry = self._batches.popleft()
            self.messages -= len(batch.bodies)
            self.bytes -= batch.size
            if entry is not None:
                entry = entry.current()
                entry.pending -= 1
            yield batch, entry

    def full(self, marks: WaterMarks) -> bool:
        """Whether as much is held as a pipe may."""
        return self.messages >= marks.high or self.bytes >= marks.high_bytes

    def __bool__(self) -> bool:
        return bool(self._batches)

    def _count(self, batch: Batch, entry: Entry | None) -> None:
        self.messages += len(batch.bodies)
        self.bytes += batch.size
        if entry is not None:
            entry.pending += 1
