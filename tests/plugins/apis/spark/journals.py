"""Journals for tests, written batch by batch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from zlib import crc32

from kernel.contracts.message import PLAIN, Envelope, batch_of
from plugins.protocols.journal_format.envelopes import Source
from plugins.protocols.journal_format.index import Header, encode_entry, encode_header
from plugins.protocols.journal_format.names import SegmentName
from plugins.protocols.journal_format.record_batch import RecordBatchEncoder
from plugins.protocols.journal_format.schema import STORED_BYTES

SOURCE = Source("broker", "feed")
EPOCH = 1_700_000_000_000_000
"""When the first batch is kept, in microseconds; the next ones each a millisecond later."""


class Journal:
    """Appends batches; a new segment where the test says so."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.end = 0
        self._batches = 0
        self._encoder = RecordBatchEncoder()
        path.mkdir()
        self.roll()

    def __str__(self) -> str:
        return str(self.path)

    def append(
        self,
        bodies: Sequence[bytes],
        envelope: Envelope = PLAIN,
        *,
        ts: int | None = None,
        source: Source = SOURCE,
    ) -> None:
        """Commit one batch."""
        ts = EPOCH + 1000 * self._batches if ts is None else ts
        encoded = self._encoder.encode(self.end, [(batch_of(bodies, envelope), ts, source)])
        with self._name.data_path(self.path).open("ab") as data:
            entry = encoded.entry._replace(position=data.tell())
            data.write(encoded.data)
        with self._name.index_path(self.path).open("ab") as index:
            index.write(encode_entry(entry))
        self.end += len(bodies)
        self._batches += 1

    def numbers(self, count: int, *, batch: int = 10, key: str = "n") -> None:
        """Append rows whose body is their offset."""
        end = self.end + count
        while self.end < end:
            numbers = range(self.end, min(self.end + batch, end))
            self.append([b"%d" % number for number in numbers], Envelope(key=key))

    def roll(self) -> None:
        """Begin a segment."""
        self._name = SegmentName(self.end, 0)
        self._name.data_path(self.path).write_bytes(STORED_BYTES)
        header = Header(self.end, 0, len(STORED_BYTES), crc32(STORED_BYTES), EPOCH)
        self._name.index_path(self.path).write_bytes(encode_header(header))

    def drop(self, base: int) -> None:
        """Delete a segment, as retention does."""
        name = SegmentName(base, 0)
        name.index_path(self.path).unlink()
        name.data_path(self.path).unlink()
