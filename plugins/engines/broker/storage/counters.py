"""Counters of a log."""

from __future__ import annotations

import msgspec


class LogCounters(msgspec.Struct):
    """Counters for operators.  Other threads read them."""

    # Only the broker's thread changes them.  Other threads read single numbers, which the interpreter changes
    # in one step.
    syncs: int = 0
    last_sync_seconds: float = 0.0
    synced_at: float = 0.0
    written_bytes: int = 0
    write_failures: int = 0
    damaged: set[tuple[int, int]] = set()
    """Segment and offset of records that cannot be read."""
    lost_messages: int = 0
    last_error: str = ""
