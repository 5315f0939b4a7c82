"""The sending side of a switch-over: one feed, its receivers, and how each is reached. Sans-I/O.

The idea. Few receivers are served over TCP, each with its own copy. From ``multicast_from`` receivers on, one
copy goes to a group, by PGM. Every unit has a number that does not depend on the path, so that a receiver can
change the path at any unit.

The change to multicast, for each receiver (``Stage``):

- PREPARE asks it to join the group; it stays on TCP meanwhile (ASKED).
- READY says that it hears the source: only now is it known that multicast reaches it (READY). Without an
  answer within ``join_timeout`` it stays on TCP, and is asked again later.
- MULTICAST names the first unit that will come by multicast only (MULTICAST). All units before it went over
  TCP, so that there is no gap.

The change back is UNICAST with the first unit that will come over TCP again. What was sent by multicast
before may still be repaired by PGM. If PGM loses it for good (MISSING), or if acknowledgements stop for
``fall_back`` seconds, the sender sends everything that the receiver lacks over TCP from its buffer. The
buffer keeps every unit until all receivers have confirmed it; so nothing is lost in any of these steps, and
duplicates are recognized by their numbers.

``send`` takes units. What must be written to a receiver is in its link's ``out``, what must be multicast
comes from ``take_group``. The multicast source is the caller's, and must be running while ``uses_group``.
Nothing is thread-safe; all times are seconds of the caller's clock.
"""

from __future__ import annotations

from collections.abc import Sequence

from kernel.contracts.errors import RemoteProtocolError
from kernel.contracts.message import Buffer
from plugins.protocols.switchover import frames
from plugins.protocols.switchover.frames import NO_FEED, NUMBER, Kind
from plugins.protocols.switchover.link import Link, Stage
from plugins.protocols.switchover.options import SwitchoverOptions
from plugins.protocols.switchover.unit_buffer import UnitBuffer

ANNOUNCE_EVERY = 0.2
"""Seconds between announcements while a receiver was asked to join and has not answered."""

_LISTENING = (Stage.ASKED, Stage.READY)
_REACHABLE = (Stage.READY, Stage.MULTICAST)


