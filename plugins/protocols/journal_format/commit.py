"""The bytes of a commit: the size of its Arrow messages, and its CRC.  ``record_batch.py`` writes commits."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyarrow import ipc

from plugins.protocols.journal_format.checksum import crc32

MARK = b"crc32="
"""The text in a record batch's metadata directly before the digits of its CRC."""

CHECK_ZEROS = b"00000000"
"""The CRC is computed with these eight bytes in place of its digits: a commit cannot contain its own CRC."""


def find_check(data: pa.Buffer) -> int:
    """Return the position of the CRC's digits in a commit.

    Raises ``ValueError``, ``OSError`` or ``EOFError`` if the data is not a commit.
    """
    dictionary = message_size(data, 0)
    # Arrow IPC: a message begins with four bytes of ones and four bytes with the size of its metadata.
    metadata_size = int.from_bytes(memoryview(data)[dictionary + 4 : dictionary + 8], "little")
    # Only the metadata of the record batch is searched: a body may contain the same text.
    metadata = bytes(data.slice(dictionary, min(8 + metadata_size, data.size - dictionary)))
    at = metadata.find(MARK)
    if at < 0:
        raise ValueError("the record batch has no CRC in its metadata")
    return dictionary + at + len(MARK)


def message_size(data: pa.Buffer, position: int) -> int:
    """Return the size in bytes of the Arrow message at ``position``, with its 8 bytes of prefix.

    Raises ``ValueError``, ``OSError`` or ``EOFError`` if there is no whole message.
    """
    message = ipc.read_message(data.slice(position))
    body = 0 if message.body is None else message.body.size
    size: int = 8 + message.metadata.size + body
    return size


def commit_crc(data: Any, check_at: int) -> int:
    """Return the CRC-32 of a commit, computed with zeros in place of its digits at ``check_at``."""
    view = memoryview(data)
    # In three parts, so that the commit is not copied to put zeros in.
    crc = crc32(CHECK_ZEROS, crc32(view[:check_at]))
    return crc32(view[check_at + len(CHECK_ZEROS) :], crc)


def written_crc(data: Any, check_at: int) -> int:
    """Return the CRC-32 that a commit contains at ``check_at``.

    Raises ``ValueError`` if there are no digits.
    """
    return int(bytes(memoryview(data)[check_at : check_at + len(CHECK_ZEROS)]), 16)
