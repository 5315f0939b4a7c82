"""Writes the position of a consumer; ``plugins/protocols/journal_format/consumers.py`` describes the file."""

from __future__ import annotations

import json
from pathlib import Path

from kernel.hosting.appending import replace_file
from plugins.protocols.journal_format.consumers import path_of
from plugins.protocols.journal_format.names import FILE_MODE


def write_position(journal: str | Path, consumer: str, next_offset: int) -> None:
    """Record that ``consumer`` needs no row before ``next_offset``.  Blocks.

    A name has letters, digits and ``. _ - @ +``; another one raises ``JournalError``.
    """
    path = path_of(journal, consumer)
    path.parent.mkdir(exist_ok=True)
    # Durable on return: retention may delete what all consumers have passed.  If the position fell back after
    # a loss of power, the consumer would be told that rows are missing which it has read.
    replace_file(path, json.dumps({"next_offset": next_offset}).encode(), mode=FILE_MODE)
