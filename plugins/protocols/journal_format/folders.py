"""Where the files of a journal are: a directory of this computer, or an archive elsewhere.

An *archive* has segments that the journal's engine has moved away from its disk: it is whatever pyarrow has a
file system for, such as ``s3://bucket/folder`` (docs/decisions/0036-segments-elsewhere.md).  Its
files have the names and the bytes that they have in a directory, and never change: each is written
once and deleted once.

``record.json`` in an archive says which rows were moved into it, and ``archive.json`` in the directory says
so too, and which archive it is.  Without them a segment that somebody has deleted would look like one that
retention has deleted, or that was never written.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from io import SEEK_SET, BytesIO
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self, TypeAlias
from urllib.parse import urlsplit

from plugins.protocols.journal_format.errors import JournalError
from plugins.protocols.journal_format.names import (
    ARCHIVE,
    ARCHIVE_KNOWN,
    INDEX,
    RECORD,
    SegmentName,
    files_in,
    segments_among,
    without_index,
    without_index_among,
)

# Commands for journals and Spark give their help without pyarrow, and import this module.
if TYPE_CHECKING:
    import pyarrow as pa

Location: TypeAlias = Path | str
"""A journal's directory, or the address of an archive."""

_LOCAL_READ = 4 << 20
_ARCHIVE_READ = 16 << 20
"""Neighbouring commits up to about this number of bytes are read together: a request to an object store takes
some 20 to 100 ms, whatever its size."""
_CACHED_BYTES = 64 << 20
"""Bytes of archived indexes that a process keeps."""


class ArchiveUnavailable(JournalError):
    """An archive cannot be reached, or does not permit what is asked of it."""


class Archived(NamedTuple):
    """What is known of an archive without looking into it."""

    address: str
    earliest: int
    """The first offset that retention has not deleted."""
    end: int
    """The offset after the last row that was moved into it."""


