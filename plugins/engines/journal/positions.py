"""Writes the position of a consumer; ``plugins/protocols/journal_format/consumers.py`` describes the file."""

from __future__ import annotations

import json
import os
from pathlib import Path

from plugins.protocols.journal_format.consumers import path_of


def write_position(journal: str | Path, consumer: str, next_offset: int) -> None:
    """Record that ``consumer`` needs no row before ``next_offset``.  Blocks.

    A name has letters, digits and ``. _ - @ +``; another one raises ``JournalError``.
    """
    path = path_of(journal, consumer)
    path.parent.mkdir(exist_ok=True)
    written = path.with_name(f".{path.name}.new")
    with written.open("w") as file:
        json.dump({"next_offset": next_offset}, file)
        file.flush()
        # Before the rename: otherwise a power failure could leave the new name with an empty file.
        os.fsync(file.fileno())
    written.replace(path)
