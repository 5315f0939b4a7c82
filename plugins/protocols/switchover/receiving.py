"""The receiving side: units of one feed, whichever way they come, in order and once.  Sans-I/O.

Bytes of the TCP connection come in with ``receive``, units of the group with ``receive_group``; ``take`` has what may be
delivered.  While ``group`` is not None the caller listens there, and says so with ``group_heard`` as soon as ``source`` is.
"""

from __future__ import annotations

from collections.abc import Sequence

from kernel.contracts.errors import RemoteProtocolError
from kernel.contracts.message import Buffer
from plugins.protocols.switchover import frames
from plugins.protocols.switchover.frames import NO_FEED, NUMBER, Deframer, Kind

ACK_DELAY = 0.01
"""Seconds after which the sender hears of progress at the latest ..."""
ACK_BYTES = 256 * 1024
"""... or after so many bytes."""


class ReceivingStatistics:
    """Counters."""

    def __init__(self) -> None:
        self.units_by_tcp = self.units_by_group = self.duplicates = self.lost_units = 0


class ReceivingSide:
    """One receiver of one feed, for all its connections.  ``max_unit`` and ``reorder_bytes`` are limits to what a sender may do."""

    def __init__(self, max_unit: int, reorder_bytes: int) -> None:
        self.group: str | None = None
        """Where to listen."""
        self.source = b""
        """To whom: a TSI."""
        self.next = 0
        """The first number that has not come."""
        self.epoch = 0
        """Counts the feeds: numbers of different ones have nothing to do with each other."""
        self.by_group = False
        """Whether units come by multicast."""
        self.events: list[tuple[str, str]] = []
        """What is to be told: (what, details); the caller takes it out."""
        self.statistics = ReceivingStatistics()
        self._max_unit = max_unit
        self._reorder_bytes = reorder_bytes
        self._feed = NO_FEED
        self._confirmed = 0
        self._early: dict[int, bytes] = {}
        self._early_bytes = 0
        self._ready: list[bytes] = []
        self._leave_at: int | None = None
        self._heard = False
        self._welcomed = False
        self._out: list[bytes] = []
        self._deframer = Deframer(max_unit)
        self._told = (0, 0)
        self._ack_at: float | None = None
        self._untold_bytes = 0

    # ------------------------------------------------------------------ the connection

    def connected(self) -> None:
        """There is a connection: say hello."""
        self._deframer = Deframer(self._max_unit)
        self._welcomed = False
        self._out = [frames.hello(self._feed, self.next, self._confirmed)]

    def disconnected(self) -> None:
        """It is over; the group says nothing that could be asked for, without it."""
        self._out.clear()
        self._leave()

    def receive(self, data: Buffer, now: float) -> None:
        """Take bytes from the sender.  ``RemoteProtocolError`` if they make no sense: hang up."""
        for kind, payload in self._deframer.frames(data):
            if self._welcomed == (kind is Kind.WELCOME):
                raise RemoteProtocolError(f"{kind.name} {'after' if self._welcomed else 'before'} WELCOME")
            if kind is Kind.UNIT:
                self.statistics.units_by_tcp += 1
                self._put(payload, now)
            elif kind is Kind.WELCOME:
                self._on_welcome(*frames.read_welcome(payload))
            elif kind is Kind.PREPARE:
                self._leave()
                self.source, self.group = frames.read_prepare(payload)
            elif kind is Kind.MULTICAST:
                frames.read_number(kind, payload)
                self.by_group = True
            elif kind is Kind.UNICAST:
                self.by_group = False
                self._leave_at = frames.read_number(kind, payload)
            else:
                raise RemoteProtocolError(f"{kind.name} from a sender")
        self._leave_if_done()

    def _on_welcome(self, feed: bytes, first: int) -> None:
        self._welcomed = True
        if feed != self._feed:
            if self._feed != NO_FEED:
                self.events.append(("feed began anew", "the sender is not the one of before"))
            self._feed = feed
            self.epoch += 1
            self._early.clear()
            self._early_bytes = 0
            self.next = self._confirmed = first
            self._told = (first, first)
        elif first > self.next:
            self.statistics.lost_units += first - self.next
            detail = f"units {self.next} to {first - 1}: the sender keeps them no more"
            self.events.append(("lost", detail))
            self._skip_to(first)
        elif first < self.next:
            raise RemoteProtocolError(f"WELCOME with {first}; {self.next} was asked for")

    def _leave(self) -> None:
        self.group = self._leave_at = None
        self.by_group = self._heard = False

    def _leave_if_done(self) -> None:
        """Leave the group once all that was multicast is here."""
        if self._leave_at is not None and self.next >= self._leave_at:
            self._leave()

    # ------------------------------------------------------------------ the group

    def group_heard(self) -> None:
        """The source has been heard: multicast gets here."""
        if self.group is not None and not self._heard:
            self._heard = True
            self._out.append(frames.ready())

    def receive_group(self, units: Sequence[bytes | None], now: float) -> None:
        """Take units of the source, None where PGM has lost some."""
        for unit in units:
            if unit is None:
                if self.by_group or self._leave_at is not None:
                    self.by_group = False
                    self._out.append(frames.numbered(Kind.MISSING, self.next))
            elif len(unit) >= NUMBER.size:
                self.statistics.units_by_group += 1
                self._put(unit, now)
        self._leave_if_done()

    # ------------------------------------------------------------------ units

    def _put(self, numbered: bytes, now: float) -> None:
        """Take a unit with its number before it."""
        (number,) = NUMBER.unpack_from(numbered)
        unit = numbered[NUMBER.size :]
        if number == self.next:
            self._ready.append(unit)
            self.next += 1
            self._untold_bytes += len(unit)
            while self._early and (unit_now := self._early.pop(self.next, None)) is not None:
                self._early_bytes -= len(unit_now)
                self._ready.append(unit_now)
                self.next += 1
            self._progress(now)
        elif number > self.next and number not in self._early:
            self._early[number] = unit
            self._early_bytes += len(unit)
            if self._early_bytes > self._reorder_bytes:
                raise RemoteProtocolError(
                    f"unit {self.next} is missing and {self._early_bytes} bytes came after it"
                )
        else:
            self.statistics.duplicates += 1

    def _skip_to(self, number: int) -> None:
        for early in sorted(self._early):
            if early < number:
                self._early_bytes -= len(self._early.pop(early))
        self.next = number
        self._confirmed = max(self._confirmed, number)

    def take(self) -> list[bytes]:
        """Return the units that may be delivered."""
        units, self._ready = self._ready, []
        return units

    def confirm(self, epoch: int, number: int, now: float) -> None:
        """Everything before ``number`` of the feed of that epoch is safe with whom it was passed on to."""
        if epoch == self.epoch and number > self._confirmed:
            self._confirmed = number
            self._progress(now)

    def _progress(self, now: float) -> None:
        if self._untold_bytes >= ACK_BYTES:
            self._ack_at = now
        elif self._ack_at is None:
            self._ack_at = now + ACK_DELAY

    # ------------------------------------------------------------------ out

    def data_to_send(self, now: float) -> list[bytes]:
        """Return and forget what is to be written to the sender."""
        told = (self.next, self._confirmed)
        if self._welcomed and self._ack_at is not None and self._ack_at <= now:
            self._ack_at = None
            self._untold_bytes = 0
            if told != self._told:
                self._told = told
                self._out.append(frames.ack(*told))
        out, self._out = self._out, []
        return out

    def next_deadline(self) -> float | None:
        """Return when ``data_to_send`` will have something; what is new before WELCOME is told after it."""
        return self._ack_at if self._welcomed else None
