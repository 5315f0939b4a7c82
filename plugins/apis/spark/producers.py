"""Records the last published epoch of each producer: a streaming query or a batch write.

The file is ``producers/PRODUCER.json`` in the folder in which rows are staged.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from kernel.hosting.appending import replace_file

_FOLDER = "producers"


class Epoch(msgspec.Struct, frozen=True):
    """The contents of a producer's file."""

    epoch: int
    files: tuple[str, ...] = ()
    """The names of the staged files, in the order in which they are published."""
    appended: int = 0
    """The number of the files' rows that the journal already had when this was written."""
    start: int = 0
    """The offset in the journal of the first row after those."""
    ts: int = 0
    """The time of all rows after those, in microseconds since 1970 UTC; no earlier row of the journal has
    it."""
    done: bool = False
    """Whether all rows are published and synchronised."""


def last_epoch(folder: Path, producer: str) -> Epoch | None:
    """Return the last epoch of a producer; None if it has published nothing."""
    try:
        return msgspec.json.decode(_path(folder, producer).read_bytes(), type=Epoch)
    except FileNotFoundError:
        return None


def note(folder: Path, producer: str, epoch: Epoch) -> None:
    """Replace a producer's file, atomically and synchronised: it survives a power failure."""
    path = _path(folder, producer)
    path.parent.mkdir(exist_ok=True)
    replace_file(path, msgspec.json.encode(epoch), mode=0o644)


def forget_producer(folder: Path, producer: str) -> None:
    """Delete the file of a producer that will not write again."""
    _path(folder, producer).unlink(missing_ok=True)


def _path(folder: Path, producer: str) -> Path:
    return folder / _FOLDER / f"{producer}.json"
