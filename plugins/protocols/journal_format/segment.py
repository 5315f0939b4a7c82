"""Reads one segment: the batches that are committed according to its index.

Two ways lead to the entries.  Usually all entries are whole and form a chain: each one begins where the one
before ends, in offsets and in bytes.  Then ``_entries_between`` finds those of some rows by bisection.  If an
entry is damaged or missing, ``_rebuilt`` walks the whole chain and rebuilds entries from the data file, whose
commits have a length and a CRC of their own.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from io import SEEK_END
from pathlib import Path

import pyarrow as pa

from plugins.protocols.journal_format.checksum import crc32
from plugins.protocols.journal_format.commit import commit_crc
from plugins.protocols.journal_format.decode import commit_at, stored_batches
from plugins.protocols.journal_format.errors import Damaged, UnknownVersion
from plugins.protocols.journal_format.folders import Folder, as_folder
from plugins.protocols.journal_format.index import (
    SIZE,
    Entry,
    Header,
    decode_entries,
    decode_entry,
    decode_header,
)
from plugins.protocols.journal_format.names import SegmentName
from plugins.protocols.journal_format.schema import STORED_BYTES, VERSION

OnDamage = Callable[[Damaged], None]


class Segment:
    """A segment as its index described it when this object was made; ``refresh`` reads the index again."""

    def __init__(self, journal: Path | Folder, name: SegmentName) -> None:
        """Read the index.  Raises ``FileNotFoundError`` if retention or compaction has deleted it."""
        self.name = name
        self.folder = as_folder(journal)
        self._count = -1
        self._first = self._last = b""
        self.header_is_whole = True
        self._is_foreign = False
        """Whether this is the index of another segment, which somebody has put here: nothing of it counts."""
        self.header = self._read_ends()

    def __repr__(self) -> str:
        return f"<Segment {self.name} {len(self)} batches, offsets {self.name.base} to {self.end - 1}>"

    def __len__(self) -> int:
        """Return the number of committed batches."""
        return self._count

    def refresh(self) -> bool:
        """Read the index again; return whether batches have been committed since."""
        before = self._count
        self._read_ends()
        return self._count > before

    def _read_ends(self) -> Header:
        """Read the header, the first and the last entry: enough for the bounds of the segment."""
        with self.folder.open(self.name.index_name) as file:
            header = self._read_header(file.read(SIZE))
            if self._is_foreign:
                # Damaged entries, as many as there are.
                self._first = self._last = b""
                self._count = max(file.seek(0, SEEK_END) // SIZE - 1, 0)
                return header
            # The file may grow between the reads.  ``_count`` is taken once, and everything is read up to it.
            self._first = file.read(SIZE)
            size = file.seek(0, SEEK_END)
            # Whole entries only: a writer may be in the middle of one.  The header is not counted.
            self._count = max(size // SIZE - 1, 0)
            file.seek(self._count * SIZE)
            self._last = file.read(SIZE)
        return header

    @property
    def end(self) -> int:
        """The offset after the last committed row."""
        last = self.last()
        return self.name.base if last is None else last.end

    @property
    def index_location(self) -> str:
        """Where the file with the entries is."""
        return self.folder.location(self.name.index_name)

    @property
    def data_location(self) -> str:
        """Where the file with the batches is."""
        return self.folder.location(self.name.data_name)

    def lost_its_data(self) -> bool:
        """Return whether the data file is missing although the index exists.

        Retention and compaction delete the index before the data, so a segment that they are deleting is
        never in this state: the data is lost.
        """
        return self.folder.exists(self.name.index_name) and not self.folder.exists(self.name.data_name)

    def last(self) -> Entry | None:
        """Return the last entry; None for an empty segment."""
        if not self._count:
            return None
        # The last entry decides where the segment ends.  If it is damaged, the data tell.
        entry = decode_entry(self._last)
        return entry if entry is not None else next(reversed(self.entries()), None)

    def first(self) -> Entry:
        """Return the first entry.  The segment must not be empty."""
        entry = decode_entry(self._first)
        return entry if entry is not None else self.entries()[0]

    def raw_entries(self) -> list[Entry | None]:
        """Return the entries as they are in the index; None in place of a damaged one."""
        if self._is_foreign:
            return [None] * self._count
        with self.folder.open(self.name.index_name) as file:
            file.seek(SIZE)
            return list(decode_entries(file.read(self._count * SIZE)))

    def entries(self, on_damage: OnDamage | None = None) -> list[Entry]:
        """Return all entries in order.

        A damaged entry is rebuilt from the data file.  If that is damaged too, ``on_damage`` is called.
        """
        entries = self.raw_entries()
        if all(entries) and _is_chain(entries, self.name.base, self.header.data_start):  # type: ignore[arg-type]
            return entries  # type: ignore[return-value]
        return list(self._rebuilt(entries, on_damage))

    def entry_at(self, offset: int) -> Entry | None:
        """Return the entry of the batch that has a row; None if no batch of this segment has it."""
        entries = self._entries_between(offset, offset + 1)
        if entries is None:
            entries = self.entries()
        return next((entry for entry in entries if entry.offset <= offset < entry.end), None)

    def _entries_between(self, start: int, stop: int) -> list[Entry] | None:
        """Return the entries of the rows ``start <= offset < stop``, found by bisection.

        Return None if the result is no unbroken chain that covers these rows: the index has damaged entries.
        """
        if self._is_foreign:
            return None
        with self.folder.open(self.name.index_name) as file:
            # Only the entries on the way of the bisection are read: a following reader asks for a few rows at
            # the end of a long index.
            def offset_of(number: int) -> int:
                file.seek(SIZE + SIZE * number)
                return int.from_bytes(file.read(8), "little")

            numbers = range(self._count)
            first = max(bisect_right(numbers, start, key=offset_of) - 1, 0)
            last = bisect_left(numbers, stop, lo=first, key=offset_of)
            file.seek(SIZE + SIZE * first)
            found = [entry for entry in decode_entries(file.read(SIZE * (last - first))) if entry is not None]
        if not found or len(found) < last - first or not _is_chain(found, found[0].offset, found[0].position):
            return None
        whole = found[0].offset <= max(start, self.name.base) and (
            last == self._count or found[-1].end >= stop
        )
        return found if whole else None

    def stored(
        self,
        start: int,
        stop: int,
        columns: Sequence[str] | None = None,
        on_damage: OnDamage | None = None,
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield the stored rows with ``start <= offset < stop``: the offset after a batch, and the batch.

        The CRC of each commit is checked.  Without ``on_damage``, damage raises ``Damaged``.  Raises
        ``FileNotFoundError`` if the data file is gone.
        """
        report = on_damage or raise_damage
        # First the quick way.  If the entries are no unbroken chain, walk all of them.
        entries = self._entries_between(start, stop)
        if entries is None:
            entries = self.entries(report)
        # The walk returns all entries, and the bisection may return one too many.
        wanted = [entry for entry in entries if entry.offset < stop and entry.end > start]
        prefix = self.schema_bytes()
        with self.folder.open(self.name.data_name) as file:
            for group in _groups(wanted, self.folder.read_size):
                # Arrow decodes streams, which begin with a schema message.  It is put in front of the commits
                # that were read, so that they need not be copied.
                buffer = pa.allocate_buffer(len(prefix) + group[-1].stop - group[0].position)
                view = memoryview(buffer).cast("B")
                view[: len(prefix)] = prefix
                file.seek(group[0].position)
                # The file may be shorter than the index says, after a loss of power.
                size = _read_fully(file.readinto, view[len(prefix) :])
                for entry, record_batch in self._decoded(group, buffer, prefix, size, columns, report):
                    first, end = max(start - entry.offset, 0), min(stop - entry.offset, entry.rows)
                    yield (
                        entry.offset + end,
                        record_batch if end - first == entry.rows else record_batch.slice(first, end - first),
                    )

    def _decoded(
        self,
        group: list[Entry],
        buffer: pa.Buffer,
        prefix: bytes,
        size: int,
        columns: Sequence[str] | None,
        report: OnDamage,
    ) -> Iterator[tuple[Entry, pa.RecordBatch]]:
        """Decode commits that were read together; if one of them is damaged, decode the others one by one.

        ``buffer`` has the schema message ``prefix``, and ``size`` bytes of commits after it.
        """
        view = memoryview(buffer).cast("B")[len(prefix) :]
        start = group[0].position
        whole = []
        for entry in group:
            commit = view[entry.position - start : min(entry.stop - start, size)]
            if len(commit) < entry.length:
                missing = entry.length - len(commit)
                report(
                    self._damaged(
                        entry, f"the file ends {missing} bytes before what {self.name.index_name} says"
                    )
                )
            # Before anything is decoded: Arrow does not validate the buffers that it reads.
            elif commit_crc(commit, entry.check_at) != entry.crc:
                report(self._damaged(entry, f"the CRC does not agree with {self.name.index_name}"))
            else:
                whole.append(entry)
        # The usual case: all of them are one stream.
        if len(whole) == len(group):
            yield from zip(whole, stored_batches(buffer, columns), strict=True)
            return
        for entry in whole:
            commit = view[entry.position - start : entry.stop - start]
            # Each one as a stream of its own: the damaged one between them would break a common stream.
            yield entry, next(stored_batches(prefix + bytes(commit), columns))

    def schema_bytes(self) -> bytes:
        """Return the schema message of the data file; if it is damaged, the one that this version writes."""
        with self.folder.open(self.name.data_name) as file:
            raw = file.read(self.header.data_start)
        # All journals of this format have the same schema.
        return raw if crc32(raw) == self.header.schema_crc else STORED_BYTES

    def _read_header(self, raw: bytes) -> Header:
        header = decode_header(raw)
        # A later format may have another meaning for anything.
        if header is not None and header.version > VERSION:
            raise UnknownVersion(
                f"{self.index_location}: format {header.version}; this version reads up to format {VERSION}"
            )
        self._is_foreign = header is not None and (header.base, header.generation) != self.name
        if header is None or self._is_foreign:
            # The file name and the schema of this version have everything that a reader needs from the
            # header.
            self.header_is_whole = False
            start = len(STORED_BYTES)
            return Header(self.name.base, self.name.generation, start, crc32(STORED_BYTES), 0)
        return header

    def _rebuilt(self, entries: list[Entry | None], on_damage: OnDamage | None) -> Iterator[Entry]:
        """Walk the chain of entries; rebuild those from the data that are damaged or missing.

        A whole entry proves that all rows before its own were committed, so everything that is missing before
        it is searched for in the data.  After the last whole entry only as many commits count as there are
        damaged entries: a commit without an entry was never committed.

        State of the walk: (``offset``, ``position``) is where the next commit must begin; ``whole`` are the
        whole entries that have not been passed; ``trailing`` is how many damaged entries after the last whole
        one remain.
        """
        data = self.folder.whole(self.name.data_name)
        prefix = self.schema_bytes()
        offset, position = self.name.base, self.header.data_start
        whole = deque(entry for entry in entries if entry is not None)
        # A damaged entry says at least that there was a commit.
        trailing = next((at for at, entry in enumerate(reversed(entries)) if entry is not None), len(entries))
        number = 0
        while True:
            # The walk has passed it: its rows were in a commit that was found in the data.
            while whole and whole[0].offset < offset:
                whole.popleft()
            if not whole and not trailing:
                return
            entry = whole[0] if whole and whole[0].offset == offset else None
            # The data are asked even if there is an entry, when it does not begin where the one before ends:
            # something is missing in between.
            if entry is None or entry.position != position:
                rebuilt = commit_at(data, position, prefix)
                # A commit with another offset is not the one that is missing.
                if rebuilt is not None and rebuilt.offset == offset:
                    entry = rebuilt
            if entry is not None:
                # Only entries behind the last whole one are counted.
                trailing -= not whole
                yield entry
                offset, position = entry.end, entry.stop
            elif whole:
                # Neither an entry nor a commit: the rows up to the next whole entry are lost.
                if on_damage is not None:
                    on_damage(self._lost(offset, whole[0].offset, number))
                offset, position = whole[0].offset, whole[0].position
            else:
                if on_damage is not None:
                    on_damage(self._lost(offset, offset, number))
                return
            # For the report only.
            number += 1

    def _lost(self, start: int, stop: int, number: int) -> Damaged:
        return Damaged(
            self.index_location,
            start,
            stop,
            f"entry {number} of the index is damaged or missing, and so is its batch",
        )

    def _damaged(self, entry: Entry, what: str) -> Damaged:
        return Damaged(self.data_location, entry.offset, entry.end, f"{what} (byte {entry.position})")


def _is_chain(entries: list[Entry], offset: int, position: int) -> bool:
    for entry in entries:
        if entry.offset != offset or entry.position != position:
            return False
        offset, position = entry.end, entry.stop
    return True


def _groups(entries: list[Entry], most: int) -> Iterator[list[Entry]]:
    """Divide entries into groups of neighbours that are read together, up to ``most`` bytes."""
    group: list[Entry] = []
    for entry in entries:
        if group and (entry.position != group[-1].stop or entry.stop - group[0].position > most):
            yield group
            group = []
        group.append(entry)
    if group:
        yield group


def _read_fully(readinto: Callable[[memoryview], int | None], view: memoryview) -> int:
    """Fill a buffer as far as the file goes; return the number of bytes read."""
    done = 0
    while done < len(view):
        count = readinto(view[done:])
        if not count:
            break
        done += count
    return done


def raise_damage(damage: Damaged) -> None:
    """Raise the damage: the default where no ``on_damage`` is given."""
    raise damage
