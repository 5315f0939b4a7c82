"""The sending side: one feed, its receivers, and whether they are reached by TCP or by multicast.  Sans-I/O.

``send`` takes units; what is to be written to a receiver is in its link's ``out``, what is to be multicast comes from
``take_group``.  The source of multicast itself is the caller's, and has to be heard while ``uses_group``.
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
"""Seconds between announcements while somebody was asked to listen and has not said that it hears."""

_LISTENING = (Stage.ASKED, Stage.READY)
_REACHABLE = (Stage.READY, Stage.MULTICAST)


class SendingSide:
    """One feed.  ``feed`` (8 bytes) tells it from others, ``source`` is the TSI and ``group`` the place of its multicast."""

    def __init__(self, options: SwitchoverOptions, feed: bytes, source: bytes, group: str) -> None:
        self.links: list[Link] = []
        self.kept = UnitBuffer(options.window_bytes)
        self.promised = False
        """Whether somebody waits for confirmations: then what the last receiver left is for the next."""
        self.multicasting = False
        self.announce = False
        """Somebody was asked to listen: the source should be heard now.  The caller takes it back."""
        self.hang_ups: list[tuple[Link, str]] = []
        """Who has to be hung up on, and why; the caller takes them out."""
        self.events: list[tuple[str, str, str]] = []
        """What is to be told: (what, who, details); the caller takes it out."""
        self.fall_backs = self.switches = 0
        self._options = options
        self._feed = feed
        self._source = source
        self._group = group
        self._to_group: list[bytes] = []
        self._announce_at = 0.0

    # ------------------------------------------------------------------ receivers come and go

    def connected(self, name: str, now: float) -> Link:
        """A receiver has connected."""
        link = Link(name, now)
        self.links.append(link)
        return link

    def disconnected(self, link: Link, now: float) -> None:
        """Its connection is over."""
        if link in self.links:
            self.links.remove(link)
            self._confirm()
            self._decide(now)

    def receive(self, link: Link, data: Buffer, now: float) -> None:
        """Take bytes from a receiver.  ``RemoteProtocolError`` if they make no sense: hang up."""
        for kind, payload in link.deframer.frames(data):
            if (link.stage is Stage.SILENT) != (kind is Kind.HELLO):
                raise RemoteProtocolError(
                    f"{kind.name} from a receiver, of whom is known: {link.stage.value}"
                )
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
        kept = self.kept
        if feed != self._feed:
            if feed != NO_FEED:
                self.events.append(("feed began anew", link.name, "it knew the feed of another sender"))
            inherits = self.promised and not self.known
            received = confirmed = kept.confirmed if inherits else kept.next
        elif received > kept.next:
            raise RemoteProtocolError(f"it wants {received}; the next is {kept.next}")
        elif received < kept.first:
            detail = f"{kept.first - received} units from {received} on are kept no more"
            self.events.append(("lost", link.name, detail))
            received = confirmed = kept.first
        link.begin(self._feed, received, confirmed, now)
        self.events.append(("connected", link.name, f"it goes on with unit {received}"))
        for unit in kept.since(received):
            link.send(unit)
        self._confirm()
        self._decide(now)

    def _on_ack(self, link: Link, payload: bytes, now: float) -> None:
        received, confirmed = frames.read_ack(payload)
        if not (link.received <= received <= self.kept.next and link.confirmed <= confirmed <= received):
            raise RemoteProtocolError(f"it acknowledges {received} and {confirmed} of {self.kept.next}")
        link.progress(received, confirmed, now)
        self._confirm()

    def _on_ready(self, link: Link, now: float) -> None:
        if link.stage in (Stage.ASKED, Stage.UNICAST):
            link.stage = Stage.READY
            self._decide(now)

    def _on_missing(self, link: Link, payload: bytes, now: float) -> None:
        received = frames.read_number(Kind.MISSING, payload)
        if not link.received <= received <= self.kept.next:
            raise RemoteProtocolError(f"it misses {received} of {self.kept.next}")
        link.received = received
        if link.depends_on_group:
            self._fall_back(link, "multicast has lost what it needs", now)

    def _confirm(self) -> None:
        """See what all receivers have confirmed by now."""
        confirmed = [link.confirmed for link in self.known]
        if confirmed:
            self.kept.confirm(min(confirmed))

    # ------------------------------------------------------------------ units

    @property
    def known(self) -> list[Link]:
        """Those that have said HELLO."""
        return [link for link in self.links if link.stage is not Stage.SILENT]

    @property
    def has_room(self) -> bool:
        """Whether units may be sent: there is a receiver, and none is too far behind."""
        return not self.kept.full and bool(self.known)

    def send(self, units: Sequence[bytes], messages: int, now: float) -> None:
        """Send units, at whose end so many more messages are complete."""
        kept = self.kept
        links = self.known
        for link in links:
            if link.received == kept.next:
                link.since = now
        by_tcp = [link for link in links if link.stage is not Stage.MULTICAST]
        last = len(units) - 1
        for place, data in enumerate(units):
            unit = kept.add(data, messages if place == last else 0)
            if self.multicasting:
                self._to_group.append(NUMBER.pack(unit.number) + data)
            for link in by_tcp:
                link.send(unit)

    def take_group(self) -> list[bytes]:
        """Return what is to be multicast: each a unit with its number before it."""
        units, self._to_group = self._to_group, []
        return units

    @property
    def uses_group(self) -> bool:
        """Whether the source of multicast has to be heard."""
        return any(link.uses_group for link in self.links)

    # ------------------------------------------------------------------ by which way

    def _decide(self, now: float) -> None:
        """Change to multicast or back, if the receivers that there are now call for it."""
        links = self.known
        least = self._options.multicast_from
        if len(links) >= least:
            for link in links:
                if link.stage is Stage.UNICAST and link.ask_from <= now:
                    link.ask(self._source, self._group, now)
                    self._announce(now)
        reachable = [link for link in links if link.stage in _REACHABLE]
        if len(reachable) >= least:
            for link in reachable:
                if link.stage is Stage.READY:
                    link.to_multicast(self.kept.next)
            self._now_by("multicast", f"{len(reachable)} of {len(links)} receivers hear the group")
        else:
            for link in links:
                if link.stage is Stage.MULTICAST or (len(links) < least and link.stage in _LISTENING):
                    link.to_unicast(self.kept.next)
            self._now_by("TCP", f"{len(reachable)} of {len(links)} receivers hear the group")

    def _announce(self, now: float) -> None:
        self.announce = True
        self._announce_at = now + ANNOUNCE_EVERY

    def _now_by(self, way: str, why: str) -> None:
        multicasting = way == "multicast"
        if multicasting != self.multicasting:
            self.multicasting = multicasting
            self.switches += 1
            self.events.append(("switched", "", f"to {way} from unit {self.kept.next} on: {why}"))

    def _fall_back(self, link: Link, why: str, now: float) -> None:
        self.fall_backs += 1
        self.events.append(("fell back", link.name, f"to TCP from unit {link.received} on: {why}"))
        link.fall_back(self.kept.since(link.received), now, now + self._options.retry)
        self._decide(now)

    # ------------------------------------------------------------------ time

    def next_deadline(self) -> float | None:
        """Return when to call ``handle_timeout``."""
        return min((due for link in self.links if (due := self._due(link)) is not None), default=None)

    def handle_timeout(self, now: float) -> None:
        """Do what is due."""
        for link in list(self.links):
            due = self._due(link)
            if due is None or due > now or link not in self.links:
                continue
            if link.stage is Stage.ASKED and now < link.asked_at + self._options.join_timeout:
                self._announce(now)
            elif link.stage is Stage.SILENT:
                self._hang_up(link, f"no HELLO within {self._options.stall_timeout:g} s", now)
            elif link.stage is Stage.ASKED:
                link.stage = Stage.UNICAST
                link.ask_from = now + self._options.retry
                detail = f"no SPM of the source came to it from {self._group} within {self._options.join_timeout:g} s"
                self.events.append(("stays on TCP", link.name, detail))
            elif self._holds_up(link) and link.since + self._options.stall_timeout <= now:
                self._hang_up(link, f"it has held up the feed for {self._options.stall_timeout:g} s", now)
            elif link.depends_on_group and link.received < self.kept.next:
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
        if link.depends_on_group and link.received < self.kept.next:
            due.append(link.since + options.fall_back)
        if link.stage is Stage.UNICAST and len(self.known) >= options.multicast_from:
            due.append(link.ask_from)
        return min(due, default=None)

    def _holds_up(self, link: Link) -> bool:
        return self.kept.full and link.confirmed <= self.kept.confirmed

    def _hang_up(self, link: Link, why: str, now: float) -> None:
        self.hang_ups.append((link, why))
        self.disconnected(link, now)
