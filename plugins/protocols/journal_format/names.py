"""The file names of a journal."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import NamedTuple

DATA = ".arrows"
INDEX = ".index"
LOCK = "writer.lock"
CONSUMERS = "consumers"
IDENTITY = "identity.json"
ARCHIVE, ARCHIVE_KNOWN = "archive.json", "archive.known"
"""In a journal's directory: where its archive is and what was moved there; and that there is such a file."""
RECORD = "record.json"
"""In an archive: which rows were moved there."""

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

    @property
    def data_name(self) -> str:
        """The name of its data file, which has the batches."""
        return f"{self}{DATA}"

    @property
    def index_name(self) -> str:
        """The name of its index."""
        return f"{self}{INDEX}"

    def data_path(self, journal: Path) -> Path:
        """Return the path of its data file."""
        return journal / self.data_name

    def index_path(self, journal: Path) -> Path:
        """Return the path of its index."""
        return journal / self.index_name


def without_index(journal: Path) -> list[SegmentName]:
    """Return the segments whose data file is there and whose index is not, in the order of their offsets.

    A writer that begins a segment and a deletion leave that state for a moment, and a compaction as long as
    it runs.
    """
    try:
        return without_index_among({path.name for path in journal.iterdir()})
    except FileNotFoundError:
        return []


def without_index_among(names: Collection[str]) -> list[SegmentName]:
    """Return the segments of which only the data file is among some names of files.

    As ``without_index`` does.
    """
    data = (_NAME.fullmatch(name.removesuffix(DATA) + INDEX) for name in names if name.endswith(DATA))
    found = sorted(SegmentName(int(match[1]), int(match[2])) for match in data if match)
    return [name for name in found if f"{name}{INDEX}" not in names]


def segment_names(journal: Path) -> list[SegmentName]:
    """Return the segments that have an index, in the order of their offsets.

    Of those with the same offset the newest generation comes first.  A directory that does not exist has
    none.
    """
    return segments_among(files_in(journal))


def files_in(journal: Path) -> list[str]:
    """Return the names of all files of a directory; none if it does not exist."""
    try:
        return [path.name for path in journal.iterdir()]
    except FileNotFoundError:
        return []


def why_no_journal(journal: Path) -> str:
    """Return why a path does not lead to a journal, with the path; empty: it does."""
    try:
        files = {path.name for path in journal.iterdir()}
    except OSError as error:
        return f"{journal}: {error.strerror}"
    # A segment without an index: somebody is just beginning the journal.
    if ARCHIVE in files or segments_among(files) or without_index_among(files):
        return ""
    return f"{journal} is not a journal: it has no .index file"


def segments_among(files: Iterable[str]) -> list[SegmentName]:
    """Return the segments whose indexes are among some names of files, as ``segment_names`` does."""
    found = map(_NAME.fullmatch, files)
    names = [SegmentName(int(match[1]), int(match[2])) for match in found if match]
    # The newest generation first: it is the one that counts, so that a reader can stop at the first of a
    # base.
    return sorted(names, key=lambda name: (name.base, -name.generation))
