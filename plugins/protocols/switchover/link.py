"""The link to one receiver, as the sender sees it."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum

from kernel.contracts.message import Buffer
from plugins.protocols.switchover import frames
from plugins.protocols.switchover.frames import Deframer, Kind
from plugins.protocols.switchover.unit_buffer import Unit


class Stage(Enum):
    """How a receiver is reached."""

    SILENT = "no HELLO yet"
    UNICAST = "over TCP"
    ASKED = "over TCP, asked to join the group"
    READY = "over TCP, and the group reaches it"
    MULTICAST = "by multicast"


class Link:
    """One TCP connection. ``out`` is what must be written to it."""

    def __init__(self, name: str, now: float) -> None:
        self.name = name
        self.stage = Stage.SILENT
        self.out: list[Buffer] = []
        self.deframer = Deframer(0)
        self.received = self.confirmed = 0
        """The first number that the receiver lacks, and the first that it has not confirmed."""
        self.until = 0
        """The first number that was not sent by multicast, after a change to TCP."""
        self.since = now
        """When it connected, last made progress, or was sent something while it had everything."""
        self.asked_at = now
        self.ask_from = now
        """The receiver may be asked to join the group from this time on."""

    def begin(self, feed: bytes, received: int, confirmed: int, now: float) -> None:
        """Process its HELLO."""
        self.stage = Stage.UNICAST
        self.received, self.confirmed, self.since = received, confirmed, now
        self.out.append(frames.welcome(feed, received))

    @property
    def depends_on_group(self) -> bool:
        """Whether something that it lacks was sent by multicast."""
        return self.stage is Stage.MULTICAST or self.received < self.until

    @property
    def uses_group(self) -> bool:
        """Whether the multicast source is needed for its sake."""
        return self.depends_on_group or self.stage in (Stage.ASKED, Stage.READY)

    def ask(self, source: bytes, group: str, now: float) -> None:
        """Ask it to join the group."""
        # TCP goes on meanwhile: nothing changes for the receiver until MULTICAST.
        self.stage = Stage.ASKED
        self.asked_at = now
        self.out.append(frames.prepare(source, group))

    def to_multicast(self, number: int) -> None:
        """Send from ``number`` on by multicast."""
        self.stage = Stage.MULTICAST
        self.out.append(frames.numbered(Kind.MULTICAST, number))

    def to_unicast(self, number: int) -> None:
        """Send from ``number`` on over TCP. What is before it arrives by multicast."""
        if self.stage is Stage.MULTICAST:
            # ``until`` is set only on the way from multicast: a receiver that was merely asked to join had
            # everything over TCP.
            self.until = number
        self.stage = Stage.UNICAST
        self.out.append(frames.numbered(Kind.UNICAST, number))

    def fall_back(self, units: Iterable[Unit], now: float, ask_from: float) -> None:
        """Return to TCP, and send everything that it lacks."""
        self.stage = Stage.UNICAST
        self.until = 0
        self.since, self.ask_from = now, ask_from
        # UNICAST goes in front of the units, so that the receiver leaves the group at once: it waits for
        # nothing from there.
        self.out.append(frames.numbered(Kind.UNICAST, self.received))
        for unit in units:
            self.send(unit)

    def send(self, unit: Unit) -> None:
        """Send a unit over TCP."""
        self.out += (frames.unit_header(unit.number, len(unit.data)), unit.data)

    def progress(self, received: int, confirmed: int, now: float) -> None:
        """Record its acknowledgement."""
        # Only progress counts as a sign of life: a receiver that repeats its last ACK still holds up the
        # feed.
        if received > self.received or confirmed > self.confirmed:
            self.since = now
        self.received, self.confirmed = received, confirmed
