"""Pending batches: what waits in a route, in order, until a pipe can take it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator

from kernel.contracts.message import Batch
from kernel.dispatcher.ack_tracker import Entry
from kernel.pipes.water_marks import WaterMarks


class PendingBatches:
    """A queue of batches, each with the entry of the ack tracker that it belongs to, if any.

    An entry counts the batches that are pending.  It stays open while there are any, so the source is not
    told that its messages are confirmed.
    """

    __slots__ = ("batches", "bytes", "messages")

    def __init__(self) -> None:
        self.batches: deque[tuple[Batch, Entry | None]] = deque()
        """Empty: nothing is pending.  To be looked at where a call would count; only the
        methods change it."""
        self.messages: int = 0
        self.bytes: int = 0

    def append(self, batch: Batch, entry: Entry | None) -> None:
        """Add a batch that is newer than all others here."""
        self.batches.append((batch, entry))
        self._count(batch, entry)

    def prepend(self, batches: Iterable[Batch], entry: Entry | None) -> None:
        """Add batches that are older than all others here."""
        older = list(batches)
        self.batches.extendleft((batch, entry) for batch in reversed(older))
        # ``pending`` of the entry grows for each of them: one entry may stand for everything that a pipe
        # left.
        for batch in older:
            self._count(batch, entry)

    def prepend_all(self, older: PendingBatches) -> None:
        """Move all batches of ``older`` to the front of this queue."""
        # The entries are not counted again: they count these batches as pending already.
        self.batches.extendleft(reversed(older.batches))
        self.messages += older.messages
        self.bytes += older.bytes
        # Emptied, so that no batch is in two queues.
        older.__init__()  # type: ignore[misc]

    def release(self) -> Iterator[tuple[Batch, Entry | None]]:
        """Remove and yield the batches, the oldest first, each with its current entry.

        A batch is removed when it is yielded.  The caller has to write it to a pipe or to append it again.
        What the caller does not iterate over stays here.
        """
        while self.batches:
            batch, entry = self.batches.popleft()
            self.messages -= len(batch.bodies)
            self.bytes -= batch.size
            if entry is not None:
                # The entry may have been merged into another one while the batch waited.
                entry = entry.current()
                # Until the caller has written the batch, nothing keeps the entry open. That is safe: the
                # tracker only looks (``advance``) after the caller has returned.
                entry.pending -= 1
            yield batch, entry

    def full(self, marks: WaterMarks) -> bool:
        """Whether as much is pending as fits in one pipe."""
        return self.messages >= marks.high or self.bytes >= marks.high_bytes

    def __bool__(self) -> bool:
        return bool(self.batches)

    def _count(self, batch: Batch, entry: Entry | None) -> None:
        self.messages += len(batch.bodies)
        self.bytes += batch.size
        if entry is not None:
            entry.pending += 1
