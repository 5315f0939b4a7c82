"""Moving: what was exported leaves the journal.  Whoever is killed on the way: once it was done again, each row is in one place.

The files are written where readers of Parquet do not look.  When all of them are there, the journal's directory says so, in
``moved.json``; from then on the move is only ever finished: they are put in their place, and their segments are deleted.
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
    """Return an empty place for the files.  The caller holds the compaction's lock, and has finished the move before."""
    abandon_move(journal, directory)
    place = _place(journal, directory)
    place.mkdir(parents=True)
    return place


def abandon_move(journal: Path, directory: Path) -> None:
    """Delete what was written for nothing."""
    shutil.rmtree(_place(journal, directory), ignore_errors=True)


def note_move(journal: Path, directory: Path, stop: int) -> None:
    """Say that the rows before ``stop`` are in files, which survive a loss of power when this returns."""
    for path in _place(journal, directory).rglob("*.parquet"):
        _sync(path)
    written = journal / f".{_MOVED}.new"
    written.write_text(json.dumps({"directory": str(directory.absolute()), "stop": stop}))
    _sync(written)
    written.replace(journal / _MOVED)


def is_noted(journal: Path) -> bool:
    """Whether a move is to be finished."""
    return (journal / _MOVED).exists()


def finish_move(journal: Path) -> None:
    """Finish a move that was noted, if there is one.  The caller holds the compaction's lock."""
    try:
        told = json.loads((journal / _MOVED).read_text())
    except FileNotFoundError:
        return
    directory = Path(told["directory"])
    place = _place(journal, directory)
    if not place.is_dir():
        raise JournalError(
            f"{place}: not there, and its rows were to leave {journal}: see {journal / _MOVED}"
        )
    for path in sorted(place.rglob("*.parquet")):
        there = directory / path.relative_to(place)
        there.parent.mkdir(parents=True, exist_ok=True)
        path.replace(there)
    sealed = JournalReader(journal).summaries()[:-1]
    delete(journal, [segment for segment in sealed if segment.end <= told["stop"]])
    (journal / _MOVED).unlink()
    shutil.rmtree(place)


def _place(journal: Path, directory: Path) -> Path:
    return directory.absolute() / f"_moving-{crc32(os.fsencode(journal.resolve())):08x}"


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
