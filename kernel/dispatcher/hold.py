"""Hold: runs that wait in a route for a pipe that can take them, in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator

from kernel.contracts.message import Run
from kernel.dispatcher.ledger import Page
from kernel.pipes.water_marks import WaterMarks


class Hold:
    """What is held keeps its page open: the source is not told that it is confirmed."""

    __slots__ = ("_runs", "bytes", "messages")

    def __init__(self) -> None:
        self._runs: deque[tuple[Run, Page | None]] = deque()
        self.messages = 0
        self.bytes = 0

    def append(self, run: Run, page: Page | None) -> None:
        """Hold one more run, which came last."""
        self._runs.append((run, page))
        self._count(run, page)

    def prepend(self, runs: Iterable[Run], page: Page | None) -> None:
        """Hold runs that are older than what is held already."""
        older = list(runs)
        self._runs.extendleft((run, page) for run in reversed(older))
        for run in older:
            self._count(run, page)

    def prepend_all(self, older: Hold) -> None:
        """Take over what another hold has; all of it is older."""
        self._runs.extendleft(reversed(older._runs))
        self.messages += older.messages
        self.bytes += older.bytes
        older.__init__()  # type: ignore[misc]

    def release(self) -> Iterator[tuple[Run, Page | None]]:
        """Give out the runs, the oldest first, each with the page that stands for it now.

        Whoever takes one is answerable for it; what is not asked for stays.
        """
        while self._runs:
            run, page = self._runs.popleft()
            self.messages -= len(run.bodies)
            self.bytes -= run.size
            if page is not None:
                page = page.current()
                page.held -= 1
            yield run, page

    def full(self, marks: WaterMarks) -> bool:
        """Whether as much is held as a pipe may."""
        return self.messages >= marks.high or self.bytes >= marks.high_bytes

    def __bool__(self) -> bool:
        return bool(self._runs)

    def _count(self, run: Run, page: Page | None) -> None:
        self.messages += len(run.bodies)
        self.bytes += run.size
        if page is not None:
            page.held += 1
