"""Registered files: small files that are replaced as a whole, and whose absence is noticed.

A file that somebody has deleted looks like one that was never written.  Where the difference matters, an
empty file stands beside it, with the suffix ``.known`` in place of its own.  It is created after the file and
deleted before it, so that a crash between the two leaves a file that is not registered, which does no harm.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from kernel.contracts.message import Buffer
from kernel.hosting.appending import Disk, replace_file

KNOWN = ".known"


def replace_registered(path: Path, data: Buffer, *, mode: int = 0o640, disk: Disk | None = None) -> None:
    """Replace a file as ``replace_file`` does, and register it."""
    disk = disk or Disk()
    replace_file(path, data, mode=mode, disk=disk)
    known = path.with_suffix(KNOWN)
    if not known.exists():
        # Another process may register it at the same time.
        with suppress(FileExistsError):
            disk.close(disk.create(known, mode))
        disk.sync_directory(path.parent)


def is_missing(path: Path) -> bool:
    """Return whether a file is registered and does not exist."""
    # In this order: ``forget_registered`` may be at work.
    return not path.exists() and path.with_suffix(KNOWN).exists()


def missing_in(directory: Path, suffix: str) -> list[Path]:
    """Return the files with this suffix that are registered in a directory and do not exist."""
    paths = sorted(path.with_suffix(suffix) for path in directory.glob(f"[!.]*{KNOWN}"))
    return [path for path in paths if is_missing(path)]


def forget_registered(path: Path, *, disk: Disk | None = None) -> None:
    """Delete a file, and that it was registered.  It is no error if there is none."""
    known = path.with_suffix(KNOWN)
    if known.exists():
        known.unlink(missing_ok=True)
        # Not every file system keeps the order of two deletions.
        (disk or Disk()).sync_directory(path.parent)
    path.unlink(missing_ok=True)
