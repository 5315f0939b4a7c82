"""What is remembered of producers: which epoch of which query, or which batch write, was published last.

``producers/PRODUCER.json`` beside what was staged.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

_FOLDER = "producers"


class Epoch(msgspec.Struct, frozen=True):
    """What a producer's file says."""

    epoch: int
    files: tuple[str, ...] = ()
    """In the order in which they are published."""
    appended: int = 0
    """So many rows of the files were in the journal when this was noted."""
    start: int = 0
    """The offset in the journal of the first row after those."""
    ts: int = 0
    """The time of all rows after those, in microseconds since 1970: no row before them has it."""
    done: bool = False


def last_epoch(folder: Path, producer: str) -> Epoch | None:
    """Return what is known of a producer; None of one that has published nothing."""
    try:
        return msgspec.json.decode(_path(folder, producer).read_bytes(), type=Epoch)
    except FileNotFoundError:
        return None


def note(folder: Path, producer: str, epoch: Epoch) -> None:
    """Replace a producer's file, so that it survives a loss of power."""
    path = _path(folder, producer)
    path.parent.mkdir(exist_ok=True)
    written = path.with_name(f".{path.name}.new")
    with written.open("wb") as file:
        file.write(msgspec.json.encode(epoch))
        file.flush()
        os.fsync(file.fileno())
    written.replace(path)
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def forget_producer(folder: Path, producer: str) -> None:
    """Remember no more of a producer that does not come back."""
    _path(folder, producer).unlink(missing_ok=True)


def _path(folder: Path, producer: str) -> Path:
    return folder / _FOLDER / f"{producer}.json"
