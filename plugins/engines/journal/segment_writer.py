"""Writes one segment: appends to its data file and to its index.

The order of writes is the format's promise: first the data, then the entry.  An entry is a single write of 64
bytes, which is the moment at which its rows begin to exist for readers.  The order of the synchronisations is
the same.  The system may still write the entry to the disk before the data, on its own; then a loss of power
leaves an entry without a whole commit, which its CRC shows, and nothing of it was confirmed.
"""

from __future__ import annotations

import threading
from pathlib import Path

from kernel.hosting.appending import AppendedFile, Disk
from plugins.engines.journal.data_file import DataFile
from plugins.protocols.journal_format.checksum import crc32
from plugins.protocols.journal_format.index import SIZE, Entry, Header, encode_entry, encode_header
from plugins.protocols.journal_format.names import FILE_MODE, SegmentName
from plugins.protocols.journal_format.record_batch import EncodedRecordBatch
from plugins.protocols.journal_format.schema import STORED_BYTES

_CACHED = 32 << 20
"""Bytes at the end that stay in the system's page cache, for readers that follow.

Without a limit a long journal fills the memory with its pages; and a new page of the cache costs more than a
reused one
(four times as much on a virtual machine)."""


class SegmentWriter:
    """Appends commits: first the data, then the index entry.  A commit that fails is removed again.

    One thread appends; another one may call ``sync`` at the same time.
    """

    def __init__(
        self,
        name: SegmentName,
        data: DataFile,
        index: AppendedFile,
        *,
        entries: int,
        end: int,
        created: int,
    ) -> None:
        """This object closes both files.  ``index`` has ``entries`` entries.

        ``end`` is the offset of the next row; ``created`` is in microseconds since
        1970 UTC.
        """
        self.name = name
        self.entries = entries
        self.end = end
        self.created = created
        """Microseconds since 1970 UTC."""
        self._data = data
        self._index = index
        self._synced = 0
        self._synced_position = data.position
        self._uncached = 0
        """The cache was told to drop the data file's bytes before this position."""
        # Held during a whole synchronisation, so a roll waits for it.  It is not held while a commit is
        # appended: writing and synchronising overlap.
        self._close_lock = threading.Lock()
        """Keeps ``close`` from closing the descriptors while another thread synchronises them."""

    @property
    def position(self) -> int:
        """The position in the data file at which the next commit will begin."""
        return self._data.position

    @classmethod
    def begin(cls, disk: Disk, journal: Path, name: SegmentName, now: int) -> SegmentWriter:
        """Create a segment.  When this returns its names and headers survive a power failure.

        ``now`` is in microseconds since 1970 UTC.  Raises ``OSError``; then no file of the segment is left.
        """
        data_path, index_path = name.data_path(journal), name.index_path(journal)
        # An attempt that was killed may have left it.  Without an index it has no rows.
        data_path.unlink(missing_ok=True)
        data = AppendedFile.create(disk, data_path, mode=FILE_MODE)
        index = None
        try:
            # The data file is whole and on the disk before its index exists: an index is what makes it a
            # segment.
            data.write(STORED_BYTES)
            data.sync()
            index = AppendedFile.create(disk, index_path, mode=FILE_MODE)
            header = Header(name.base, name.generation, len(STORED_BYTES), crc32(STORED_BYTES), now)
            index.write(encode_header(header))
            index.sync()
            # Both names at once.  Until then a loss of power may leave one file, both or none; each is
            # harmless.
            disk.sync_directory(journal)
            file = DataFile(disk, data, data_path)
        except OSError:
            # The index first: an index without data would look like a damaged segment.
            for opened, path in ((index, index_path), (data, data_path)):
                if opened is not None:
                    opened.close()
                    path.unlink()
            raise
        return cls(name, file, index, entries=0, end=name.base, created=now)

    def append(self, record_batch: EncodedRecordBatch) -> Entry:
        """Append a commit whose first row has the offset ``end``.

        After an ``OSError`` the segment is unchanged.
        """
        # The encoder has only guessed the position.
        entry = record_batch.entry._replace(position=self.position)
        try:
            self._data.append(record_batch)
            self._index.write(encode_entry(entry))
        except OSError:
            # What was written of the commit, and then what was written of the entry.  If this fails as well,
            # the error goes up and ends the engine; recovery does the same at the next start.
            self._data.cut(entry.position)
            self._index.cut(SIZE + SIZE * self.entries)
            raise
        self.entries += 1
        self.end = entry.end
        return entry

    def sync(self) -> bool:
        """Synchronise all commits so far; return whether there were new ones.

        They survive a power failure then.  May be called in another thread while this segment is appended to.
        """
        # The syncer's thread may be here while the committer's rolls to the next segment and closes this one.
        with self._close_lock:
            # Taken before the synchronisation.  ``position`` may be later than ``entries``, when a commit is
            # just being appended; it is used for the cache and for the amount of unsynced bytes only.
            entries, position = self.entries, self.position
            if self._synced == entries:
                return False
            # The data first: an entry on disk must not be without its commit.
            self._data.sync()
            self._index.sync()
            self._synced, self._synced_position = entries, position
            # Only what is on the disk: pages that still have to be written are not dropped.
            if position - _CACHED > self._uncached:
                self._data.forget(self._uncached, position - _CACHED)
                self._uncached = position - _CACHED
            return True

    def unsynced(self) -> int:
        """Return the number of bytes of commits that are not synchronised yet."""
        return self.position - self._synced_position

    def close(self) -> None:
        """Close both files."""
        with self._close_lock:
            self._data.close()
            self._index.close()
