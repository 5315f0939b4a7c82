"""A receiver as the sender sees it."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum

from kernel.contracts.message import Buffer
from plugins.protocols.switchover import frames
from plugins.protocols.switchover.frames import Deframer, Kind
from plugins.protocols.switchover.unit_buffer import Unit


class Stage(Enum):
    """How it is reached."""

    SILENT = "it has not said HELLO"
    UNICAST = "over TCP"
    ASKED = "over TCP, and asked to listen to multicast"
    READY = "over TCP, and multicast gets to it"
    MULTICAST = "by multicast"


class Link:
    """One TCP connection.  ``out`` is what is to be written to it."""

    def __init__(self, name: str, now: float) -> None:
        self.name = name
        self.stage = Stage.SILENT
        self.out: list[Buffer] = []
        self.deframer = Deframer(0)
        self.received = self.confirmed = 0
        """The first number that it does not have, and that it has not confirmed."""
        self.until = 0
        """The first number that did not go by multicast again, after UNICAST."""
        self.since = now
        """When it connected, was last heard to get on, or was sent something when it had everything."""
        self.asked_at = now
        self.ask_from = now
        """It may be asked (again) from then on."""

    def begin(self, feed: bytes, received: int, confirmed: int, now: float) -> None:
        """It has said HELLO."""
        self.stage = Stage.UNICAST
        self.received, self.confirmed, self.since = received, confirmed, now
        self.out.append(frames.welcome(feed, received))

    @property
    def depends_on_group(self) -> bool:
        """Whether something that it lacks went by multicast."""
        return self.stage is Stage.MULTICAST or self.received < self.until

    @property
    def uses_group(self) -> bool:
        """Whether the source has to be heard, for its sake."""
        return self.depends_on_group or self.stage in (Stage.ASKED, Stage.READY)

    def ask(self, source: bytes, group: str, now: float) -> None:
        """Have it listen to the group."""
        self.stage = Stage.ASKED
        self.asked_at = now
        self.out.append(frames.prepare(source, group))

    def to_multicast(self, number: int) -> None:
        """From ``number`` on."""
        self.stage = Stage.MULTICAST
        self.out.append(frames.numbered(Kind.MULTICAST, number))

    def to_unicast(self, number: int) -> None:
        """From ``number`` on; what is before it, it gets from the group."""
        if self.stage is Stage.MULTICAST:
            self.until = number
        self.stage = Stage.UNICAST
        self.out.append(frames.numbered(Kind.UNICAST, number))

    def fall_back(self, units: Iterable[Unit], now: float, ask_from: float) -> None:
        """Over TCP again, with all that it lacks."""
        self.stage = Stage.UNICAST
        self.until = 0
        self.since, self.ask_from = now, ask_from
        self.out.append(frames.numbered(Kind.UNICAST, self.received))
        for unit in units:
            self.send(unit)

    def send(self, unit: Unit) -> None:
        """Send a unit over TCP."""
        self.out += (frames.unit_header(unit.number, len(unit.data)), unit.data)

    def progress(self, received: int, confirmed: int, now: float) -> None:
        """It has got on."""
        if received > self.received or confirmed > self.confirmed:
            self.since = now
        self.received, self.confirmed = received, confirmed
