"""Records the last published epoch of each producer: a streaming query or a batch write.

The file is ``producers/PRODUCER.json`` in the folder in which rows are staged; ``PRODUCER.known`` says that
there is one.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from kernel.hosting.registered import (
    KNOWN,
    forget_registered,
    is_foreign,
    is_missing,
    replace_registered,
)
from plugins.protocols.journal_format.errors import JournalError
from plugins.protocols.journal_format.names import FILE_MODE

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
    registered: str = ""
    """Which file this is: see ``kernel/hosting/registered.py``."""


def last_epoch(folder: Path, producer: str) -> Epoch | None:
    """Return the last epoch of a producer; None if it has published nothing.

    Raises ``JournalError`` if the file is missing, damaged or another one's: without it an epoch could be
    published twice.
    """
    path = _path(folder, producer)
    try:
        found = msgspec.json.decode(path.read_bytes(), type=Epoch)
    except FileNotFoundError:
        if not is_missing(path):
            return None
        what = "it is missing"
    except msgspec.MsgspecError as error:
        what = str(error)
    else:
        if not is_foreign(path, found.registered):
            return found
        what = f"it is another producer's, or {path.with_suffix(KNOWN).name} is"
    raise JournalError(
        f"{path}: {what}, so it is not known which rows of {producer!r} were written. Bring the right one back; or "
        f"delete it and {path.with_suffix(KNOWN).name}, if the rows of the last epoch may come twice"
    )


def note(folder: Path, producer: str, epoch: Epoch) -> None:
    """Replace a producer's file, atomically and synchronised: it survives a power failure."""
    path = _path(folder, producer)
    path.parent.mkdir(exist_ok=True)

    def encode(token: str) -> bytes:
        return msgspec.json.encode(msgspec.structs.replace(epoch, registered=token))

    replace_registered(path, encode, mode=FILE_MODE)


def forget_producer(folder: Path, producer: str) -> None:
    """Delete the file of a producer that will not write again."""
    forget_registered(_path(folder, producer))


def _path(folder: Path, producer: str) -> Path:
    return folder / _FOLDER / f"{producer}.json"
