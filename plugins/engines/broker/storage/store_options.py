"""What can be set for a store."""

from __future__ import annotations

import msgspec


class StoreOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of a store, in octets."""

    fsync: bool = True
    """Whether a group is safe when the disk has it (otherwise when the operating system does)."""
    segment_bytes: int = 64 << 20
    """After how many octets a new file is begun."""
    queue_bytes: int = 64 << 20
    """Bodies that a queue holds in memory."""
    all_queues_bytes: int = 0
    """Octets of memory that all queues together may take, the longest give way first; 0: any number."""
    lazy_bytes: int = 1 << 20
    """The same of a lazy queue: enough to be a page ahead of its consumers."""
    most_waiting_bytes: int = 32 << 20
    """Bodies that wait for the disk before publishers have to."""
