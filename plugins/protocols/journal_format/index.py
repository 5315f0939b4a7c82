"""The index of a segment: a header and fixed-width entries, one for each batch that is committed.

All numbers are little-endian.  Header and entries have 64 bytes, so that none of them crosses a disk sector.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from struct import error as StructError
from typing import NamedTuple

from plugins.protocols.journal_format.checksum import crc32
from plugins.protocols.journal_format.schema import VERSION

MAGIC = b"KJOURNAL"
SIZE = 64
"""Bytes of the header, and of each entry."""

COMPRESSED = 1
"""Flag of an entry: the buffers of its batch are compressed, as its Arrow message says."""

_HEADER = Struct("<8sB3xIQIIq20x")
_ENTRY = Struct("<QQIIIIqqII4x")
_CHECK = Struct("<I")


class Header(NamedTuple):
    """The first 64 bytes of an index."""

    base: int
    """The offset of the segment's first row."""
    generation: int
    """0 as written; one more for each compaction."""
    data_start: int
    """Where the first batch begins in the data file: the length of the schema message before it."""
    schema_crc: int
    """CRC-32 of that schema message."""
    created: int
    """When the segment was begun, microseconds since 1970 UTC."""
    version: int = VERSION


class Entry(NamedTuple):
    """One committed batch."""

    offset: int
    """Of its first row."""
    position: int
    """Where its bytes begin in the data file."""
    length: int
    """How many bytes it has: a dictionary message and a record batch message."""
    rows: int
    crc: int
    """CRC-32 of these bytes, with the eight digits at ``check_at`` taken as zeros."""
    flags: int
    min_ts: int
    """Microseconds since 1970 UTC, as ``max_ts``."""
    max_ts: int
    envelopes: int
    """How many different envelopes its rows have."""
    check_at: int
    """Where in its bytes the CRC stands once more, as eight hexadecimal digits."""

    @property
    def end(self) -> int:
        """The offset after its last row."""
        return self.offset + self.rows

    @property
    def stop(self) -> int:
        """The position after its last byte."""
        return self.position + self.length


def encode_header(header: Header) -> bytes:
    """Return the 64 bytes of a header."""
    raw = _HEADER.pack(
        MAGIC,
        header.version,
        header.data_start,
        header.base,
        header.generation,
        header.schema_crc,
        header.created,
    )
    return raw + _CHECK.pack(crc32(raw))


def decode_header(raw: bytes) -> Header | None:
    """Read a header; None if it is damaged.  Of another version, too: whoever reads on looks at ``version``."""
    if len(raw) < SIZE or raw[:8] != MAGIC or _CHECK.unpack_from(raw, 60)[0] != crc32(raw[:60]):
        return None
    _, version, data_start, base, generation, schema_crc, created = _HEADER.unpack_from(raw)
    return Header(base, generation, data_start, schema_crc, created, version)


def encode_entry(entry: Entry) -> bytes:
    """Return the 64 bytes of an entry."""
    raw = _ENTRY.pack(*entry)
    return raw + _CHECK.pack(crc32(raw))


def decode_entry(raw: bytes) -> Entry | None:
    """Read an entry; None if it is damaged."""
    try:
        if _CHECK.unpack_from(raw, 60)[0] != crc32(raw[:60]):
            return None
    except StructError:
        return None
    return Entry(*_ENTRY.unpack_from(raw))


def decode_entries(raw: bytes) -> Iterator[Entry | None]:
    """Read entries that follow each other; None for a damaged one.  A torn one at the end is left out."""
    for at in range(0, len(raw) - SIZE + 1, SIZE):
        yield decode_entry(raw[at : at + SIZE])
