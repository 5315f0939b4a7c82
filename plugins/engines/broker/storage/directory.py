"""Directory: the files of a store.

The broker that uses the directory has locked ``lock``.  ``marker`` has the octets with which each record
begins. ``000000000001.log`` and its successors are the durable log.  ``paged/`` has the overflow log.
"""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from zlib import crc32

from kernel.hosting.disk import FileLock, Locked
from plugins.engines.broker.storage.files import Files
from plugins.engines.broker.storage.framing import MARKER_BYTES
from plugins.engines.broker.storage.recovery import CannotOpen
from plugins.engines.broker.storage.segment import Segment, segment_numbers

MARKER_NAME = "marker"


def lock_directory(directory: Path) -> FileLock:
    """Lock a directory; raise ``CannotOpen`` if another broker uses it."""
    try:
        return FileLock(directory / "lock")
    except Locked as holder:
        raise CannotOpen(
            f"{directory}: another broker uses this directory ({holder}); "
            "stop that one, or give this one a data_dir of its own"
        ) from None


def read_marker(files: Files) -> bytes:
    """Return the directory's marker.  If its file is damaged or missing, take the marker from the segments.

    A directory without segments gets a new marker.
    """
    if MARKER_NAME in files.names():
        octets = files.read(MARKER_NAME, 0, MARKER_BYTES + 4)
        marker = octets[:MARKER_BYTES]
        # A wrong marker would make every record unreadable, so the file has a checksum of its own.
        if octets[MARKER_BYTES:] == crc32(marker).to_bytes(4):
            return marker
    # Random, so that no message body can contain what looks like a record of this directory.
    marker = _marker_of_segments(files) or os.urandom(MARKER_BYTES)
    files.replace(MARKER_NAME, marker + crc32(marker).to_bytes(4))
    return marker


def _marker_of_segments(files: Files) -> bytes | None:
    # Each segment begins with a record, and so with the marker.  The majority decides, since the beginning of
    # a segment can be damaged, too.  A segment that was reserved and never written has zeros there.
    names = [Segment(number).name for number in segment_numbers(files.names())]
    votes = Counter(files.read(name, 0, MARKER_BYTES) for name in names)
    whole = [marker for marker, _ in votes.most_common() if len(marker) == MARKER_BYTES and any(marker)]
    return whole[0] if whole else None
