"""Directory: what a store finds and makes where it is told to keep things.

``lock`` is held by the broker that uses it, ``marker`` says how records are found, ``000000000001.log``
and its successors are the log, and ``paged/`` holds what did not fit into memory and dies with the process.
"""

from __future__ import annotations

import fcntl
import os
from collections import Counter
from pathlib import Path
from zlib import crc32

from plugins.engines.broker.storage.files import Files
from plugins.engines.broker.storage.framing import MARKER_BYTES
from plugins.engines.broker.storage.recovery import CannotOpen
from plugins.engines.broker.storage.segment import Segment, segment_numbers

MARKER_NAME = "marker"


class DirectoryLock:
    """Keeps other brokers out; the operating system takes it back when the process ends, however it does."""

    def __init__(self, directory: Path) -> None:
        self._descriptor = os.open(directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(self._descriptor, 20).decode("ascii", "replace").strip()
            os.close(self._descriptor)
            raise CannotOpen(
                f"{directory}: another broker uses this directory (process {holder}); "
                "stop that one, or give this one a data_dir of its own"
            ) from None
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, b"%d\n" % os.getpid(), 0)

    def release(self) -> None:
        """Let others in."""
        os.close(self._descriptor)


def read_marker(files: Files) -> bytes:
    """Return the directory's marker; if its file is damaged or missing, what the segments begin with.

    A directory without segments gets a new marker.
    """
    if MARKER_NAME in files.names():
        octets = files.read(MARKER_NAME, 0, MARKER_BYTES + 4)
        marker = octets[:MARKER_BYTES]
        if octets[MARKER_BYTES:] == crc32(marker).to_bytes(4):
            return marker
    marker = _marker_of_segments(files) or os.urandom(MARKER_BYTES)
    files.replace(MARKER_NAME, marker + crc32(marker).to_bytes(4))
    return marker


def _marker_of_segments(files: Files) -> bytes | None:
    names = [Segment(number).name for number in segment_numbers(files.names())]
    votes = Counter(files.read(name, 0, MARKER_BYTES) for name in names)
    whole = [marker for marker, _ in votes.most_common() if len(marker) == MARKER_BYTES]
    return whole[0] if whole else None
