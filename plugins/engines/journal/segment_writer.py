"""One segment as the writer sees it: two files that grow."""

from __future__ import annotations

import threading
from pathlib import Path

from plugins.engines.journal.data_file import DataFile
from plugins.engines.journal.disk import Disk
from plugins.protocols.journal_format.checksum import crc32
from plugins.protocols.journal_format.index import SIZE, Entry, Header, encode_entry, encode_header
from plugins.protocols.journal_format.names import SegmentName
from plugins.protocols.journal_format.record_batch import EncodedRecordBatch
from plugins.protocols.journal_format.schema import STORED_BYTES

_CACHED = 32 << 20
"""Bytes at the end that stay in memory for readers that follow.  A long journal would otherwise take all of it, and each
page that is new costs more than one that is used again (four times as much on a virtual machine)."""


class SegmentWriter:
    """Appends commits: data first, then the index entry.  A commit that fails leaves no trace."""

    def __init__(
        self,
        disk: Disk,
        name: SegmentName,
        data: DataFile,
        index: int,
        *,
        entries: int,
        end: int,
        created: int,
    ) -> None:
        """``index`` is a descriptor that stands behind ``entries`` entries."""
        self.name = name
        self.entries = entries
        self.end = end
        self.created = created
        """Microseconds since 1970 UTC."""
        self._disk = disk
        self._data = data
        self._index = index
        self._synced = 0
        self._safe = data.position
        self._forgotten = 0
        self._open = threading.Lock()
        """Held while the descriptors must not be closed."""

    @property
    def position(self) -> int:
        """Where in the data file the next commit will stand."""
        return self._data.position

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
            file = DataFile(disk, data, data_path, len(STORED_BYTES))
        except OSError:
            # the index first: one without data would be in the way
            for fd, path in ((index, index_path), (data, data_path)):
                if fd >= 0:
                    disk.close(fd)
                    path.unlink()
            raise
        return cls(disk, name, file, index, entries=0, end=name.base, created=now)

    def append(self, record_batch: EncodedRecordBatch) -> Entry:
        """Write a commit whose first row is ``end``.  After an ``OSError`` the segment is as it was."""
        entry = record_batch.entry._replace(position=self.position)
        try:
            self._data.append(record_batch)
            self._disk.write(self._index, [encode_entry(entry)])
        except OSError:
            self._data.cut(entry.position)
            self._disk.cut(self._index, SIZE + SIZE * self.entries)
            raise
        self.entries += 1
        self.end = entry.end
        return entry

    def sync(self) -> bool:
        """Have all commits so far survive a loss of power; return whether there was anything to do.

        May be called in another thread while this one appends.
        """
        with self._open:
            entries, position = self.entries, self.position
            if self._synced == entries:
                return False
            self._data.sync()
            self._disk.sync(self._index)
            self._synced, self._safe = entries, position
            if position - _CACHED > self._forgotten:
                self._data.forget(self._forgotten, position - _CACHED)
                self._forgotten = position - _CACHED
            return True

    def unsynced(self) -> int:
        """How many bytes of commits would not survive a loss of power."""
        return self.position - self._safe

    def close(self) -> None:
        """Close both files."""
        with self._open:
            self._data.close()
            self._disk.close(self._index)
