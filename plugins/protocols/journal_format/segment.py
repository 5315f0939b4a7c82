"""One segment as a reader sees it: the batches that its index says are committed."""

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

_READ_SIZE = 4 << 20
"""About how many bytes of commits are read at a time."""


class Segment:
    """A segment that is open for reading.  What its index says now is what it holds; ``refresh`` looks again."""

    def __init__(self, journal: Path, name: SegmentName) -> None:
        """Raises ``FileNotFoundError`` when retention or compaction has taken it."""
        self.name = name
        self._data = name.data_path(journal)
        self._index = name.index_path(journal)
        self._count = -1
        self._first = self._last = b""
        self.header_is_whole = True
        self.header = self._look()

    def __repr__(self) -> str:
        return f"<Segment {self.name} {len(self)} batches, offsets {self.name.base} to {self.end - 1}>"

    def __len__(self) -> int:
        """How many batches are committed."""
        return self._count

    def refresh(self) -> bool:
        """Look at what was committed since; return whether there was anything."""
        before = self._count
        self._look()
        return self._count > before

    def _look(self) -> Header:
        """Read the header, the first and the last entry: what there is to know without reading it all."""
        with self._index.open("rb") as file:
            header = self._read_header(file.read(SIZE))
            self._first = file.read(SIZE)
            size = file.seek(0, SEEK_END)
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
    def data_path(self) -> Path:
        """The file with the batches."""
        return self._data

    def lost_its_data(self) -> bool:
        """Whether the data file is missing though the index is there.

        Retention and compaction delete an index before its data, so this is no deletion at work.
        """
        return self._index.exists() and not self._data.exists()

    def last(self) -> Entry | None:
        """The last entry; None for a segment without any."""
        if not self._count:
            return None
        entry = decode_entry(self._last)
        return entry if entry is not None else next(reversed(self.entries()), None)

    def first(self) -> Entry:
        """The first entry, of which there has to be one."""
        entry = decode_entry(self._first)
        return entry if entry is not None else self.entries()[0]

    def raw_entries(self) -> list[Entry | None]:
        """Return the entries as they stand in the index; None for a damaged one."""
        with self._index.open("rb") as file:
            file.seek(SIZE)
            return list(decode_entries(file.read(self._count * SIZE)))

    def entries(self, on_damage: OnDamage | None = None) -> list[Entry]:
        """Return all entries in order.

        One that is damaged is made anew from the data, where it can be; where it cannot, ``on_damage`` is told.
        """
        entries = self.raw_entries()
        if all(entries) and _is_chain(entries, self.name.base, self.header.data_start):  # type: ignore[arg-type]
            return entries  # type: ignore[return-value]
        return list(self._mended(entries, on_damage))

    def _entries_between(self, start: int, stop: int) -> list[Entry] | None:
        """Return the entries of these rows, found by bisection; None where damage is in the way, and all have to be looked at."""
        with self._index.open("rb", buffering=0) as file:

            def offset_of(number: int) -> int:
                file.seek(SIZE + SIZE * number)
                return int.from_bytes(file.read(8), "little")

            everyone = range(self._count)
            first = max(bisect_right(everyone, start, key=offset_of) - 1, 0)
            last = bisect_left(everyone, stop, lo=first, key=offset_of)
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
        """Yield rows with ``start <= offset < stop`` as they are stored, each batch with the offset after its last row.

        Each commit's CRC is looked at.  Without ``on_damage``, damage raises ``Damaged``.
        """
        tell = on_damage or raise_damage
        entries = self._entries_between(start, stop)
        if entries is None:
            entries = self.entries(tell)
        wanted = [entry for entry in entries if entry.offset < stop and entry.end > start]
        prefix = self.schema_bytes()
        with self._data.open("rb", buffering=0) as file:
            for group in _groups(wanted):
                buffer = pa.allocate_buffer(len(prefix) + group[-1].stop - group[0].position)
                view = memoryview(buffer).cast("B")
                view[: len(prefix)] = prefix
                file.seek(group[0].position)
                there = _read_fully(file.readinto, view[len(prefix) :])
                for entry, record_batch in self._decoded(group, buffer, prefix, there, columns, tell):
                    here, last = max(start - entry.offset, 0), min(stop - entry.offset, entry.rows)
                    yield (
                        entry.offset + last,
                        record_batch if last - here == entry.rows else record_batch.slice(here, last - here),
                    )

    def _decoded(
        self,
        group: list[Entry],
        buffer: pa.Buffer,
        prefix: bytes,
        there: int,
        columns: Sequence[str] | None,
        tell: OnDamage,
    ) -> Iterator[tuple[Entry, pa.RecordBatch]]:
        """Decode commits that were read together; if one of them is damaged, one by one."""
        view = memoryview(buffer).cast("B")[len(prefix) :]
        start = group[0].position
        whole = []
        for entry in group:
            commit = view[entry.position - start : min(entry.stop - start, there)]
            if len(commit) < entry.length:
                tell(self._damaged(entry, f"the file ends {entry.length - len(commit)} bytes too early"))
            elif commit_crc(commit, entry.check_at) != entry.crc:
                tell(self._damaged(entry, "the CRC does not agree"))
            else:
                whole.append(entry)
        if len(whole) == len(group):
            yield from zip(whole, stored_batches(buffer, columns), strict=True)
            return
        for entry in whole:
            commit = view[entry.position - start : entry.stop - start]
            yield entry, next(stored_batches(prefix + bytes(commit), columns))

    def schema_bytes(self) -> bytes:
        """The schema message of the data file, or if it is damaged the one that this version writes."""
        with self._data.open("rb") as file:
            raw = file.read(self.header.data_start)
        return raw if crc32(raw) == self.header.schema_crc else STORED_BYTES

    def _read_header(self, raw: bytes) -> Header:
        header = decode_header(raw)
        if header is None:
            # its name and this version's schema tell the same
            self.header_is_whole = False
            start = len(STORED_BYTES)
            return Header(self.name.base, self.name.generation, start, crc32(STORED_BYTES), 0)
        if header.version > VERSION:
            raise UnknownVersion(
                f"{self._index}: format {header.version}; this version reads up to format {VERSION}"
            )
        return header

    def _mended(self, entries: list[Entry | None], on_damage: OnDamage | None) -> Iterator[Entry]:
        """Walk the chain of entries; make those anew from the data that are damaged or missing.

        An entry that is whole proves that all rows before its own were committed, so the walk looks in the data for
        whatever is missing before it.  Behind the last whole entry only as many commits count as there are damaged
        entries: what no entry covers was not committed.
        """
        data = _mapped(self._data)
        prefix = self.schema_bytes()
        offset, position = self.name.base, self.header.data_start
        whole = deque(entry for entry in entries if entry is not None)
        trailing = next((at for at, entry in enumerate(reversed(entries)) if entry is not None), len(entries))
        number = 0
        while True:
            while whole and whole[0].offset < offset:
                whole.popleft()
            if not whole and not trailing:
                return
            entry = whole[0] if whole and whole[0].offset == offset else None
            if entry is None or entry.position != position:
                made = commit_at(data, position, prefix)
                if made is not None and made.offset == offset:
                    entry = made
            if entry is not None:
                trailing -= not whole
                yield entry
                offset, position = entry.end, entry.stop
            elif whole:
                if on_damage is not None:
                    on_damage(self._lost(offset, whole[0].offset, number))
                offset, position = whole[0].offset, whole[0].position
            else:
                if on_damage is not None:
                    on_damage(self._lost(offset, offset, number))
                return
            number += 1

    def _lost(self, start: int, stop: int, number: int) -> Damaged:
        return Damaged(
            str(self._index),
            start,
            stop,
            f"entry {number} of the index is damaged or missing, and so is its batch",
        )

    def _damaged(self, entry: Entry, what: str) -> Damaged:
        return Damaged(str(self._data), entry.offset, entry.end, f"{what} (byte {entry.position})")


def _mapped(path: Path) -> pa.Buffer:
    return pa.memory_map(str(path)).read_buffer() if path.stat().st_size else pa.py_buffer(b"")


def _is_chain(entries: list[Entry], offset: int, position: int) -> bool:
    for entry in entries:
        if entry.offset != offset or entry.position != position:
            return False
        offset, position = entry.end, entry.stop
    return True


def _groups(entries: list[Entry]) -> Iterator[list[Entry]]:
    """Divide entries into those that are read together: neighbours, up to some bytes."""
    group: list[Entry] = []
    for entry in entries:
        if group and (entry.position != group[-1].stop or entry.stop - group[0].position > _READ_SIZE):
            yield group
            group = []
        group.append(entry)
    if group:
        yield group


def _read_fully(readinto: Callable[[memoryview], int | None], view: memoryview) -> int:
    """Fill a buffer; return how many bytes there were."""
    done = 0
    while done < len(view):
        count = readinto(view[done:])
        if not count:
            break
        done += count
    return done


def raise_damage(damage: Damaged) -> None:
    """What is done with damage that nobody takes."""
    raise damage
