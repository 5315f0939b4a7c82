"""Inventory: which segments a directory must have, so that a missing one is noticed.

Each segment names the one before it, and its length.  So nothing in the log says that the oldest or the last
segment is missing.  The file ``marker`` says it: the number of the oldest segment, that of the last one, and,
from a clean end until the next segment begins, how long the last one is.  It is written

* after the first group of a new segment is written, and before anybody is told that the group is safe;
* before segments are deleted;
* at a clean end, and again before the record of the clean end is removed at the next start.

So a crash in between leaves an inventory that asks for no segment that is rightly not there.  What it does
not know is how long the last segment was when the process was killed: if it is then cut exactly where a
record ends, that is not noticed.

    marker 8 · CRC-32 4 · oldest 8 · last 8 · length of the last one, or 0, 8 · CRC-32 4

An older version writes the first two fields, and reads only these.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from struct import Struct
from zlib import crc32

from plugins.engines.broker.storage.files import Files
from plugins.engines.broker.storage.framing import MARKER_BYTES
from plugins.engines.broker.storage.segment import Segment, segment_numbers

MARKER_NAME = "marker"
_SEGMENTS = Struct(">QQQ")

Report = Callable[[str, str], None]


class Inventory:
    """The file ``marker``.  Used by one thread at a time."""

    def __init__(self, files: Files, marker: bytes, oldest: int = 0, last: int = 0, size: int = 0) -> None:
        self.marker = marker
        self.oldest = oldest
        """The number of the oldest segment; 0: an older version wrote this, so it is not known."""
        self.last = last
        self.size = size
        """Octets that the last segment had at a clean end, without the record of it when there was a start
        since; 0: not known."""
        self._files = files

    def change(self, *, oldest: int, last: int, size: int = 0) -> None:
        """Write what is there from now on, if it is something else.  May raise ``OSError``."""
        if (oldest, last, size) != (self.oldest, self.last, self.size):
            self._write(oldest, last, size)
            self.oldest, self.last, self.size = oldest, last, size

    def write(self) -> None:
        """Write the file as it is."""
        self._write(self.oldest, self.last, self.size)

    def _write(self, oldest: int, last: int, size: int) -> None:
        octets = _checked(self.marker) + _checked(_SEGMENTS.pack(oldest, last, size))
        self._files.replace(MARKER_NAME, octets)


def open_inventory(files: Files, report: Report) -> Inventory:
    """Read the file of a directory.

    If its marker is damaged, missing or that of another directory, take it from the segments.  A directory
    without segments gets a new one.
    """
    there = MARKER_NAME in files.names()
    octets = files.read(MARKER_NAME, 0, 1 << 10) if there else b""
    # A wrong marker would make every record unreadable, so it has a checksum of its own.
    marker = _unchecked(octets[: MARKER_BYTES + 4])
    said = _unchecked(octets[MARKER_BYTES + 4 :])
    of_segments = _marker_of_segments(files)
    if marker is not None and not (
        of_segments is not None and of_segments[1] > 1 and of_segments[0] != marker
    ):
        if said is not None and len(said) == _SEGMENTS.size:
            return Inventory(files, marker, *_SEGMENTS.unpack(said))
        if len(octets) != MARKER_BYTES + 4:
            report("damaged", f"{MARKER_NAME}: it is cut, so a segment that is missing now is not noticed")
        return Inventory(files, marker)
    # Random, so that no message body can contain what looks like a record of this directory.
    inventory = Inventory(files, os.urandom(MARKER_BYTES) if of_segments is None else of_segments[0])
    if there or of_segments is not None:
        what = "is missing" if not there else "is damaged" if marker is None else "belongs to other segments"
        report(
            "damaged",
            f"{MARKER_NAME}: it {what}; it was made again, and a segment that is missing now is not noticed",
        )
    inventory.write()
    return inventory


def _checked(octets: bytes) -> bytes:
    return octets + crc32(octets).to_bytes(4)


def _unchecked(octets: bytes) -> bytes | None:
    return octets[:-4] if len(octets) > 4 and _checked(octets[:-4]) == octets else None


def _marker_of_segments(files: Files) -> tuple[bytes, int] | None:
    """Return with which octets most segments begin, and how many of them do."""
    # Each segment begins with a record, and so with the marker.  The majority decides, since the beginning of
    # a segment can be damaged, too.  A segment that was reserved and never written has zeros there.
    names = [Segment(number).name for number in segment_numbers(files.names())]
    votes = Counter(files.read(name, 0, MARKER_BYTES) for name in names)
    whole = [one for one in votes.most_common() if len(one[0]) == MARKER_BYTES and any(one[0])]
    return whole[0] if whole else None