class SendingSide:
    """One feed.

    ``feed`` (8 bytes) identifies it, ``source`` is the TSI and ``group`` the address of its multicast.
    """

    def __init__(self, options: SwitchoverOptions, feed: bytes, source: bytes, group: str) -> None:
        self.links: list[Link] = []
        self.buffer = UnitBuffer(options.window_bytes)
        self.confirming = False
        """Whether units are to be confirmed: then the next receiver gets what the last one left unconfirmed.
        """
        self.multicasting = False
        self.announce = False
        """Set when the source should announce itself now; the caller resets it."""
        self.disconnects: list[tuple[Link, str]] = []
        """Links to disconnect, with reasons; the caller empties the list."""
        self.events: list[tuple[str, str, str]] = []
        """Events as (what, who, detail); the caller empties the list."""
        self.fall_backs = self.switches = 0
        self._options = options
        self._feed = feed
        self._source = source
        self._group = group
        self._to_group: list[bytes] = []
        self._announce_at = 0.0

    # ------------------------------------------------------------------ receivers come and go

    def connected(self, name: str, now: float) -> Link:
        """Add a receiver that has connected."""
        link = Link(name, now)
        self.links.append(link)
        return link

    def disconnected(self, link: Link, now: float) -> None:
        """Remove a receiver whose connection has ended."""
        if link in self.links:
            self.links.remove(link)
            self._confirm()
            self._decide(now)

    def receive(self, link: Link, data: Buffer, now: float) -> None:
        """Process bytes from a receiver.

        Raises ``RemoteProtocolError`` if they are malformed: the caller disconnects.
        """
        for kind, payload in link.deframer.frames(data):
            # HELLO comes first, and only once.
            if (link.stage is Stage.SILENT) != (kind is Kind.HELLO):
                raise RemoteProtocolError(f"unexpected {kind.name} from a receiver ({link.stage.value})")
            if kind is Kind.HELLO:
                self._on_hello(link, payload, now)
            elif kind is Kind.ACK:
                self._on_ack(link, payload, now)
            elif kind is Kind.READY:
                self._on_ready(link, now)
            elif kind is Kind.MISSING:
                self._on_missing(link, payload, now)
            else:
                raise RemoteProtocolError(f"{kind.name} from a receiver")

    def _on_hello(self, link: Link, payload: bytes, now: float) -> None:
        feed, received, confirmed = frames.read_hello(payload)
        buffer = self.buffer
        if feed != self._feed:
            # Numbers of another feed mean nothing here: the receiver begins anew, and says so to its
            # operator.
            if feed != NO_FEED:
                self.events.append(("feed began anew", link.name, "it had received from an earlier sender"))
            # With confirmations, the first receiver after a gap without any inherits what the last one left
            # unconfirmed.
            inherits = self.confirming and not self.known
            received = confirmed = buffer.confirmed if inherits else buffer.next
        # A number that this feed has not reached yet, under this feed's own identifier: damage, not history.
        elif received > buffer.next:
            raise RemoteProtocolError(f"HELLO asks for unit {received}; the next is {buffer.next}")
        # It was away for so long that its units have left the buffer.
        elif received < buffer.first:
            detail = f"{buffer.first - received} units from {received} on are no longer kept"
            self.events.append(("lost", link.name, detail))
            received = confirmed = buffer.first
        link.begin(self._feed, received, confirmed, now)
        self.events.append(("connected", link.name, f"continues with unit {received}"))
        # Everything that it lacks goes over TCP, also while others multicast. It is asked to join when it is
        # known (``_decide``).
        for unit in buffer.since(received):
            link.send(unit)
        # The receiver may have confirmed more than the others' minimum, or less: from now on it takes part in
        # it.
        self._confirm()
        self._decide(now)

    def _on_ack(self, link: Link, payload: bytes, now: float) -> None:
        received, confirmed = frames.read_ack(payload)
        # Both numbers only grow. Nothing is received before it was sent, nor confirmed before it was
        # received.
        if not (link.received <= received <= self.buffer.next and link.confirmed <= confirmed <= received):
            raise RemoteProtocolError(f"ACK of {received} and {confirmed} of {self.buffer.next} units")
        link.progress(received, confirmed, now)
        self._confirm()

    def _on_ready(self, link: Link, now: float) -> None:
        # In UNICAST the answer has come after ``join_timeout``. It is as good as one in time.
        if link.stage in (Stage.ASKED, Stage.UNICAST):
            link.stage = Stage.READY
            self._decide(now)

    def _on_missing(self, link: Link, payload: bytes, now: float) -> None:
        received = frames.read_number(Kind.MISSING, payload)
        if not link.received <= received <= self.buffer.next:
            raise RemoteProtocolError(f"MISSING {received} of {self.buffer.next} units")
        link.received = received
        # Otherwise this MISSING has crossed our UNICAST: what it lacks is on its way over TCP already.
        if link.depends_on_group:
            self._fall_back(link, "multicast lost a unit", now)

    def _confirm(self) -> None:
        """Confirm what all receivers have confirmed."""
        confirmed = [link.confirmed for link in self.known]
        # Without any receiver nothing is confirmed: units wait for the next one.
        if confirmed:
            self.buffer.confirm(min(confirmed))

    # ------------------------------------------------------------------ units

    @property
    def known(self) -> list[Link]:
        """The receivers that have sent HELLO."""
        return [link for link in self.links if link.stage is not Stage.SILENT]

    @property
    def has_room(self) -> bool:
        """Whether units may be sent: there is a receiver, and none is too far behind."""
        return not self.buffer.full and bool(self.known)

    def send(self, units: Sequence[bytes], messages: int, now: float) -> None:
        """Send units, which complete so many messages."""
        buffer = self.buffer
        links = self.known
        for link in links:
            # A receiver that had everything has been idle, not slow: its timers start with this batch.
            if link.received == buffer.next:
                link.since = now
        by_tcp = [link for link in links if link.stage is not Stage.MULTICAST]
        last = len(units) - 1
        for index, data in enumerate(units):
            # The messages of a batch count as complete with its last unit.
            unit = buffer.add(data, messages if index == last else 0)
            if self.multicasting:
                self._to_group.append(NUMBER.pack(unit.number) + data)
            for link in by_tcp:
                link.send(unit)

    def take_group(self) -> list[bytes]:
        """Return the units to multicast, each with its number in front."""
        units, self._to_group = self._to_group, []
        return units

    @property
    def uses_group(self) -> bool:
        """Whether the multicast source must be running."""
        return any(link.uses_group for link in self.links)

    # ------------------------------------------------------------------ by which transport

    def _decide(self, now: float) -> None:
        """Change to multicast or back if the current receivers require it."""
        links = self.known
        least = self._options.multicast_from
        # The same number is asked twice: of the known receivers, whether to ask them to join; of those that
        # multicast reaches, whether to use it.
        if len(links) >= least:
            for link in links:
                if link.stage is Stage.UNICAST and link.ask_from <= now:
                    link.ask(self._source, self._group, now)
                    self._announce(now)
        reachable = [link for link in links if link.stage in _REACHABLE]
        if len(reachable) >= least:
            for link in reachable:
                if link.stage is Stage.READY:
                    # The next number, not one that was sent already: everything before it is on its way over
                    # TCP.
                    link.to_multicast(self.buffer.next)
            self._set_transport("multicast", f"{len(reachable)} of {len(links)} receivers hear the group")
        else:
            for link in links:
                # Receivers that are still joining are told to stop when too few are left.
                if link.stage is Stage.MULTICAST or (len(links) < least and link.stage in _LISTENING):
                    link.to_unicast(self.buffer.next)
            self._set_transport("TCP", f"{len(reachable)} of {len(links)} receivers hear the group")

    def _announce(self, now: float) -> None:
        self.announce = True
        self._announce_at = now + ANNOUNCE_EVERY

    def _set_transport(self, transport: str, why: str) -> None:
        multicasting = transport == "multicast"
        if multicasting != self.multicasting:
            self.multicasting = multicasting
            self.switches += 1
            self.events.append(("switched", "", f"to {transport} from unit {self.buffer.next} on: {why}"))

    def _fall_back(self, link: Link, why: str, now: float) -> None:
        self.fall_backs += 1
        self.events.append(("fell back", link.name, f"to TCP from unit {link.received} on: {why}"))
        link.fall_back(self.buffer.since(link.received), now, now + self._options.retry)
        self._decide(now)

    # ------------------------------------------------------------------ time

    def next_deadline(self) -> float | None:
        """Return when ``handle_timeout`` is due, or None."""
        return min((due for link in self.links if (due := self._due(link)) is not None), default=None)

    def handle_timeout(self, now: float) -> None:
        """Process expired timers."""
        for link in list(self.links):
            due = self._due(link)
            if due is None or due > now or link not in self.links:
                continue
            # An SPM is the receiver's proof of reachability, and may be lost: it is repeated until READY or
            # the timeout.
            if link.stage is Stage.ASKED and now < link.asked_at + self._options.join_timeout:
                self._announce(now)
            elif link.stage is Stage.SILENT:
                self._disconnect(link, f"no HELLO within {self._options.stall_timeout:g} s", now)
            elif link.stage is Stage.ASKED:
                link.stage = Stage.UNICAST
                link.ask_from = now + self._options.retry
                detail = f"no SPM of the source reached it from {self._group} within {self._options.join_timeout:g} s"
                self.events.append(("stays on TCP", link.name, detail))
            # Disconnecting is the last resort, and only for a receiver that alone keeps the full buffer from
            # moving.
            elif self._holds_up(link) and link.since + self._options.stall_timeout <= now:
                self._disconnect(link, f"it held up the feed for {self._options.stall_timeout:g} s", now)
            # PGM may still be repairing, but the receiver says nothing: TCP brings what it lacks. Duplicates
            # are dropped by number.
            elif link.depends_on_group and link.received < self.buffer.next:
                why = f"no acknowledgement for {self._options.fall_back:g} s"
                self._fall_back(link, why, now)
        self._decide(now)

    def _due(self, link: Link) -> float | None:
        options = self._options
        if link.stage is Stage.SILENT:
            return link.since + options.stall_timeout
        if link.stage is Stage.ASKED:
            return min(link.asked_at + options.join_timeout, self._announce_at)
        due = [link.since + options.stall_timeout] if self._holds_up(link) else []
        if link.depends_on_group and link.received < self.buffer.next:
            due.append(link.since + options.fall_back)
        # The time at which ``_decide`` asks it again.
        if link.stage is Stage.UNICAST and len(self.known) >= options.multicast_from:
            due.append(link.ask_from)
        return min(due, default=None)

    def _holds_up(self, link: Link) -> bool:
        # ``buffer.confirmed`` is the minimum of all: whoever is there holds the others up.
        return self.buffer.full and link.confirmed <= self.buffer.confirmed

    def _disconnect(self, link: Link, why: str, now: float) -> None:
        self.disconnects.append((link, why))
        self.disconnected(link, now)
