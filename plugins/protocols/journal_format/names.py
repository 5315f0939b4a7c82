"""The file names of a journal."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

DATA = ".arrows"
INDEX = ".index"
LOCK = "writer.lock"
CONSUMERS = "consumers"
IDENTITY = "identity.json"

FILE_MODE = 0o640
"""Permissions of a journal's files, as of the broker's store: its readers run in other processes, also as
other users of its group, and it is not for everybody."""

# 20 digits, so that names sort as their offsets do.
_NAME = re.compile(r"(\d{20})-(\d{4})\.index")


class SegmentName(NamedTuple):
    """The name of a segment: the offset of its first row, and its generation (how often it was compacted)."""

    base: int
    generation: int

    def __str__(self) -> str:
        return f"{self.base:020d}-{self.generation:04d}"

    def data_path(self, journal: Path) -> Path:
        """Return the path of its data file, which has the batches."""
        return journal / f"{self}{DATA}"

    def index_path(self, journal: Path) -> Path:
        """Return the path of its index."""
        return journal / f"{self}{INDEX}"


def without_index(journal: Path) -> list[SegmentName]:
    """Return the segments whose data file is there and whose index is not, in the order of their offsets.

    A writer that begins a segment and a deletion leave that state for a moment, and a compaction as long as
    it runs.
    """
    try:
        names = {path.name for path in journal.iterdir()}
    except FileNotFoundError:
        return []
    data = (_NAME.fullmatch(name.removesuffix(DATA) + INDEX) for name in names if name.endswith(DATA))
    found = sorted(SegmentName(int(match[1]), int(match[2])) for match in data if match)
    return [name for name in found if f"{name}{INDEX}" not in names]


def segment_names(journal: Path) -> list[SegmentName]:
    """Return the segments that have an index, in the order of their offsets.

    Of those with the same offset the newest generation comes first.  A directory that does not exist has
    none.
    """
    try:
        found = [_NAME.fullmatch(path.name) for path in journal.iterdir()]
    except FileNotFoundError:
        return []
    names = [SegmentName(int(match[1]), int(match[2])) for match in found if match]
    # The newest generation first: it is the one that counts, so that a reader can stop at the first of a
    # base.
    return sorted(names, key=lambda name: (name.base, -name.generation))