class ReadFile(Protocol):
    """A file that is being read."""

    def read(self, size: int = -1, /) -> bytes:
        """Return up to ``size`` bytes; without a size, all that follow."""

    def readinto(self, view: memoryview, /) -> int | None:
        """Fill ``view`` as far as the file goes; return the number of bytes."""

    def seek(self, position: int, whence: int = SEEK_SET, /) -> int:
        """Go to a position; return it."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...


class Folder(Protocol):
    """Reads files of segments by their names."""

    read_size: int
    """Neighbouring commits up to about this number of bytes are read together."""

    def location(self, name: str) -> str:
        """Return where a file is, for people."""

    def open(self, name: str) -> ReadFile:
        """Open a file.  Raises ``FileNotFoundError``."""

    def exists(self, name: str) -> bool:
        """Return whether there is a file."""

    def whole(self, name: str) -> pa.Buffer:
        """Return the content of a file."""

    def forget(self) -> None:
        """Forget what is known of files: one of them has gone."""


class Directory:
    """A directory of this computer."""

    read_size = _LOCAL_READ

    def __init__(self, path: Path) -> None:
        self.path = path

    def location(self, name: str) -> str:
        """``Folder``."""
        return str(self.path / name)

    def open(self, name: str) -> ReadFile:
        """``Folder``."""
        return (self.path / name).open("rb", buffering=0)

    def exists(self, name: str) -> bool:
        """``Folder``."""
        return (self.path / name).exists()

    def whole(self, name: str) -> pa.Buffer:
        """``Folder``."""
        path = self.path / name
        # An empty file cannot be mapped.
        import pyarrow as pa

        return pa.memory_map(str(path)).read_buffer() if path.stat().st_size else pa.py_buffer(b"")

    def forget(self) -> None:
        """``Folder``: a directory is listed each time."""


class Archive:
    """An archive, as its readers use it.  Everything that fails is ``ArchiveUnavailable``, which names it.

    Indexes are kept in memory, since they never change, and so is the listing as long as ``archive.json``
    says that nothing has changed.
    """

    read_size = _ARCHIVE_READ

    def __init__(self, address: str) -> None:
        self.address = address.rstrip("/")
        check_address(address)
        # Imported here: it takes long, and most journals have no archive.
        from pyarrow import fs

        with self.told(""):
            self.system, self.folder = fs.FileSystem.from_uri(self.address)
        self._missing_folder = fs.FileSelector(self.folder, allow_not_found=True)
        self._indexes: OrderedDict[str, bytes] = OrderedDict()
        self._indexed = 0
        self._listed: tuple[Archived | None, list[SegmentName]] | None = None

    def location(self, name: str) -> str:
        """``Folder``."""
        return f"{self.address.partition('?')[0]}/{name}"

    def open(self, name: str) -> ReadFile:
        """``Folder``."""
        if name.endswith(INDEX):
            return BytesIO(self._index(name))
        with self.told(name):
            return _Opened(self.system.open_input_file(self.path(name)), lambda: self.told(name))

    def exists(self, name: str) -> bool:
        """``Folder``."""
        return self.size(name) is not None

    def size(self, name: str) -> int | None:
        """Return the size of a file; None if there is none."""
        with self.told(name):
            info = self.system.get_file_info(self.path(name))
            return int(info.size) if info.is_file else None

    def whole(self, name: str) -> pa.Buffer:
        """``Folder``."""
        with self.told(name), self.system.open_input_file(self.path(name)) as file:
            return file.read_buffer()

    def forget(self) -> None:
        """``Folder``."""
        self._listed = None
        self._indexes.clear()
        self._indexed = 0

    def files(self) -> set[str]:
        """Return the names of all files."""
        with self.told(""):
            return {info.base_name for info in self.system.get_file_info(self._missing_folder)}

    def names(self, record: Archived | None, *, again: bool = False) -> list[SegmentName]:
        """Return the segments that have an index, without those that retention deletes.

        As ``segment_names`` does.

        ``record`` says what should be there.  While it is the same the archive is listed
        once, unless ``again``.
        """
        # Once: another thread may forget it meanwhile.
        listed = self._listed
        if again or listed is None or listed[0] != record:
            listed = self._listed = record, segments_among(self.files())
        names = listed[1]
        if record is None:
            return names
        # Retention raises ``earliest`` before it deletes anything.  A segment ends where a later one begins.
        bases = sorted({name.base for name in names})
        ends = dict(zip(bases, [*bases[1:], max(record.end, bases[-1] + 1)] if bases else [], strict=True))
        return [name for name in names if ends[name.base] > record.earliest]

    def record(self) -> Archived | None:
        """Return what the archive itself says of its rows; None if it says nothing."""
        try:
            said = json.loads(self.whole(RECORD).to_pybytes())
            return Archived(self.address, int(said["earliest"]), int(said["end"]))
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError) as error:
            raise JournalError(f"{self.location(RECORD)}: not the record of an archive: {error}") from error

    def path(self, name: str) -> str:
        """Return the path of a file in its file system."""
        return f"{self.folder}/{name}"

    @contextmanager
    def told(self, name: str) -> Iterator[None]:
        """Name the archive and the file in every error, except that a file is missing."""
        import pyarrow as pa

        try:
            yield
        except FileNotFoundError:
            raise
        except (OSError, pa.ArrowException) as error:
            raise ArchiveUnavailable(f"{self.location(name)}: {error}") from error

    def _index(self, name: str) -> bytes:
        found = self._indexes.get(name)
        if found is None:
            found = self._indexes[name] = self.whole(name).to_pybytes()
            self._indexed += len(found)
            while self._indexed > _CACHED_BYTES and len(self._indexes) > 1:
                self._indexed -= len(self._indexes.popitem(last=False)[1])
        return found


class _Opened:
    """A file of an archive that is being read."""

    def __init__(self, file: Any, told: Callable[[], Any]) -> None:
        self._file = file
        self._told = told

    def read(self, size: int = -1, /) -> bytes:
        with self._told():
            found: bytes = self._file.read(None if size < 0 else size)
            return found

    def readinto(self, view: memoryview, /) -> int:
        with self._told():
            count: int = self._file.readinto(view)
            return count

    def seek(self, position: int, whence: int = SEEK_SET, /) -> int:
        with self._told():
            at: int = self._file.seek(position, whence)
            return at

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        self._file.close()


def is_address(location: Location) -> bool:
    """Return whether a location is the address of an archive, and not a directory of this computer."""
    return isinstance(location, str) and "://" in location and urlsplit(location).scheme != "file"


def check_address(address: str) -> None:
    """Raise ``JournalError`` if an address has a password: it is written into files and messages."""
    if "@" in urlsplit(address).netloc:
        raise JournalError(
            f"{urlsplit(address).scheme}://…@…: leave the password out of an archive's address. S3's is taken from "
            "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or from the files that the provider's tools write"
        )


@lru_cache(maxsize=64)
def archive_at(address: str) -> Archive:
    """Return the archive with an address: one object in a process, so that what it keeps is of use."""
    return Archive(address)


def archived_of(journal: Path) -> Archived | None:
    """Return what a journal's directory says of its archive; None if it has none.

    Raises ``JournalError`` if the file that says so is missing or damaged.
    """
    path = journal / ARCHIVE
    try:
        said = json.loads(path.read_bytes())
        return Archived(str(said["archive"]), int(said["earliest"]), int(said["end"]))
    except FileNotFoundError:
        # The file that says that there is one.  In this order: the other one is written after it.
        if not (journal / ARCHIVE_KNOWN).exists():
            return None
        what = "it is missing"
    except (ValueError, KeyError, TypeError) as error:
        what = f"it does not say where segments were moved to: {error}"
    raise JournalError(
        f"{path}: {what}. Start the journal's engine with its option archive, which makes the file again; or, if "
        f"nothing is wanted of the archive any more, delete {ARCHIVE} and {ARCHIVE_KNOWN}"
    )


class Located(NamedTuple):
    """A segment, and where it is."""

    name: SegmentName
    folder: Folder


class Files:
    """The segments of a journal.

    In its directory and in the archive that this names, or in an archive alone.
    """

    def __init__(self, location: Location, *, with_archive: bool = True) -> None:
        self._directory = None if is_address(location) else Directory(Path(location))
        self._address = str(location) if self._directory is None else ""
        self._with_archive = with_archive

    def listed(self) -> tuple[list[Located], Archived | None]:
        """Return all segments, in the order of ``segment_names``, and what is known of the archive.

        The directory is listed first: a segment is in the archive before it is deleted there.
        """
        if self._directory is None:
            archive = archive_at(self._address)
            # In this order: a segment is there before the record names its rows.
            record = archive.record()
            return [Located(name, archive) for name in archive.names(record, again=True)], record
        files = files_in(self._directory.path)
        local = [Located(name, self._directory) for name in segments_among(files)]
        # ``archive.json`` is written before the first copy is made, and so long before anything is deleted.
        named = self._with_archive and (ARCHIVE in files or ARCHIVE_KNOWN in files)
        record = archived_of(self._directory.path) if named else None
        if record is None:
            return local, None
        archive = archive_at(record.address)
        # Of a segment that is in both the local one is read.
        present = {found.name for found in local}
        remote = [Located(name, archive) for name in archive.names(record) if name not in present]
        return sorted(remote + local, key=lambda found: (found.name.base, -found.name.generation)), record

    def without_index(self, record: Archived | None) -> list[Located]:
        """Return the segments of which only the data file is there, in the order of their offsets."""
        found: list[Located] = []
        if self._directory is not None:
            found += [Located(name, self._directory) for name in without_index(self._directory.path)]
        if record is not None:
            archive = archive_at(record.address)
            found += [Located(name, archive) for name in without_index_among(archive.files())]
        return sorted(found, key=lambda each: each.name)


def as_folder(where: Path | Folder) -> Folder:
    """Return a folder; of a path, that of a directory."""
    return Directory(where) if isinstance(where, Path) else where
