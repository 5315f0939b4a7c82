"""The identity of a journal: a random name that it keeps as long as it exists.

It gets it with its first segment.

A reader that stores an offset stores the identity with it.  An offset alone does not say that the journal was
deleted and written anew, at the same path and up to a higher offset.

``identity.json`` in the journal's directory contains ``{"identity": HEXADECIMAL}``.  A copy of a journal has
the identity of the original: its rows are the same.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from plugins.protocols.journal_format.errors import JournalError
from plugins.protocols.journal_format.folders import Archive, Location, archive_at, is_address
from plugins.protocols.journal_format.names import IDENTITY


def identity_of(journal: Location) -> str | None:
    """Return the identity of a journal; None if it has none, because no recent version has written it."""
    if is_address(journal):
        return identity_in(archive_at(str(journal)))
    path = Path(journal) / IDENTITY
    return _decoded(path.read_bytes, str(path))


def identity_in(archive: Archive) -> str | None:
    """Return the identity of the journal whose archive this is; None if it says nothing."""
    return _decoded(lambda: archive.whole(IDENTITY).to_pybytes(), archive.location(IDENTITY))


def _decoded(read: Callable[[], bytes], location: str) -> str | None:
    try:
        return str(json.loads(read())["identity"])
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise JournalError(
            f"{location}: not the identity of a journal: {error}. Delete the file: the next writer makes a new one"
        ) from error


def encode_identity(identity: str) -> bytes:
    """Return the content of the file."""
    return json.dumps({"identity": identity}).encode()
