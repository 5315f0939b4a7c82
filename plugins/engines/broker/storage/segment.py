"""Segment: one file of a log, with what the log knows of it without reading it."""

from __future__ import annotations

from typing import Any
from typing import Protocol as Interface

_SUFFIX = ".log"


class Reader(Interface):
    """A page of a queue, which is to be read from segments and has to know when its messages are moved."""

    extents: list[Any]

    def attach(self) -> None:
        """Register with the segments of the extents."""
        ...

    def detach(self) -> None:
        """Unregister from them."""
        ...


class Segment:
    """One file.  Only the last one is appended to.  Segments are deleted in order, the oldest first."""

    __slots__ = ("entries", "gone", "head", "number", "pages", "ranges", "size")

    def __init__(self, number: int) -> None:
        self.number = number
        self.size = 0
        """Octets that are written."""
        self.head = 0
        """Octets at its beginning that only repeat the definitions."""
        self.entries = 0
        """Messages in it; a message counts once for each queue."""
        self.ranges: dict[int, tuple[int, int]] = {}
        """By queue: a range that has the positions of all its messages in this segment, and possibly
        others."""
        self.pages: dict[Reader, None] = {}
        """The pages that are to be read from it.  When messages are moved, their pages are changed."""
        self.gone = False

    def __repr__(self) -> str:
        return f"<Segment {self.name}, {self.size} octets>"

    @property
    def content(self) -> int:
        """Octets without the repeated definitions."""
        return self.size - self.head

    @property
    def name(self) -> str:
        """The file's name."""
        return f"{self.number:012}{_SUFFIX}"

    def has(self, queue: int, first: int, stop: int) -> None:
        """Note that messages of a queue are in this segment."""
        self.entries += stop - first
        # One range for each queue, however many gaps it has: it only has to answer quickly that no message of
        # the segment can be live.  Exact positions are in ``StoredQueue.live``.
        known = self.ranges.get(queue)
        if known is not None:
            first, stop = min(first, known[0]), max(stop, known[1])
        self.ranges[queue] = first, stop


def segment_numbers(names: list[str]) -> list[int]:
    """Return the numbers of the segments among these files, in order."""
    # Other files in the directory are somebody else's: the marker, the lock, and segments that were set
    # aside.
    stems = [name.removesuffix(_SUFFIX) for name in names if name.endswith(_SUFFIX)]
    return sorted(int(stem) for stem in stems if stem.isdigit())
