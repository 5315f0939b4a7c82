"""Hold: batches that wait in a route for a pipe that can take them, in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator

from kernel.contracts.message import Batch
from kernel.dispatcher.ledger import Page
from kernel.pipes.water_marks import WaterMarks


class Hold:
    """What is held keeps its page open: the source is not told that it is confirmed."""

    __slots__ = ("_batches", "bytes", "messages")

    def __init__(self) -> None:
        self._batches: deque[tuple[Batch, Page | None]] = deque()
        self.messages = 0
        self.bytes = 0

    def append(self, batch: Batch, page: Page | None) -> None:
        """Hold one more batch, which came last."""
        self._batches.append((batch, page))
        self._count(batch, page)

    def prepend(self, batches: Iterable[Batch], page: Page | None) -> None:
        """Hold batches that are older than what is held already."""
        older = list(batches)
        self._batches.extendleft((batch, page) for batch in reversed(older))
        for batch in older:
            self._count(batch, page)

    def prepend_all(self, older: Hold) -> None:
        """Take over what another hold has; all of it is older."""
        self._batches.extendleft(reversed(older._batches))
        self.messages += older.messages
        self.bytes += older.bytes
        older.__init__()  # type: ignore[misc]

    def release(self) -> Iterator[tuple[Batch, Page | None]]:
        """Give out the batches, the oldest first, each with the page that stands for it now.

        Whoever takes one is answerable for it; what is not asked for stays.
        """
        while self._batches:
            batch, page = self._batches.popleft()
            self.messages -= len(batch.bodies)
            self.bytes -= batch.size
            if page is not None:
                page = page.current()
                page.held -= 1
            yield batch, page

    def full(self, marks: WaterMarks) -> bool:
        """Whether as much is held as a pipe may."""
        return self.messages >= marks.high or self.bytes >= marks.high_bytes

    def __bool__(self) -> bool:
        return bool(self._batches)

    def _count(self, batch: Batch, page: Page | None) -> None:
        self.messages += len(batch.bodies)
        self.bytes += batch.size
        if page is not None:
            page.held += 1
