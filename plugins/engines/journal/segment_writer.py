"""One segment as the writer sees it: two files that grow."""

from __future__ import annotations

from pathlib import Path
from zlib import crc32

from plugins.engines.journal.disk import Disk
from plugins.protocols.journal_format.batch import EncodedBatch
from plugins.protocols.journal_format.index import SIZE, Entry, Header, encode_entry, encode_header
from plugins.protocols.journal_format.names import SegmentName
from plugins.protocols.journal_format.schema import STORED_BYTES


class SegmentWriter:
    """Appends commits: data first, then the index entry.  A commit that fails leaves no trace."""

    def __init__(
        self,
        disk: Disk,
        name: SegmentName,
        data: int,
        index: int,
        *,
        position: int,
        entries: int,
        end: int,
        created: int,
    ) -> None:
        """``data`` and ``index`` are descriptors that stand at ``position`` and behind ``entries`` entries."""
        self.name = name
        self.position = position
        self.entries = entries
        self.end = end
        self.created = created
        """Microseconds since 1970 UTC."""
        self._disk = disk
        self._data = data
        self._index = index
        self._synced = 0

    @classmethod
    def begin(cls, disk: Disk, journal: Path, name: SegmentName, now: int) -> SegmentWriter:
        """Make a new segment, whose names and headers are safe when this returns; ``now`` in microseconds."""
        data_path, index_path = name.data_path(journal), name.index_path(journal)
        data_path.unlink(missing_ok=True)  # of a beginning that failed: without an index it holds nothing
        data = disk.create(data_path)
        index = -1
        try:
            disk.write(data, [STORED_BYTES])
            disk.sync(data)
            index = disk.create(index_path)
            header = Header(name.base, name.generation, len(STORED_BYTES), crc32(STORED_BYTES), now)
            disk.write(index, [encode_header(header)])
            disk.sync(index)
            disk.sync_directory(journal)
        except OSError:
            for fd, path in ((data, data_path), (index, index_path)):
                if fd >= 0:
                    disk.close(fd)
                    path.unlink()
            raise
        return cls(disk, name, data, index, position=len(STORED_BYTES), entries=0, end=name.base, created=now)

    def append(self, batch: EncodedBatch) -> Entry:
        """Write a commit whose first row is ``end``.  After an ``OSError`` the segment is as it was."""
        entry = batch.entry._replace(position=self.position)
        try:
            self._disk.write(self._data, batch.pieces)
            self._disk.write(self._index, [encode_entry(entry)])
        except OSError:
            self._disk.cut(self._data, self.position)
            self._disk.cut(self._index, SIZE + SIZE * self.entries)
            raise
        self.position = entry.stop
        self.entries += 1
        self.end = entry.end
        return entry

    def sync(self) -> bool:
        """Have all commits survive a loss of power; return whether there was anything to do."""
        if self._synced == self.entries:
            return False
        self._disk.sync(self._data)
        self._disk.sync(self._index)
        self._synced = self.entries
        return True

    def close(self) -> None:
        """Close both files."""
        self._disk.close(self._data)
        self._disk.close(self._index)
