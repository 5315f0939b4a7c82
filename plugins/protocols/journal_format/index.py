"""The index of a segment: a header and entries of fixed size, one for each committed batch.

A batch is committed when its entry is in the index.  All numbers are little-endian.  The header and each
entry have 64 bytes, so that none of them crosses a disk sector: a write of one is not torn.

An entry repeats what the commit says about itself, and continues the entry before: ``offset`` and
``position`` are sums over all entries before.  So a single entry can be checked, a missing one is noticed,
and the entries of some rows are found by bisection.
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
"""Size in bytes of the header, and of each entry."""

COMPRESSED = 1
"""Flag of an entry: the buffers of its batch are compressed.  Its Arrow message says with which codec."""

# 60 bytes each; ``_CHECK`` follows.
_HEADER = Struct("<8sB3xIQIIq20x")
_ENTRY = Struct("<QQIIIIqqII4x")
_CHECK = Struct("<I")


class Header(NamedTuple):
    """The first 64 bytes of an index."""

    base: int
    """The offset of the segment's first row."""
    generation: int
    """0 for a segment from a writer; each compaction adds one."""
    data_start: int
    """Where the first batch begins in the data file: the length of the schema message in bytes."""
    schema_crc: int
    """CRC-32 of that schema message."""
    created: int
    """When the segment was created, microseconds since 1970 UTC."""
    version: int = VERSION


class Entry(NamedTuple):
    """One committed batch."""

    offset: int
    """The offset of its first row."""
    position: int
    """Where its bytes begin in the data file."""
    length: int
    """Its size in bytes: a dictionary message and a record batch message."""
    rows: int
    crc: int
    """CRC-32 of these bytes, computed with zeros in place of the eight digits at ``check_at``."""
    flags: int
    min_ts: int
    """When its first row was received, microseconds since 1970 UTC."""
    max_ts: int
    """The same of its last row."""
    envelopes: int
    """The number of different envelopes of its rows."""
    check_at: int
    """Position of the copy of the CRC inside these bytes, as eight hexadecimal digits."""

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
    """Decode a header; return None if it is damaged.

    The caller checks ``version``: any version is decoded.
    """
    # Damage, and not an exception: the file name and the schema have what a reader needs
    # (``Segment._read_header``).
    if len(raw) < SIZE or raw[:8] != MAGIC or _CHECK.unpack_from(raw, 60)[0] != crc32(raw[:60]):
        return None
    _, version, data_start, base, generation, schema_crc, created = _HEADER.unpack_from(raw)
    return Header(base, generation, data_start, schema_crc, created, version)


def encode_entry(entry: Entry) -> bytes:
    """Return the 64 bytes of an entry."""
    raw = _ENTRY.pack(*entry)
    # The CRC of the entry itself.  The one in it is that of the commit.
    return raw + _CHECK.pack(crc32(raw))


def decode_entry(raw: bytes) -> Entry | None:
    """Decode an entry; return None if it is damaged."""
    try:
        if _CHECK.unpack_from(raw, 60)[0] != crc32(raw[:60]):
            return None
    # Fewer than 64 bytes.
    except StructError:
        return None
    return Entry(*_ENTRY.unpack_from(raw))


def decode_entries(raw: bytes) -> Iterator[Entry | None]:
    """Decode consecutive entries; yield None for a damaged one.

    An incomplete entry at the end is left out.
    """
    # A writer may be in the middle of the last one.
    for at in range(0, len(raw) - SIZE + 1, SIZE):
        yield decode_entry(raw[at : at + SIZE])
