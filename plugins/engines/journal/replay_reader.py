"""Reads the rows of a journal for a replay, in chunks.  All calls block; the engine uses a thread."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from plugins.engines.journal.moments import Moment, offset_of
from plugins.engines.journal.positions import positions
from plugins.engines.journal.selection import Selection
from plugins.engines.journal.stored_batches import StoredBatches, TimedBatch
from plugins.protocols.journal_format.errors import Damaged, OutOfRange
from plugins.protocols.journal_format.reader import JournalReader

CHUNK_ROWS = 20_000
CHUNK_BYTES = 64 << 20
"""A chunk ends when it has this number of rows, or of bytes of selected bodies."""


class Chunk(NamedTuple):
    """The result of one call of ``ReplayReader.read``."""

    record_batches: list[tuple[list[TimedBatch], int]]
    """The batches of each stored batch, with their times, and the offset after it."""
    offset: int
    """The offset after the last row that was read, selected or not."""
    at_end: bool
    """Whether the end of the replay is reached."""


class ReplayReader:
    """Reads a journal from one moment to another, or from the position of a consumer.

    One thread at a time.
    """

    def __init__(
        self,
        path: Path,
        *,
        start: Moment,
        end: Moment,
        selection: Selection,
        consumer: str | None = None,
        follow: bool = False,
        into: str | None = None,
        on_damage: Callable[[Damaged], None] | None = None,
    ) -> None:
        self._reader = JournalReader(path)
        self._selection = selection
        self._on_damage = on_damage
        self._batches = StoredBatches(into)
        known = positions(path).get(consumer) if consumer else None
        self._may_miss = known is not None
        """Whether rows that retention has deleted are reported as damage and skipped.

        That is for a consumer that goes on at its old position.  A replay that asks for an offset fails
        instead.
        """
        # A known consumer continues at its position, and ``start`` does not count.
        self.offset = offset_of(self._reader, start) if known is None else known
        # Kept between two calls of ``read``, so that a chunk that ends inside a segment does not open it
        # again.
        self._record_batches: Iterator[Any] | None = None
        self._follow = follow
        self._end = offset_of(self._reader, end)
        self._stop = self._end
        """The end of ``_record_batches``; with ``follow``, the journal's end when that iterator was made."""

    def journal_end(self) -> int:
        """Return the journal's present end."""
        return self._reader.bounds().end

    def read(self) -> Chunk:
        """Read the next chunk.  Without ``on_damage``, damage raises ``Damaged``.

        Raises ``OutOfRange`` if retention has deleted the next row and ``_may_miss`` is false or there is no
        ``on_damage``.
        """
        if self._record_batches is None:
            # The end as it is now.  What is added later is read with the next iterator, so each one comes to
            # an end.
            if self._follow:
                self._stop = self._reader.bounds().end
            self._record_batches = self._reader.stored(self.offset, self._stop, on_damage=self._on_damage)
        record_batches: list[tuple[list[TimedBatch], int]] = []
        try:
            self._read_into(record_batches, self._record_batches)
        except OutOfRange as lost:
            if not self._may_miss or self._on_damage is None:
                raise
            self._on_damage(Damaged(lost.journal, lost.start, lost.stop, "retention has deleted them"))
            # Continue at the oldest row that is still there.  The empty entry has the position pass the lost
            # rows.
            self._record_batches, self.offset = None, lost.stop
            record_batches.append(([], self.offset))
        return Chunk(record_batches, self.offset, not self._follow and self.offset >= self._end)

    def _read_into(
        self, record_batches: list[tuple[list[TimedBatch], int]], stored_batches: Iterator[Any]
    ) -> None:
        rows = size = 0
        for stored in stored_batches:
            # Before the selection, which may leave out the last rows.
            self.offset = stored.column("offset")[-1].as_py() + 1
            batches = self._batches.of(self._selection.of(stored))
            record_batches.append((batches, self.offset))
            rows += stored.num_rows
            size += sum(batch.size for _, batch in batches)
            if rows >= CHUNK_ROWS or size >= CHUNK_BYTES:
                return
        # The iterator is at its end.  Damaged or missing rows before ``_stop`` were reported; they count as
        # read.
        self._record_batches = None
        self.offset = max(self._stop, self.offset)
