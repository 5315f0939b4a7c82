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
from pathlib import Path
from zlib import crc32

from plugins.engines.journal.retention import delete
from plugins.protocols.journal_format.errors import JournalError
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
    for path in _staging(journal, directory).rglob("*.parquet"):
        _sync(path)
    written = journal / f".{_MOVED}.new"
    written.write_text(json.dumps({"directory": str(directory.absolute()), "stop": stop}))
    _sync(written)
    written.replace(journal / _MOVED)


def is_recorded(journal: Path) -> bool:
    """Return whether a recorded move has not been finished."""
    return (journal / _MOVED).exists()


def finish_move(journal: Path) -> None:
    """Finish a recorded move, if there is one.

    The caller holds the lock for compaction.  Repeating it is harmless.
    """
    try:
        record = json.loads((journal / _MOVED).read_text())
    except FileNotFoundError:
        return
    directory = Path(record["directory"])
    staging = _staging(journal, directory)
    if not staging.is_dir():
        raise JournalError(
            f"{staging} is missing, with rows that are to be deleted from {journal}: see {journal / _MOVED}"
        )
    for path in sorted(staging.rglob("*.parquet")):
        target = directory / path.relative_to(staging)
        target.parent.mkdir(parents=True, exist_ok=True)
        path.replace(target)
    sealed = JournalReader(journal).summaries()[:-1]
    delete(journal, [segment for segment in sealed if segment.end <= record["stop"]])
    (journal / _MOVED).unlink()
    shutil.rmtree(staging)


def _staging(journal: Path, directory: Path) -> Path:
    return directory.absolute() / f"_moving-{crc32(os.fsencode(journal.resolve())):08x}"


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
