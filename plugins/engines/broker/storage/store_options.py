"""What can be set for a store."""

from __future__ import annotations

import msgspec


class StoreOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of a store, in octets."""

    fsync: bool = True
    """Whether a group counts as safe when it is on the disk; otherwise when the operating system has it."""
    segment_bytes: int = 64 << 20
    """Octets of a segment; then a new one is begun."""
    queue_bytes: int = 64 << 20
    """Octets of bodies that a queue may have in memory."""
    all_queues_bytes: int = 0
    """Octets of memory that all queues together may take (``sharing.py``); 0: no limit."""
    lazy_bytes: int = 1 << 20
    """Octets of bodies that a lazy queue may have in memory: some pages ahead of its consumers."""
    most_waiting_bytes: int = 32 << 20
    """Octets of bodies that may wait for the disk; with more, publishers have to wait."""
