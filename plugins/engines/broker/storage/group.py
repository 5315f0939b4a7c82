"""Group: records that are written together, with one sync for all of them."""

from __future__ import annotations

from typing import NamedTuple

from kernel.contracts.message import Batch
from plugins.engines.broker.storage.framing import HEADER_BYTES, Kind, header_of
from plugins.engines.broker.storage.location import Location
from plugins.engines.broker.storage.message_records import Entry, encode_messages

_SHORT = 4096
"""Octets.  The operating system takes so many in about 10 us; the writer's thread needs 80 us to wake, write
and tell."""


class Moved(NamedTuple):
    """A message record, from ``old_start`` in its segment on, was written again at octets of this group."""

    old_start: int
    start: int
    stop: int


class Group:
    """Encoded records, and the objects that have to know where they were written.

    Offsets are from the group's start.
    """

    def __init__(self, number: int, marker: bytes) -> None:
        self.number = number
        self.chunks: list[bytes] = []
        self.size = 0
        self.locations: list[tuple[Location, int, int]] = []
        self.positions: list[tuple[int, int, int]] = []
        """(queue, first, stop) of all messages in it."""
        self.moved: list[Moved] = []
        self.demanded = False
        """Whether somebody waits until the group is synced."""
        self.compacts = False
        """Whether the compactor reads a segment with this group.  Then the next group follows at once."""
        self.attempts = 0
        self._marker = marker

    def __repr__(self) -> str:
        return f"<Group {self.number}, {self.size} octets>"

    @property
    def wants_sync(self) -> bool:
        """Whether it has to survive a loss of power.

        ACKNOWLEDGED records alone need not: the messages would come again.
        """
        # ``positions`` are the messages, new ones and those that the compactor moves.  The latter must be on
        # the disk before their old segment is deleted.
        return self.demanded or bool(self.positions)

    @property
    def is_short(self) -> bool:
        """Whether it is short and has no messages.

        The broker's thread writes such a group itself, unless it is synced.
        """
        # A compacting group is never written here: its result begins the next one at once, and so does that
        # one's.  The broker would have no turn before the whole segment was compacted.
        return not (self.positions or self.compacts) and self.size <= _SHORT

    def add(self, kind: Kind, payload: bytes) -> tuple[int, int]:
        """Add a record; return where it begins and ends."""
        # Two chunks, not one: joining them here would copy every payload once more.
        self.chunks += (header_of(self._marker, kind, payload), payload)
        start = self.size
        self.size += HEADER_BYTES + len(payload)
        return start, self.size

    def add_messages(
        self, entries: list[Entry], batch: Batch, envelope: bytes, priority: int
    ) -> tuple[int, int]:
        """Add a record of messages; return where it begins and ends."""
        # Noted here and not when the record was written: the segment gets its ranges only if the whole group
        # was written (``Log._on_written``).
        self.positions += [(entry.queue, entry.first, entry.last) for entry in entries]
        return self.add(Kind.MESSAGES, encode_messages(entries, batch, envelope, priority))

    def repeat(self, group: Group) -> None:
        """Add the records of another group, which has no messages."""
        # The records are the same octets, and have no location that anybody would look for.
        self.chunks += group.chunks
        self.size += group.size
