"""The files of an archive, as the journal's engine writes and deletes them, and the record of what is there.

``record.json`` in the archive and ``archive.json`` in the journal's directory say the same: which offsets the
archive has.  See ``plugins/protocols/journal_format/folders.py``.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kernel.hosting.appending import replace_file
from kernel.hosting.disk import sync_directory, sync_file
from plugins.protocols.journal_format.folders import (
    Archive,
    Archived,
    ArchiveUnavailable,
    archive_at,
    archived_of,
)
from plugins.protocols.journal_format.names import ARCHIVE, ARCHIVE_KNOWN, FILE_MODE, RECORD, SegmentName

_PART = 8 << 20
"""Bytes that are copied at a time."""


class Stopped(Exception):
    """The engine ends, in the middle of a copy."""


class ArchiveFolder:
    """Writes and deletes files of an archive; blocks.  Everything that fails is ``ArchiveUnavailable``."""

    def __init__(self, address: str) -> None:
        self.archive: Archive = archive_at(address.rstrip("/"))
        self._is_local = self.archive.system.type_name == "local"
        # In these a file is visible while it is written, and a renaming is atomic.
        self._renames = self._is_local or self.archive.system.type_name == "hdfs"

    def put(self, name: str, source: Path, going: Callable[[], bool]) -> None:
        """Copy a file; raise ``Stopped`` if ``going`` is no longer true."""
        with source.open("rb") as file:
            size = os.fstat(file.fileno()).st_size

            def write(stream: Any) -> None:
                while part := file.read(_PART):
                    if not going():
                        raise Stopped
                    stream.write(part)

            self._write(name, write)
        # Not every store tells that the end of a file did not arrive.
        if self.archive.size(name) != size:
            raise ArchiveUnavailable(
                f"{self.archive.location(name)}: it has {self.archive.size(name)} bytes and not {size} after it was written"
            )

    def put_bytes(self, name: str, content: bytes) -> None:
        """Write a small file, as a whole."""
        self._write(name, lambda stream: stream.write(content))

    def delete(self, name: str) -> None:
        """Delete a file.  It is no error if there is none."""
        try:
            with self.archive.told(name):
                self.archive.system.delete_file(self.archive.path(name))
        except FileNotFoundError:
            pass

    def delete_segment(self, name: SegmentName) -> None:
        """Delete a segment, its index first: missing data with an index is damage for readers."""
        self.delete(name.index_name)
        self.delete(name.data_name)

    def note(self, journal: Path, record: Archived) -> None:
        """Write what the archive has, there and in the journal's directory."""
        said = {"earliest": record.earliest, "end": record.end}
        # In this order: a segment is deleted in the directory after this, and a reader that does not find it
        # there has to see that the archive has changed.
        self.put_bytes(RECORD, json.dumps(said).encode())
        content = json.dumps({"archive": record.address, **said}).encode()
        replace_file(journal / ARCHIVE, content, mode=FILE_MODE)
        if not (journal / ARCHIVE_KNOWN).exists():
            replace_file(journal / ARCHIVE_KNOWN, uuid.uuid4().hex.encode(), mode=FILE_MODE)

    def _write(self, name: str, write: Callable[[Any], object]) -> None:
        system, path = self.archive.system, self.archive.path(name)
        written = self.archive.path(f".{name}.new") if self._renames else path
        try:
            with self.archive.told(name):
                if self._renames:
                    system.create_dir(self.archive.folder, recursive=True)
                # An object of a store is visible when the stream is closed.
                with system.open_output_stream(written) as stream:
                    write(stream)
                if self._is_local:
                    sync_file(Path(written))
                elif self._renames:
                    # HDFS renames to no name that there is.
                    self.delete(name)
                if self._renames:
                    system.move(written, path)
                if self._is_local:
                    sync_directory(Path(self.archive.folder))
        except FileNotFoundError as error:
            raise ArchiveUnavailable(f"{self.archive.location(name)}: {error}") from error


def raise_earliest(journal: Path, earliest: int) -> ArchiveFolder | None:
    """Note that the rows before ``earliest`` are deleted.

    Return the archive to delete them from, if there is one.

    Raises ``ArchiveUnavailable``; then nothing has changed.
    """
    record = archived_of(journal)
    if record is None:
        return None
    folder = ArchiveFolder(record.address)
    if earliest > record.earliest:
        folder.note(journal, record._replace(earliest=earliest))
    return folder
