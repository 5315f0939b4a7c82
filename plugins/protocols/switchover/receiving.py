"""The receiving side of a switch-over: units of one feed, from TCP and multicast, in order and once.

Sans-I/O.

Every unit has a number, on both paths. So it does not matter which path a unit takes: the receiver sorts by
number, drops duplicates, and reports over TCP which number it lacks. Bytes of the TCP connection go in with
``receive``, units of the group with ``receive_group``; ``take`` returns what may be delivered. While
``group`` is not None the caller must listen there, and call ``group_heard`` when the source is heard.
"""

from __future__ import annotations

from collections.abc import Sequence

from kernel.contracts.errors import RemoteProtocolError
from kernel.contracts.message import Buffer
from plugins.protocols.switchover import frames
from plugins.protocols.switchover.frames import NO_FEED, NUMBER, Deframer, Kind

ACK_DELAY = 0.01
"""Seconds after which an ACK reports progress at the latest,"""
ACK_BYTES = 256 * 1024
"""or this many bytes."""


class ReceivingStatistics:
    """Counters of a receiver."""

    def __init__(self) -> None:
        self.units_by_tcp = self.units_by_group = self.duplicates = self.lost_units = 0


class ReceivingSide:
    """One receiver of one feed, over all its connections.

    ``max_unit`` and ``reorder_bytes`` limit what a sender may do.
    """

    def __init__(self, max_unit: int, reorder_bytes: int) -> None:
        self.group: str | None = None
        """The group to listen to, or None."""
        self.source = b""
        """TSI of the source to listen to."""
        self.requests = 0
        """Counts PREPAREs: the sender may ask again to join the same group."""
        self.next = 0
        """The first number that has not arrived."""
        self.epoch = 0
        """Counts feeds: numbers of different feeds are unrelated."""
        self.by_group = False
        """Whether units come by multicast."""
        self.events: list[tuple[str, str]] = []
        """Events as (what, detail); the caller empties the list."""
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
        self._reported = (0, 0)
        self._ack_at: float | None = None
        self._unreported_bytes = 0

    # ------------------------------------------------------------------ the connection

    def connected(self) -> None:
        """Process a new connection: send HELLO."""
        self._deframer = Deframer(self._max_unit)
        self._welcomed = False
        # HELLO says what this receiver has, so that the sender can go on from there.
        self._out = [frames.hello(self._feed, self.next, self._confirmed)]

    def disconnected(self) -> None:
        """Process the end of the connection.

        The group is left, since nothing could be requested without a connection.
        """
        # Frames of the old connection are void on the next one, which begins with HELLO.
        self._out.clear()
        self._leave()

    def receive(self, data: Buffer, now: float) -> None:
        """Process bytes from the sender.

        Raises ``RemoteProtocolError`` if they are malformed: the caller disconnects.
        """
        for kind, payload in self._deframer.frames(data):
            # WELCOME comes first, and only once per connection.
            if self._welcomed == (kind is Kind.WELCOME):
                raise RemoteProtocolError(f"{kind.name} {'after' if self._welcomed else 'before'} WELCOME")
            if kind is Kind.UNIT:
                self.statistics.units_by_tcp += 1
                self._put(payload, now)
            elif kind is Kind.WELCOME:
                self._on_welcome(*frames.read_welcome(payload), now)
            elif kind is Kind.PREPARE:
                # A PREPARE may name another group or source: READY is due for each anew.
                self._leave()
                self.source, self.group = frames.read_prepare(payload)
                self.requests += 1
            elif kind is Kind.MULTICAST:
                frames.read_number(kind, payload)
                # The number is not needed: units are sorted by their own numbers, and what is missing in
                # front of this one is on its way over TCP.
                self.by_group = True
            elif kind is Kind.UNICAST:
                self.by_group = False
                # The group is left only when everything before this number has arrived: until then PGM may
                # still repair.
                self._leave_at = frames.read_number(kind, payload)
            else:
                raise RemoteProtocolError(f"{kind.name} from a sender")
        self._leave_if_done()

    def _on_welcome(self, feed: bytes, first: int, now: float) -> None:
        self._welcomed = True
        if feed != self._feed:
            if self._feed != NO_FEED:
                self.events.append(("feed began anew", "the sender has restarted"))
            self._feed = feed
            # Confirmations of the host for units of the old feed may still come, and are recognized by the
            # epoch.
            self.epoch += 1
            # Numbers of another feed: what waits can never be completed.
            self._early.clear()
            self._early_bytes = 0
            self.next = self._confirmed = first
            self._reported = (first, first)
        # The sender has dropped units that this receiver lacks: they are lost, and reported.
        elif first > self.next:
            self.statistics.lost_units += first - self.next
            detail = f"units {self.next} to {first - 1}: the sender no longer has them"
            self.events.append(("lost", detail))
            # Delivered units stay delivered; what waits behind the gap follows when the rest has come.
            self._skip_to(first, now)
        # The sender must not repeat what HELLO has said to be here.
        elif first < self.next:
            raise RemoteProtocolError(f"WELCOME with unit {first}; {self.next} was requested")

    def _leave(self) -> None:
        self.group = self._leave_at = None
        self.by_group = self._heard = False

    def _leave_if_done(self) -> None:
        """Leave the group once everything that was sent by multicast has arrived."""
        if self._leave_at is not None and self.next >= self._leave_at:
            self._leave()

    # ------------------------------------------------------------------ the group

    def group_heard(self) -> None:
        """Record that the source is heard: multicast reaches us."""
        if self.group is not None and not self._heard:
            self._heard = True
            self._out.append(frames.ready())

    def receive_group(self, units: Sequence[bytes | None], now: float) -> None:
        """Process units of the source; None stands for units that PGM has lost."""
        for unit in units:
            if unit is None:
                # Losses matter only while units are expected from the group: TCP delivers all others.
                if self.by_group or self._leave_at is not None:
                    self.by_group = False
                    self._out.append(frames.numbered(Kind.MISSING, self.next))
            elif len(unit) >= NUMBER.size:
                self.statistics.units_by_group += 1
                self._put(unit, now)
        self._leave_if_done()

    # ------------------------------------------------------------------ units

    def _put(self, numbered: bytes, now: float) -> None:
        """Process a unit with its number in front."""
        (number,) = NUMBER.unpack_from(numbered)
        unit = numbered[NUMBER.size :]
        # The common case first. Both paths end here, and a unit that has come by one is a duplicate on the
        # other.
        if number == self.next:
            self._ready.append(unit)
            self.next += 1
            self._unreported_bytes += len(unit)
            if self._early:
                self._take_early()
            self._progress(now)
        # A unit ahead of a gap: the other path, or a repair, will bring the missing one.
        elif number > self.next and number not in self._early:
            self._early[number] = unit
            self._early_bytes += len(unit)
            # A sender keeps at most ``window_bytes`` unconfirmed, so that more than ``reorder_bytes`` is a
            # fault of its own.
            if self._early_bytes > self._reorder_bytes:
                raise RemoteProtocolError(
                    f"unit {self.next} is missing and {self._early_bytes} bytes came after it"
                )
        else:
            self.statistics.duplicates += 1

    def _take_early(self) -> None:
        """Make the units ready that have waited for the one before them."""
        while (unit := self._early.pop(self.next, None)) is not None:
            self._early_bytes -= len(unit)
            self._ready.append(unit)
            self.next += 1

    def _skip_to(self, number: int, now: float) -> None:
        for early in sorted(self._early):
            if early < number:
                self._early_bytes -= len(self._early.pop(early))
        self.next = number
        self._confirmed = max(self._confirmed, number)
        # Nothing in ``_early`` may have the number ``next``: ``_put`` does not look there for the unit that
        # it was given, so that this one would never leave, and its bytes would count against
        # ``reorder_bytes``.
        self._take_early()
        self._progress(now)

    def take(self) -> list[bytes]:
        """Return the units that may be delivered."""
        units, self._ready = self._ready, []
        return units

    def confirm(self, epoch: int, number: int, now: float) -> None:
        """Record that everything before ``number`` of that epoch's feed is confirmed."""
        # A confirmation of the host may be for a feed that has ended since.
        if epoch == self.epoch and number > self._confirmed:
            self._confirmed = number
            self._progress(now)

    def _progress(self, now: float) -> None:
        if self._unreported_bytes >= ACK_BYTES:
            self._ack_at = now
        # The first progress since the last ACK starts the delay; more progress does not postpone it.
        elif self._ack_at is None:
            self._ack_at = now + ACK_DELAY

    # ------------------------------------------------------------------ out

    def data_to_send(self, now: float) -> list[bytes]:
        """Return the frames to write to the sender."""
        progress = (self.next, self._confirmed)
        if self._welcomed and self._ack_at is not None and self._ack_at <= now:
            self._ack_at = None
            self._unreported_bytes = 0
            if progress != self._reported:
                self._reported = progress
                self._out.append(frames.ack(*progress))
        out, self._out = self._out, []
        return out

    def next_deadline(self) -> float | None:
        """Return when ``data_to_send`` will have something. Progress before WELCOME is reported after it."""
        return self._ack_at if self._welcomed else None
