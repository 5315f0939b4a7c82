"""The bytes of a commit, as whoever reads them back sees them: where its parts end, and whether they are whole."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyarrow import ipc

from plugins.protocols.journal_format.checksum import crc32

MARK = b"crc32="
"""What stands in a record batch's metadata before the digits of its CRC."""

CHECK_ZEROS = b"00000000"
"""What the digits are taken for when the CRC is counted."""


def find_check(data: pa.Buffer) -> int:
    """Return where in a commit its CRC's digits stand.  Raises ``ValueError``, ``OSError`` or ``EOFError`` if this is no commit."""
    dictionary = message_size(data, 0)
    metadata_size = int.from_bytes(memoryview(data)[dictionary + 4 : dictionary + 8], "little")
    metadata = bytes(data.slice(dictionary, min(8 + metadata_size, data.size - dictionary)))
    at = metadata.find(MARK)
    if at < 0:
        raise ValueError("a record batch without its check")
    return dictionary + at + len(MARK)


def message_size(data: pa.Buffer, position: int) -> int:
    """Return how many bytes the Arrow message at ``position`` has.  Raises ``ValueError``, ``OSError`` or ``EOFError``."""
    message = ipc.read_message(data.slice(position))
    body = 0 if message.body is None else message.body.size
    size: int = 8 + message.metadata.size + body
    return size


def commit_crc(data: Any, check_at: int) -> int:
    """Return the CRC-32 of a commit, with the digits in it taken as zeros."""
    view = memoryview(data)
    crc = crc32(CHECK_ZEROS, crc32(view[:check_at]))
    return crc32(view[check_at + len(CHECK_ZEROS) :], crc)


def written_crc(data: Any, check_at: int) -> int:
    """Return the CRC-32 that stands in a commit.  Raises ``ValueError`` if these are no digits."""
    return int(bytes(memoryview(data)[check_at : check_at + len(CHECK_ZEROS)]), 16)
