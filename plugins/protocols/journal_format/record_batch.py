"""A record batch: batches in, the bytes of one commit out (``commit.py`` reads them back).

A commit is one dictionary message (the batch's envelopes) and one record batch message of the Arrow IPC stream
format.  The record batch's custom metadata has eight hexadecimal digits: the CRC-32 of the commit with these digits at
zero.  The index has the same number; that it stands here, too, makes an index that can be rebuilt from the data alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import pyarrow as pa
from pyarrow import ipc

from plugins.protocols.journal_format.checksum import crc32
from plugins.protocols.journal_format.columns import Batches, BodyColumns, OffsetColumns, filled
from plugins.protocols.journal_format.commit import CHECK_ZEROS, MARK, find_check
from plugins.protocols.journal_format.envelopes import Source, row_of
from plugins.protocols.journal_format.index import COMPRESSED, Entry
from plugins.protocols.journal_format.rooms import PAGE, Rooms
from plugins.protocols.journal_format.schema import ENVELOPE_FIELDS, STORED, STORED_BYTES

LARGEST_BODY = (1 << 31) - (1 << 20)
"""Bytes; Arrow counts those of one batch in 31 bits."""

_METADATA = {"commit": (MARK + CHECK_ZEROS).decode()}
_END_OF_STREAM = 8
_AROUND = 1 << 14
"""Bytes: more than a stream has besides its buffers."""
_MUCH = 1 << 20
"""Bytes: a stream that does not fit into so much more than twice its buffers has another fault."""
_REMEMBERED = 4096


class EncodedRecordBatch(NamedTuple):
    """The bytes of one commit, and what the index says of them."""

    data: memoryview
    entry: Entry
    """Its ``position`` is 0: the writer knows."""
    lead: int
    """How far behind a multiple of ``PAGE`` the bytes begin in memory."""


class RecordBatchEncoder:
    """Makes commits of batches.  One thread."""

    def __init__(self, compression: str | None = None) -> None:
        """``compression``: None, ``"lz4"`` or ``"zstd"``."""
        self._options = ipc.IpcWriteOptions(compression=compression)
        self._flags = COMPRESSED if compression else 0
        pa.array(
            [b""], pa.binary()
        )  # what the first one imports takes a third of a second: now, not at the first commit
        self._rows: dict[tuple[Any, Source], tuple[Any, ...]] = {}
        self._table: tuple[list[tuple[Any, ...]], Any] = ([], None)
        self._checks: tuple[Any, int] = (None, 0)
        self._offsets = OffsetColumns()
        self._bodies = BodyColumns()
        self._rooms = Rooms()

    def encode(self, offset: int, batches: Batches, position: int = 0) -> EncodedRecordBatch:
        """Encode ``(batch, ts, source)``: at least one message, together less than ``LARGEST_BODY`` bytes.

        ``ts`` is in microseconds since 1970 UTC and never goes back (``ValueError``); a batch has ``bodies``, ``envelope`` and
        ``multipart``.  ``position``: where in a file it is likely to stand.
        """
        counts = [len(batch.bodies) for batch, _, _ in batches]
        indices, table = self._envelopes(batches, counts)
        stamps = [ts for _, ts, _ in batches]
        if stamps != sorted(stamps):
            raise ValueError("the batches of a commit are to be in the order of their times")
        rows = sum(counts)
        parts, bodies = self._bodies.make(batches, rows)
        record_batch = pa.RecordBatch.from_arrays(
            [
                self._offsets.make(offset, rows),
                filled("q", STORED.field("ts").type, stamps, counts, rows),
                pa.DictionaryArray.from_arrays(indices, table, safe=False),
                parts,
                bodies,
            ],
            schema=STORED,
        )
        check_at = self._checks[1] if self._checks[0] is table else None
        encoded = self.encode_stored(
            record_batch, offset, stamps[0], stamps[-1], len(table), position, check_at=check_at
        )
        self._checks = (table, encoded.entry.check_at)  # what stands before depends on nothing else
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
        """Encode a batch that has the columns of ``STORED`` already; ``check_at``, if it is known."""
        lead = position % PAGE
        data = self._written(record_batch, lead)
        if check_at is None:
            check_at = find_check(pa.py_buffer(data))
        crc = crc32(data)
        data[check_at : check_at + len(CHECK_ZEROS)] = b"%08x" % crc
        entry = Entry(
            offset, 0, len(data), record_batch.num_rows, crc, self._flags, min_ts, max_ts, envelopes, check_at
        )
        return EncodedRecordBatch(data, entry, lead)

    def reuse(self, record_batch: EncodedRecordBatch) -> None:
        """Take back the memory of a batch that was written.  Any thread."""
        self._rooms.give_back(record_batch.data)

    def _written(self, record_batch: pa.RecordBatch, lead: int) -> memoryview:
        """Return the two messages of a commit, whose CRC is still to come, so far behind a page's beginning in memory."""
        start = (lead - len(STORED_BYTES)) % PAGE
        wanted = record_batch.nbytes + _AROUND
        while True:
            room = self._rooms.take(start + wanted)[start:]
            try:
                size = self._write(record_batch, room)
            except OSError:  # compression may make more of it, though not much
                if len(room) > 2 * record_batch.nbytes + _MUCH:
                    raise
                wanted *= 2
            else:
                return room[len(STORED_BYTES) : size - _END_OF_STREAM]

    def _write(self, record_batch: pa.RecordBatch, room: memoryview) -> int:
        sink = pa.FixedSizeBufferWriter(pa.py_buffer(room))
        with ipc.new_stream(sink, STORED, options=self._options) as stream:
            stream.write_batch(record_batch, custom_metadata=_METADATA)
        size: int = sink.tell()
        return size

    def _envelopes(self, batches: Batches, counts: list[int]) -> tuple[pa.Array, pa.StructArray]:
        """Return which envelope each message has, and the table of them."""
        known = self._rows
        if len(known) > _REMEMBERED:
            known.clear()
        numbers: dict[tuple[Any, Source], int] = {}
        indices: list[int] = []
        for batch, _, source in batches:
            indices.append(numbers.setdefault((batch.envelope, source), len(numbers)))
        rows: list[tuple[Any, ...]] = []
        for pair in numbers:
            row = known.get(pair)
            if row is None:
                row = known[pair] = row_of(*pair)
            rows.append(row)
        last, table = self._table
        if rows != last:
            table = envelope_table(rows)
            self._table = (rows, table)
        return filled("i", pa.int32(), indices, counts, sum(counts)), table


def envelope_table(rows: Sequence[tuple[Any, ...]]) -> pa.StructArray:
    """Return the dictionary of a batch whose envelopes have these values."""
    columns = [
        pa.array(values, field.type)
        for values, field in zip(zip(*rows, strict=True), ENVELOPE_FIELDS, strict=True)
    ]
    return pa.StructArray.from_arrays(columns, fields=list(ENVELOPE_FIELDS))
