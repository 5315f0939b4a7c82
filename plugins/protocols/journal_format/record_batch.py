"""Encodes batches of messages into the bytes of one commit.  ``commit.py`` and ``decode.py`` read them back.

A commit is one dictionary message (the batch's envelopes) and one record batch message of the Arrow IPC
stream format.  The record batch's custom metadata contains eight hexadecimal digits: the CRC-32 of the
commit, computed with zeros in place of these digits.  The index has the same number.  It is also in the
commit so that a lost index can be rebuilt from the data alone.

How ``encode`` works, and what it reuses from one commit to the next:

1. each pair of envelope and source becomes a row of the dictionary; rows are cached, and so is the whole
   dictionary (most commits have the envelopes of the previous one);
2. ``columns.py`` builds the columns from the batches, in most cases without a loop over the messages;
3. Arrow writes an IPC stream (schema, dictionary, batch, end marker) into a buffer of the pool; the commit is
   that stream without the schema message and the end marker;
4. the CRC is computed and its digits are written into their place.

The commit begins in memory at the same distance behind a page boundary at which it will begin in the file:
direct I/O needs pages that are aligned in both.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import pyarrow as pa
from pyarrow import ipc

from plugins.protocols.journal_format.buffer_pool import PAGE, BufferPool
from plugins.protocols.journal_format.checksum import crc32
from plugins.protocols.journal_format.columns import Batches, BodyColumns, OffsetColumns, filled
from plugins.protocols.journal_format.commit import CHECK_ZEROS, MARK, find_check
from plugins.protocols.journal_format.envelopes import Source, row_of
from plugins.protocols.journal_format.index import COMPRESSED, Entry
from plugins.protocols.journal_format.schema import ENVELOPE_FIELDS, STORED, STORED_BYTES

LARGEST_BODY = (1 << 31) - (1 << 20)
"""Bytes of a body, exclusive.  Arrow's offsets into the bodies of one batch have 31 bits."""

_METADATA = {"commit": (MARK + CHECK_ZEROS).decode()}
_END_OF_STREAM = 8
"""Bytes of the end marker of an Arrow IPC stream."""
_FRAMING = 1 << 14
"""Bytes: an upper limit of what a stream has besides its buffers (schema, metadata, padding)."""
_SLACK = 1 << 20
"""Bytes.  A stream that does not fit into twice the size of its buffers and this has failed for another
reason."""
_CACHED_ROWS = 4096
"""Rows of the envelope table that are cached; when there are more, the cache is cleared."""


class EncodedRecordBatch(NamedTuple):
    """The bytes of one commit, and its entry for the index."""

    data: memoryview
    entry: Entry
    """Its ``position`` is 0; the writer fills in the real one."""
    lead: int
    """Distance in bytes from the previous multiple of ``PAGE`` to the beginning of ``data`` in memory."""


