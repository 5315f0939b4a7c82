"""Segment: one file of a log, and what is known of it without reading it."""

from __future__ import annotations

from typing import Any
from typing import Protocol as Interface

_SUFFIX = ".log"


class Reader(Interface):
    """What is to be read from segments, a page of a queue, and hears when they are moved."""

    extents: list[Any]

    def attach(self) -> None:
        """Have the segments of the extents know of it."""
        ...

    def detach(self) -> None:
        """Have them forget it."""
        ...


class Segment:
    """One file.  It is appended to while it is the last, and only deleted after all before it."""

    __slots__ = ("entries", "gone", "head", "number", "pages", "ranges", "size")

    def __init__(self, number: int) -> None:
        self.number = number
        self.size = 0
        """Octets that are safe."""
        self.head = 0
        """How many of them only repeat what definitions there are."""
        self.entries = 0
        """Messages in it, counted once a queue."""
        self.ranges: dict[int, tuple[int, int]] = {}
        """By queue: a range that all positions of its messages here lie in; others may, too."""
        self.pages: dict[Reader, None] = {}
        """What is to be read from it; moves with the messages."""
        self.gone = False

    def __repr__(self) -> str:
        return f"<Segment {self.name}, {self.size} octets>"

    @property
    def content(self) -> int:
        """Octets that are in no other segment."""
        return self.size - self.head

    @property
    def name(self) -> str:
        """The file's name."""
        return f"{self.number:012}{_SUFFIX}"

    def has(self, queue: int, first: int, stop: int) -> None:
        """Note that messages of a queue are here."""
        self.entries += stop - first
        known = self.ranges.get(queue)
        if known is not None:
            first, stop = min(first, known[0]), max(stop, known[1])
        self.ranges[queue] = first, stop


def segment_numbers(names: list[str]) -> list[int]:
    """Return the numbers of the segments among these files, in order."""
    stems = [name.removesuffix(_SUFFIX) for name in names if name.endswith(_SUFFIX)]
    return sorted(int(stem) for stem in stems if stem.isdigit())
