"""Registered files: small files that are replaced as a whole, and whose loss or exchange is noticed.

A file that somebody has deleted looks like one that was never written, and that of another folder like the
right one.  Where the difference matters, a second file stands beside it, with the suffix ``.known`` in place
of its own: it says that there is a file, and has a random token that the file has, too.

It is created after the file and deleted before it, so that a crash between the two leaves a file that is not
registered, which does no harm.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path

from kernel.contracts.message import Buffer
from kernel.hosting.appending import Disk, replace_file

KNOWN = ".known"


def replace_registered(
    path: Path, encode: Callable[[str], Buffer], *, mode: int = 0o640, disk: Disk | None = None
) -> None:
    """Replace a file as ``replace_file`` does, and register it.

    ``encode`` gets the token, which has to be part of what it returns.
    """
    known = path.with_suffix(KNOWN)
    before = _token(known)
    token = before or uuid.uuid4().hex
    replace_file(path, encode(token), mode=mode, disk=disk)
    if not before:
        replace_file(known, token.encode(), mode=mode, disk=disk)


def is_missing(path: Path) -> bool:
    """Return whether a file is registered and does not exist."""
    # In this order: ``forget_registered`` may be at work.
    return not path.exists() and path.with_suffix(KNOWN).exists()


def missing_in(directory: Path, suffix: str) -> list[Path]:
    """Return the files with this suffix that are registered in a directory and do not exist."""
    paths = sorted(path.with_suffix(suffix) for path in directory.glob(f"[!.]*{KNOWN}"))
    return [path for path in paths if is_missing(path)]


def is_foreign(path: Path, token: str) -> bool:
    """Return whether a file with this token is not the one that was registered.

    Without a token an older version has written it: that cannot be told.
    """
    registered = _token(path.with_suffix(KNOWN))
    return bool(token) and registered is not None and registered != token


def forget_registered(path: Path, *, disk: Disk | None = None) -> None:
    """Delete a file, and that it was registered.  It is no error if there is none."""
    known = path.with_suffix(KNOWN)
    if known.exists():
        known.unlink(missing_ok=True)
        # Not every file system keeps the order of two deletions.
        (disk or Disk()).sync_directory(path.parent)
    path.unlink(missing_ok=True)


def _token(known: Path) -> str | None:
    try:
        # Whatever somebody has made of it is at least another token.
        return known.read_text("latin-1")
    except FileNotFoundError:
        return None
