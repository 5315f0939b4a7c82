"""Group: what goes to disk together, with one sync for all of it."""

from __future__ import annotations

from typing import NamedTuple

from kernel.contracts.message import Batch
from plugins.engines.broker.storage.framing import HEADER_BYTES, Kind, header_of
from plugins.engines.broker.storage.location import Location
from plugins.engines.broker.storage.message_records import Entry, encode_messages

_SLIGHT = 4096
"""Octets that the operating system takes in some 10 us; the writer needs 80 to wake, write and tell."""


class Moved(NamedTuple):
    """A message record, from ``old_start`` in its segment on, was written again at octets of this group."""

    old_start: int
    start: int
    stop: int


class Group:
    """Encoded records, and what is to be told where they went.  Offsets count from the group's start."""

    def __init__(self, number: int, marker: bytes) -> None:
        self.number = number
        self.chunks: list[bytes] = []
        self.size = 0
        self.locations: list[tuple[Location, int, int]] = []
        self.positions: list[tuple[int, int, int]] = []
        """(queue, first, stop) of all messages in it."""
        self.moved: list[Moved] = []
        self.demanded = False
        """Whether somebody waits until it is safe, whatever is in it."""
        self.compacts = False
        """Whether it looks for what lives in a segment: then the next one, which does, too, follows at once."""
        self.attempts = 0
        self._marker = marker

    def __repr__(self) -> str:
        return f"<Group {self.number}, {self.size} octets>"

    @property
    def wants_sync(self) -> bool:
        """Whether it has to outlive a power cut; what only settles messages has not: they would come twice."""
        return self.demanded or bool(self.positions)

    @property
    def is_slight(self) -> bool:
        """Whether it has no messages, and is short: it is written where it is made, unless it is to be synced."""
        return not (self.positions or self.compacts) and self.size <= _SLIGHT

    def add(self, kind: Kind, payload: bytes) -> tuple[int, int]:
        """Add a record; return where it begins and ends."""
        self.chunks += (header_of(self._marker, kind, payload), payload)
        start = self.size
        self.size += HEADER_BYTES + len(payload)
        return start, self.size

    def add_messages(
        self, entries: list[Entry], batch: Batch, envelope: bytes, priority: int
    ) -> tuple[int, int]:
        """Add a record of messages; return where it begins and ends."""
        self.positions += [(entry.queue, entry.first, entry.last) for entry in entries]
        return self.add(Kind.MESSAGES, encode_messages(entries, batch, envelope, priority))

    def repeat(self, group: Group) -> None:
        """Add what another group, which has no messages, has settled."""
        self.chunks += group.chunks
        self.size += group.size
