"""Framing: records in a file, which can be found even if octets between them are damaged.

    marker 8 · CRC-32 4 · payload length 4 · kind 1 · payload

The CRC covers all that follows it.  The marker is random for each store, so that no message body
can look like a record.  After damaged octets, a reader searches for the next marker.
Integers are big-endian throughout the store.

A record counts only if its marker, its length and its CRC all agree.  The CRC covers the length and the kind,
too: a damaged length must not make the reader skip the records behind it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import IntEnum
from struct import Struct
from typing import NamedTuple
from zlib import crc32

from kernel.contracts.message import Buffer

MARKER_BYTES = 8
_CHECKED = Struct(">IB")
_HEADER = Struct(">8sIIB")
HEADER_BYTES = _HEADER.size
_WINDOW = 1 << 20
"""Bytes read at once; a longer record is read by itself."""

Read = Callable[[int, int], bytes]
"""Offset and length in; the octets there, fewer at the end of the file."""


class Kind(IntEnum):
    """What a record says."""

    SEGMENT = 1
    EXCHANGE_1 = 2
    QUEUE_1 = 3
    BINDING_1 = 4
    """Definitions in format 1."""
    DROP = 5
    MESSAGES_1 = 6
    """Messages in format 1."""
    ACKNOWLEDGED = 7
    CLEAN = 8
    DEFINITION = 9
    MESSAGES = 10


class Record(NamedTuple):
    """A record, and its offsets in the file."""

    start: int
    stop: int
    kind: int
    payload: memoryview


class Damage(NamedTuple):
    """Octets between two records, or before the end of the file, that are no record."""

    start: int
    stop: int


def header_of(marker: bytes, kind: int, payload: Buffer) -> bytes:
    """Return the header of a record."""
    size = len(payload)
    # In two steps, so that the payload is not copied to join it with its header.
    return _HEADER.pack(marker, crc32(payload, crc32(_CHECKED.pack(size, kind))), size, kind)


def frame(marker: bytes, kind: int, payload: bytes) -> bytes:
    """Return a whole record."""
    return header_of(marker, kind, payload) + payload


class RecordReader:
    """Reads the records from ``start`` to ``stop`` of a file, and returns damaged ranges as ``Damage``."""

    def __init__(self, read: Read, marker: bytes, start: int, stop: int) -> None:
        self._read = read
        self._marker = marker
        self._at = start
        self._stop = stop
        self._window = memoryview(b"")
        self._window_at = start

    def __iter__(self) -> Iterator[Record | Damage]:
        while self._at < self._stop:
            record = self._record_at(self._at)
            if record is None:
                lost = Damage(self._at, self._next_record())
                self._at = lost.stop
                yield lost
            else:
                self._at = record.stop
                yield record

    def _octets(self, at: int, count: int) -> memoryview:
        # The window is one read of the file.  Records that lie in it are views, without a copy.
        begin = at - self._window_at
        if begin < 0 or begin + count > len(self._window):
            # Never beyond ``stop``: what follows belongs to somebody else, or is being written.
            wanted = min(max(count, _WINDOW), self._stop - at)
            self._window = memoryview(self._read(at, wanted))
            self._window_at = at
            begin = 0
        return self._window[begin : begin + count]

    def _record_at(self, at: int) -> Record | None:
        if at + HEADER_BYTES > self._stop:
            return None
        header = self._octets(at, HEADER_BYTES)
        if len(header) < HEADER_BYTES:
            return None
        marker, checksum, size, kind = _HEADER.unpack(header)
        # The length is checked before the payload is read: a damaged one may be up to 4 GiB.
        if marker != self._marker or at + HEADER_BYTES + size > self._stop:
            return None
        # With the header, so that the window begins at the record and the next records are in it, too.
        payload = self._octets(at, HEADER_BYTES + size)[HEADER_BYTES:]
        if len(payload) < size or crc32(payload, crc32(_CHECKED.pack(size, kind))) != checksum:
            return None
        return Record(at, at + HEADER_BYTES + size, kind, payload)

    def _next_record(self) -> int:
        """Return where the next whole record begins, or the end."""
        at = self._at + 1
        while at + HEADER_BYTES <= self._stop:
            # A copy of a window, because a memoryview has no ``find``.
            octets = bytes(self._octets(at, min(_WINDOW, self._stop - at)))
            found = octets.find(self._marker)
            if found < 0:
                if len(octets) < MARKER_BYTES:
                    break
                # A marker may begin in this window and end in the next one.
                at += len(octets) - MARKER_BYTES + 1
            # A marker without a whole record behind it is part of the damage.
            elif self._record_at(at + found) is not None:
                return at + found
            else:
                at += found + 1
        return self._stop
