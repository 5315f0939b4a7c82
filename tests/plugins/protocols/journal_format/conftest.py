"""Small journals, written with the encoder alone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from zlib import crc32

import pytest

from kernel.contracts.message import Batch

pytest.importorskip("pyarrow")

from plugins.protocols.journal_format.envelopes import Source
from plugins.protocols.journal_format.index import Header, encode_entry, encode_header
from plugins.protocols.journal_format.names import SegmentName
from plugins.protocols.journal_format.record_batch import RecordBatchEncoder
from plugins.protocols.journal_format.schema import STORED_BYTES

FROM = Source("broker", "everything")


def write_segment(
    journal: Path,
    record_batches: Sequence[Sequence[Batch]],
    *,
    base: int = 0,
    generation: int = 0,
    compression: str | None = None,
    ts: int = 1_000_000,
) -> int:
    """Write a segment with a commit for each batch, a second apart from ``ts`` on; return the offset after it."""
    name = SegmentName(base, generation)
    encoder = RecordBatchEncoder(compression)
    data = [STORED_BYTES]
    index = [encode_header(Header(base, generation, len(STORED_BYTES), crc32(STORED_BYTES), ts))]
    offset, position = base, len(STORED_BYTES)
    for number, batches in enumerate(record_batches):
        encoded = encoder.encode(offset, [(batch, ts + number * 1_000_000, FROM) for batch in batches])
        data.append(bytes(encoded.data))
        index.append(encode_entry(encoded.entry._replace(position=position)))
        offset, position = encoded.entry.end, position + encoded.entry.length
    name.data_path(journal).write_bytes(b"".join(data))
    name.index_path(journal).write_bytes(b"".join(index))
    return offset
