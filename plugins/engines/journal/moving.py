"""Moves rows from a journal into Parquet files (``kernel journal compact --parquet``), also across crashes.

1. The files are written into a staging directory, whose name begins with ``_``: readers of Parquet ignore it.
2. When all files are synchronised, ``moved.json`` in the journal's directory records the move.
3. The files are renamed into their directory, the segments are deleted, then ``moved.json`` and the staging
   directory.

A move that is killed before step 2 is abandoned and can be repeated; one that is killed later is finished by
the next command.  Afterwards each row is either in the journal or in the files, never in both.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from zlib import crc32

from kernel.hosting.appending import replace_file
from kernel.hosting.disk import sync_directory, sync_file
from plugins.engines.journal.retention import delete
from plugins.protocols.journal_format.errors import JournalError
from plugins.protocols.journal_format.names import FILE_MODE
from plugins.protocols.journal_format.reader import JournalReader

_MOVED = "moved.json"


def begin_move(journal: Path, directory: Path) -> Path:
    """Create the staging directory and return it.

    The caller holds the lock for compaction, and has called ``finish_move`` before.
    """
    abandon_move(journal, directory)
    staging = _staging(journal, directory)
    staging.mkdir(parents=True)
    return staging


def abandon_move(journal: Path, directory: Path) -> None:
    """Delete the staging directory of a move that was not recorded."""
    shutil.rmtree(_staging(journal, directory), ignore_errors=True)


def record_move(journal: Path, directory: Path, stop: int) -> None:
    """Record that the rows before ``stop`` are in the files, after these were synchronised."""
    staging = _staging(journal, directory)
    for path in staging.rglob("*"):
        if path.is_dir():
            sync_directory(path)
        else:
            sync_file(path)
    # The record says that the staging directory is there, so the directories that name it must be on the disk
    # before the record is.  They may be new, too.
    for parent in (staging, staging.parent, staging.parent.parent):
        sync_directory(parent)
    record = json.dumps({"directory": str(directory.absolute()), "stop": stop})
    replace_file(journal / _MOVED, record.encode(), mode=FILE_MODE)


def is_recorded(journal: Path) -> bool:
    """Return whether a recorded move has not been finished."""
    return (journal / _MOVED).exists()


def finish_move(journal: Path) -> None:
    """Finish a recorded move, if there is one.

    The caller holds the lock for compaction.  Repeating it is harmless.
    """
    path = journal / _MOVED
    try:
        record = json.loads(path.read_text())
        directory, stop = Path(record["directory"]), int(record["stop"])
    except FileNotFoundError:
        return
    except (ValueError, KeyError, TypeError) as error:
        raise JournalError(
            f"{path}: not the record of a move: {error}. Without it rows may be both in the journal and in files: "
            "compare the two, then delete it"
        ) from error
    staging = _staging(journal, directory)
    # The rows must not be deleted: the files with them cannot be found.
    if not staging.is_dir():
        raise JournalError(
            f"{staging} is missing, with rows that are to be deleted from {journal}: see {path}"
        )
    for path in sorted(staging.rglob("*.parquet")):
        target = directory / path.relative_to(staging)
        target.parent.mkdir(parents=True, exist_ok=True)
        # Repeated after a crash, it moves only what is still in the staging directory.  Names contain
        # offsets, so nothing of another move is overwritten.
        path.replace(target)
    # The rows are deleted from the journal next.  Without this a loss of power could undo the renames and
    # keep the deletions, above all when the files are on another file system: nothing orders the two.
    for target in {directory, *_directories_of(directory, staging)}:
        if target.is_dir():
            sync_directory(target)
    # Whole segments up to ``stop``.  The last segment is the writer's, and never deleted.
    sealed = JournalReader(journal).summaries()[:-1]
    delete(journal, [segment for segment in sealed if segment.end <= stop])
    # The deletions before that of the record: otherwise the rows could come back and be in both.
    sync_directory(journal)
    (journal / _MOVED).unlink()
    shutil.rmtree(staging)


def _staging(journal: Path, directory: Path) -> Path:
    # In the target directory, so that a rename needs no copy.  The name is that of the journal, so that
    # several journals can be moved into one directory.
    return directory.absolute() / f"_moving-{crc32(os.fsencode(journal.resolve())):08x}"


def _directories_of(directory: Path, staging: Path) -> Iterator[Path]:
    """Yield the directories into which the files of the staging directory were renamed."""
    return (directory / path.relative_to(staging) for path in staging.rglob("*") if path.is_dir())
