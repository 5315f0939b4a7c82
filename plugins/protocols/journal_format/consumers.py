"""The positions of a journal's consumers.  Retention keeps the rows that a consumer has not read yet.

``consumers/NAME.json`` in the journal's directory contains ``{"next_offset": N}``: the consumer needs no row
before N. The file is always replaced as a whole, so that a reader sees the old position or the new one, also
after a power failure. ``plugins.engines.journal.positions`` writes it.
"""

from __future__ import annotations

import json
import re
from contextlib import suppress
from pathlib import Path

from plugins.protocols.journal_format.errors import JournalError
from plugins.protocols.journal_format.names import CONSUMERS

# The name is a file name: no separators, and no dot at the beginning (see ``path_of``).
_NAME = re.compile(r"[\w.@+-]{1,200}")


def positions(journal: str | Path) -> dict[str, int]:
    """Return the next offset of each consumer.  A file that cannot be read raises ``JournalError``."""
    found: dict[str, int] = {}
    # Not those that begin with a dot: they are being written.
    for path in sorted((Path(journal) / CONSUMERS).glob("[!.]*.json")):
        try:
            found[path.stem] = _read(path)
        # The consumer was forgotten after the listing.
        except FileNotFoundError:
            continue
    return found


def furthest(journal: str | Path, below: int) -> int:
    """Return the highest position of a consumer that is lower than ``below``; 0 if there is none.

    A file that cannot be read is ignored.
    """
    found = 0
    for path in (Path(journal) / CONSUMERS).glob("[!.]*.json"):
        # Recovery must not fail because of a consumer's file; retention reports it.
        with suppress(FileNotFoundError, JournalError):
            position = _read(path)
            found = max(found, position if position < below else 0)
    return found


def forget(journal: str | Path, consumer: str) -> None:
    """Delete a consumer's position: retention no longer keeps rows for this consumer."""
    path_of(journal, consumer).unlink(missing_ok=True)


def _read(path: Path) -> int:
    try:
        return int(json.loads(path.read_text())["next_offset"])
    except FileNotFoundError:
        raise
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise JournalError(f"{path}: not a consumer's position: {error}") from error


def path_of(journal: str | Path, consumer: str) -> Path:
    """Return the path of a consumer's file.  Raises ``JournalError`` for a name that is not allowed."""
    if not _NAME.fullmatch(consumer) or consumer.startswith("."):
        raise JournalError(
            f"{consumer!r} cannot be the name of a consumer: letters, digits and . _ - @ + can"
        )
    return Path(journal) / CONSUMERS / f"{consumer}.json"
