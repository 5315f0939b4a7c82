"""Ledger: up to where have all destinations confirmed what a source sent?

Every pipe counts what its reader has confirmed, cumulatively.  A source whose batches go to several pipes needs one
number of its own: the ledger notes, once a batch, which pipes have to reach which count, and closes its pages
from the oldest on.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kernel.pipes.pipe import Pipe


class Page:
    """What still has to happen before the source may count its messages up to ``end`` as delivered."""

    __slots__ = ("_absorbed_by", "end", "held", "needs")

    def __init__(self, end: int) -> None:
        self.end = end
        self.held = 0
        """Batches of this page that wait in a route for a pipe that can take them."""
        self.needs: dict[Pipe, int] = {}
        self._absorbed_by: Page | None = None

    def absorb(self, later: Page) -> None:
        """Wait for what a later page waits for, too."""
        later._absorbed_by = self
        self.end = later.end
        self.held += later.held
        for pipe, count in later.needs.items():
            self.needs[pipe] = max(count, self.needs.get(pipe, 0))

    def current(self) -> Page:
        """The page that stands for this one now."""
        page = self
        while page._absorbed_by is not None:
            page = page._absorbed_by
        return page

    def done(self) -> bool:
        """Whether every pipe has confirmed."""
        return not self.held and all(pipe.confirmed >= count for pipe, count in self.needs.items())


class Ledger:
    """The pages of one source port.  One thread."""

    __slots__ = ("_pages", "confirmed", "sent")

    def __init__(self) -> None:
        self._pages: deque[Page] = deque()
        self.sent = 0
        self.confirmed = 0

    def open(self, count: int) -> Page:
        """Begin the page of the next ``count`` messages."""
        self.sent += count
        page = Page(self.sent)
        self._pages.append(page)
        return page

    def settle(self) -> bool:
        """Close what can be closed; return whether ``confirmed`` has moved."""
        before = self.confirmed
        pages = self._pages
        while pages and pages[0].done():
            self.confirmed = pages.popleft().end
        return self.confirmed != before

    def release(self, pipe: Pipe) -> Page | None:
        """A pipe is gone: expect nothing of it any more.

        The pages that it leaves unconfirmed become one, which is returned, so that whoever takes over has to
        be written down in one place only; the source learns of them together, later rather than sooner.
        """
        kept: deque[Page] = deque()
        merged: Page | None = None
        for page in self._pages:
            open_here = page.needs.pop(pipe, 0) > pipe.confirmed
            if open_here and merged is None:
                merged = page
                kept.append(page)
            elif merged is not None:
                merged.absorb(page)
            else:
                kept.append(page)
        self._pages = kept
        return merged
