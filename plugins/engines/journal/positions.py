"""Writing down how far a consumer has come: see ``journal_format/consumers.py``."""

from __future__ import annotations

import json
import os
from pathlib import Path

from plugins.protocols.journal_format.consumers import path_of


def write_position(journal: str | Path, consumer: str, next_offset: int) -> None:
    """Say that ``consumer`` (letters, digits and ``. _ - @ +``) needs no row before ``next_offset``."""
    path = path_of(journal, consumer)
    path.parent.mkdir(exist_ok=True)
    written = path.with_name(f".{path.name}.new")
    with written.open("w") as file:
        json.dump({"next_offset": next_offset}, file)
        file.flush()
        os.fsync(file.fileno())  # a name may be safe before the bytes are: the file would be empty
    written.replace(path)