class RecordBatchEncoder:
    """Encodes batches into commits.  For one thread, except ``reuse``."""

    def __init__(self, compression: str | None = None) -> None:
        """``compression`` is None, ``"lz4"`` or ``"zstd"``."""
        self._options = ipc.IpcWriteOptions(compression=compression)
        self._flags = COMPRESSED if compression else 0
        # The first call of this function imports modules for a third of a second: do it now, not at the first
        # commit.
        pa.array([b""], pa.binary())
        self._rows: dict[tuple[Any, Source], tuple[Any, ...]] = {}
        self._table: tuple[list[tuple[Any, ...]], Any] = ([], None)
        self._checks: tuple[Any, int] = (None, 0)
        self._offsets = OffsetColumns()
        self._bodies = BodyColumns()
        self._buffers = BufferPool()

    def encode(self, offset: int, batches: Batches, position: int = 0) -> EncodedRecordBatch:
        """Encode items of (batch, ts, source) as one commit whose first row has this ``offset``.

        The batches have at least one message, and together less than ``LARGEST_BODY`` bytes.  ``ts`` is in
        microseconds since 1970 UTC; it must not decrease (``ValueError``).  ``position`` is where in the data
        file the commit will probably begin; a wrong guess costs speed only.
        """
        counts = [len(batch.bodies) for batch, _, _ in batches]
        indices, table = self._envelopes(batches, counts)
        # A comparison with the sorted list costs little: there are as many times as batches, and sorting a
        # sorted list is one pass.
        stamps = [ts for _, ts, _ in batches]
        if stamps != sorted(stamps):
            raise ValueError("the batches of a commit must be in the order of their times")
        rows = sum(counts)
        parts, bodies = self._bodies.make(batches, rows)
        record_batch = pa.RecordBatch.from_arrays(
            [
                self._offsets.make(offset, rows),
                filled("q", STORED.field("ts").type, stamps, counts, rows),
                # Not ``safe``: the indices were just made from the table, and checking them would be a pass
                # over all rows.
                pa.DictionaryArray.from_arrays(indices, table, safe=False),
                parts,
                bodies,
            ],
            schema=STORED,
        )
        # By identity: ``_envelopes`` returns the same table as long as the envelopes are the same.
        check_at = self._checks[1] if self._checks[0] is table else None
        encoded = self.encode_stored(
            record_batch, offset, stamps[0], stamps[-1], len(table), position, check_at=check_at
        )
        # The bytes before the digits depend on the dictionary only: equal dictionary, equal position of the
        # digits.
        self._checks = (table, encoded.entry.check_at)
        return encoded

    def encode_stored(
        self,
        record_batch: pa.RecordBatch,
        offset: int,
        min_ts: int,
        max_ts: int,
        envelopes: int,
        position: int = 0,
        *,
        check_at: int | None = None,
    ) -> EncodedRecordBatch:
        """Encode a batch that already has the columns of ``STORED``.

        ``check_at`` is the position of the CRC's digits in the commit; None: it is searched for.
        """
        lead = position % PAGE
        data = self._written(record_batch, lead)
        if check_at is None:
            check_at = find_check(pa.py_buffer(data))
        # ``data`` has zeros in place of the digits, because the metadata was written so.
        crc = crc32(data)
        data[check_at : check_at + len(CHECK_ZEROS)] = b"%08x" % crc
        entry = Entry(
            offset, 0, len(data), record_batch.num_rows, crc, self._flags, min_ts, max_ts, envelopes, check_at
        )
        return EncodedRecordBatch(data, entry, lead)

    def reuse(self, record_batch: EncodedRecordBatch) -> None:
        """Return the memory of a commit that has been written to the pool.  May be called in any thread."""
        self._buffers.give_back(record_batch.data)

    def _written(self, record_batch: pa.RecordBatch, lead: int) -> memoryview:
        """Return the two messages of a commit, ``lead`` bytes behind a page boundary, still without CRC."""
        # The stream begins with the schema message, which is not part of the commit.  So the stream begins
        # before the place that the commit needs.
        start = (lead - len(STORED_BYTES)) % PAGE
        # An upper limit without compression; twice the size is tried if that was not enough.
        wanted = record_batch.nbytes + _FRAMING
        while True:
            buffer = self._buffers.take(start + wanted)[start:]
            try:
                size = self._write(record_batch, buffer)
            except OSError:
                # The buffer was too small.  Compression may enlarge data, but only a little.
                if len(buffer) > 2 * record_batch.nbytes + _SLACK:
                    raise
                wanted *= 2
            else:
                # Without the end marker: the stream in the file goes on with the next commit.
                return buffer[len(STORED_BYTES) : size - _END_OF_STREAM]

    def _write(self, record_batch: pa.RecordBatch, buffer: memoryview) -> int:
        """Write a whole IPC stream into ``buffer``; return its size.

        Raises ``OSError`` if it does not fit.
        """
        sink = pa.FixedSizeBufferWriter(pa.py_buffer(buffer))
        with ipc.new_stream(sink, STORED, options=self._options) as stream:
            stream.write_batch(record_batch, custom_metadata=_METADATA)
        size: int = sink.tell()
        return size

    def _envelopes(self, batches: Batches, counts: list[int]) -> tuple[pa.Array, pa.StructArray]:
        """Return the number of each message's envelope, and the table of envelopes."""
        known = self._rows
        # Cleared as a whole: envelopes that are still in use come back with the next commit.
        if len(known) > _CACHED_ROWS:
            known.clear()
        numbers: dict[tuple[Any, Source], int] = {}
        indices: list[int] = []
        for batch, _, source in batches:
            # One number for each batch, not for each message; ``filled`` repeats it.
            indices.append(numbers.setdefault((batch.envelope, source), len(numbers)))
        rows: list[tuple[Any, ...]] = []
        for pair in numbers:
            row = known.get(pair)
            if row is None:
                row = known[pair] = row_of(*pair)
            rows.append(row)
        last, table = self._table
        # Most commits have the envelopes of the one before.  Then neither the table nor the search for the
        # digits is needed.
        if rows != last:
            table = envelope_table(rows)
            self._table = (rows, table)
        return filled("i", pa.int32(), indices, counts, sum(counts)), table


def envelope_table(rows: Sequence[tuple[Any, ...]]) -> pa.StructArray:
    """Return the envelope dictionary of a batch; ``rows`` are results of ``row_of``."""
    columns = [
        pa.array(values, field.type)
        for values, field in zip(zip(*rows, strict=True), ENVELOPE_FIELDS, strict=True)
    ]
    return pa.StructArray.from_arrays(columns, fields=list(ENVELOPE_FIELDS))
