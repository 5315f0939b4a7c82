"""Collected: what the next group of a log is made of."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from kernel.contracts.message import Run
from plugins.engines.broker.storage.framing import Kind
from plugins.engines.broker.storage.message_records import Entry, in_one_piece
from plugins.engines.broker.storage.place import Place

if TYPE_CHECKING:
    from plugins.engines.broker.storage.log import Kept

Held: TypeAlias = "tuple[Kept, Entry]"

_MOST_JOINED = 256
_MOST_JOINED_BYTES = 64 * 1024
"""Messages and octets that single messages make a run of: so much is lost if its record is damaged."""


class Collected(msgspec.Struct):
    """Definitions, runs and settled messages, in the order in which they came."""

    notes: list[tuple[Kind, bytes]] = []
    runs: list[tuple[Run, list[Held], Place]] = []
    last_run: Run | None = None
    settling: dict[Kept, None] = {}
    demanded: bool = False
    """Whether somebody waits for it, whatever it is."""

    def __bool__(self) -> bool:
        return bool(self.runs or self.settling or self.notes)

    def joined(self) -> Iterator[JoinedRun]:
        """Return what still lives of the runs, neighbours as one that have everything in common."""
        last: JoinedRun | None = None
        for run, held, place in self.runs:
            # What has gone already need not be written.
            entries = [entry for kept, entry in held if kept.live.overlaps(entry.first, entry.last)]
            if not entries or (last is not None and last.take(run, entries, place)):
                continue
            if last is not None:
                yield last
            last = JoinedRun(run, entries, place)
        if last is not None:
            yield last


class JoinedRun:
    """Runs that become one record."""

    __slots__ = ("_open", "entries", "places", "run")

    def __init__(self, run: Run, entries: list[Entry], place: Place) -> None:
        self.run = in_one_piece(run)
        self.entries = entries
        self.places = [place]
        entry = entries[0]
        self._open = len(entries) == 1 and entry.start == 0 and entry.stop == len(run.bodies)

    def take(self, run: Run, entries: list[Entry], place: Place) -> bool:
        """Take in the run that follows, if it can be; return whether it was."""
        if not self._open or run.envelope is not self.run.envelope or len(entries) != 1:
            return False
        mine, other = self.entries[0], entries[0]
        follows = mine.queue == other.queue and mine.last == other.first and mine.expires == other.expires
        count = len(run.bodies)
        if not follows or other.start or other.stop != count:
            return False
        if mine.stop + count > _MOST_JOINED or self.run.size + run.size > _MOST_JOINED_BYTES:
            return False
        if len(self.places) == 1:  # what was handed to us must not change
            self.run = msgspec.structs.replace(self.run, bodies=list(self.run.bodies))
        self.run.extend(in_one_piece(run))
        self.entries = [mine._replace(stop=mine.stop + count)]
        self.places.append(place)
        return True
