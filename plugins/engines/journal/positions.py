"""The positions of a journal's consumers.  Retention keeps the rows that a consumer has not read yet.

``consumers/NAME.json`` in the journal's directory contains ``{"next_offset": N, "registered": TOKEN}``: the
consumer needs no row before N. The file is always replaced as a whole, so that a reader sees the old position
or the new one, also after a power failure.  ``NAME.known`` says that there is one
(``kernel/hosting/registered.py``): without its position a consumer would begin anew, or with the next row.
"""

from __future__ import annotations

import json
import re
from contextlib import suppress
from pathlib import Path

from kernel.hosting.registered import (
    KNOWN,
    forget_registered,
    is_foreign,
    missing_in,
    replace_registered,
)
from plugins.protocols.journal_format.errors import JournalError
from plugins.protocols.journal_format.names import CONSUMERS, FILE_MODE

# The name is a file name: no separators, and no dot at the beginning (see ``path_of``).
_NAME = re.compile(r"[\w.@+-]{1,200}")
_SUFFIX = ".json"


def write_position(journal: str | Path, consumer: str, next_offset: int) -> None:
    """Record that ``consumer`` needs no row before ``next_offset``.  Blocks.

    A name has letters, digits and ``. _ - @ +``; another one raises ``JournalError``.
    """
    path = path_of(journal, consumer)
    path.parent.mkdir(exist_ok=True)

    def encode(token: str) -> bytes:
        return json.dumps({"next_offset": next_offset, "registered": token}).encode()

    # Durable on return: retention may delete what all consumers have passed.  If the position fell back after
    # a loss of power, the consumer would be told that rows are missing which it has read.
    replace_registered(path, encode, mode=FILE_MODE)


def positions(journal: str | Path) -> dict[str, int]:
    """Return the next offset of each consumer.

    A file that cannot be read, that is missing or that is another one's raises ``JournalError``.
    """
    found: dict[str, int] = {}
    folder = Path(journal) / CONSUMERS
    # Not those that begin with a dot: they are being written.
    for path in sorted(folder.glob(f"[!.]*{_SUFFIX}")):
        try:
            found[path.stem] = _read(path)
        # The consumer was forgotten after the listing.
        except FileNotFoundError:
            continue
    for path in missing_in(folder, _SUFFIX):
        known = path.with_suffix(KNOWN).name
        raise JournalError(f"{path}: the position of this consumer is missing. To forget it delete {known}")
    return found


def furthest(journal: str | Path, below: int) -> int:
    """Return the highest position of a consumer that is lower than ``below``; 0 if there is none.

    A file that cannot be read is ignored.
    """
    found = 0
    for path in (Path(journal) / CONSUMERS).glob(f"[!.]*{_SUFFIX}"):
        # Recovery must not fail because of a consumer's file; retention reports it.
        with suppress(FileNotFoundError, JournalError):
            position = _read(path)
            found = max(found, position if position < below else 0)
    return found


def forget(journal: str | Path, consumer: str) -> None:
    """Delete a consumer's position: retention no longer keeps rows for this consumer."""
    forget_registered(path_of(journal, consumer))


def _read(path: Path) -> int:
    try:
        said = json.loads(path.read_text())
        position, token = int(said["next_offset"]), str(said.get("registered", ""))
    except FileNotFoundError:
        raise
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise JournalError(f"{path}: not a consumer's position: {error}") from error
    if is_foreign(path, token):
        raise JournalError(
            f"{path}: it is another consumer's position, or {path.with_suffix(KNOWN).name} is. Bring the right one "
            "back, or delete both to forget the consumer"
        )
    return position


def path_of(journal: str | Path, consumer: str) -> Path:
    """Return the path of a consumer's file.  Raises ``JournalError`` for a name that is not allowed."""
    if not _NAME.fullmatch(consumer) or consumer.startswith("."):
        raise JournalError(
            f"{consumer!r} cannot be the name of a consumer: letters, digits and . _ - @ + can"
        )
    return Path(journal) / CONSUMERS / f"{consumer}.json"
