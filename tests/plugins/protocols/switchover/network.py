"""A sender and receivers of a feed on a clock of their own: TCP in memory, and multicast by PGM that loses and reorders."""

from __future__ import annotations

import heapq
import itertools
import math
import random
from collections.abc import Callable
from functools import partial

from plugins.protocols.pgm.options import ReceiverOptions, SourceOptions
from plugins.protocols.pgm.receiver import Receiver
from plugins.protocols.pgm.source import Source
from plugins.protocols.switchover.link import Link
from plugins.protocols.switchover.options import SwitchoverOptions
from plugins.protocols.switchover.receiving import ReceivingSide
from plugins.protocols.switchover.sending import SendingSide

GROUP = bytes((239, 192, 1, 1))
PATH = bytes((198, 18, 0, 1))
PORT = 5555
WHERE = "epgm://239.192.1.1:5555"
TSI = bytes.fromhex("0102030405061234")
MAX_UNIT, HOLD = 1 << 20, 64 << 20


class Member:
    """A receiver: its application has ``got``."""

    def __init__(self, name: str, loss: float) -> None:
        self.name = name
        self.side = ReceivingSide(MAX_UNIT, HOLD)
        self.ear: Receiver | None = None
        self.link: Link | None = None
        self.loss = loss
        self.deaf = False
        """Multicast does not get here."""
        self.slow = False
        """Reads nothing from anywhere."""
        self.waiting: list[Callable[[], None]] = []
        self.confirms = True
        self.got: list[bytes] = []
        self.by_group = 0
        self.due = math.inf


class Network:
    """Everything, and the clock.  A TCP connection delivers in order after ``delay`` and a jitter."""

    def __init__(
        self, seed: int = 1, options: SwitchoverOptions | None = None, feed: bytes = b"feed-one"
    ) -> None:
        self.chance = random.Random(seed)
        self.now = 100.0
        self.source = Source(SourceOptions(rate=100_000_000), TSI, PORT, PATH, GROUP)
        self.sender = SendingSide(options or SwitchoverOptions(), feed, TSI, WHERE)
        self.members: list[Member] = []
        self.events: list[tuple[str, str, str]] = []
        self.multicast_packets = 0
        self.sent: list[bytes] = []
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._quiet_until: dict[tuple[str, str], float] = {}

    # -------------------------------------------------------------- who is there

    def join(self, name: str, loss: float = 0.0, *, deaf: bool = False) -> Member:
        member = Member(name, loss)
        member.deaf = deaf
        self.members.append(member)
        self.connect(member)
        link = member.link
        self.run_until(lambda: link in self.sender.known)
        return member

    def connect(self, member: Member) -> None:
        member.link = self.sender.connected(member.name, self.now)
        member.side.connected()
        member.due = self.now

    def cut(self, member: Member) -> None:
        """The TCP connection is lost, and what is under way on it."""
        link, member.link = member.link, None
        member.side.disconnected()
        member.ear = None
        if link is not None:
            self.sender.disconnected(link, self.now)

    def kill(self, member: Member) -> None:
        self.members.remove(member)
        self.cut(member)

    # -------------------------------------------------------------- what happens

    def send(self, count: int, size: int = 100) -> None:
        """Send so many messages, a unit each, as there is room."""
        for _ in range(count):
            self.run_until(lambda: self.sender.has_room)
            body = b"%d" % len(self.sent)
            self.sent.append(body)
            self.sender.send([body.ljust(size)], 1, self.now)
            self._work()

    def run(self, seconds: float) -> None:
        end = self.now + seconds
        while True:
            self._work()
            at = self._next()
            if at > end:
                break
            self.now = max(self.now, at)
        self.now = end

    def run_until(self, done: Callable[[], bool], most: float = 60.0) -> None:
        end = self.now + most
        while not done():
            self._work()
            if done():
                break
            at = self._next()
            assert at <= end, f"not done after {most} s: {self.events[-5:]}"
            self.now = max(self.now, at)

    def _next(self) -> float:
        times = [self._heap[0][0]] if self._heap else []
        due = self.sender.next_deadline()
        times += [] if due is None else [due]
        if self.sender.uses_group:
            times.append(self.source.next_deadline())
        times += [member.due for member in self.members if not member.slow]
        return min(times, default=math.inf)

    def _work(self) -> None:
        while self._heap and self._heap[0][0] <= self.now:
            heapq.heappop(self._heap)[2]()
        for member in list(self.members):
            if member.due <= self.now and not member.slow:
                self._serve(member)
        self._serve_sender()

    def _serve_sender(self) -> None:
        sender, now = self.sender, self.now
        if (sender.next_deadline() or math.inf) <= now:
            sender.handle_timeout(now)
        hung_up = [link for link, _ in sender.disconnects]
        sender.disconnects.clear()
        for member in [member for member in self.members if member.link in hung_up]:
            self.cut(member)
        self.events += sender.events
        sender.events.clear()
        if sender.announce:
            sender.announce = False
            self.source.announce(now)
        units = sender.take_group()
        if units:
            self.source.send(units)
        if sender.uses_group:
            for packet in self.source.packets_to_send(now):
                self.multicast_packets += 1
                self._multicast(packet)
        for member in self.members:
            if member.link is not None and member.link.out:
                data = b"".join(member.link.out)
                member.link.out.clear()
                self._tcp("down", member, member.link, data)

    def _serve(self, member: Member) -> None:
        side, now = member.side, self.now
        if side.group is None:
            member.ear = None
        elif member.ear is None:
            seed = self.chance.getrandbits(40)
            member.ear = Receiver(ReceiverOptions(), PORT, GROUP, seed)
        ear = member.ear
        due = math.inf
        if ear is not None:
            for address, packet in ear.packets_to_send(now):
                if address is not None:
                    self._after(0.001, member.loss, partial(self._answer, packet))
            session = ear.sessions.get(side.source)
            if session is not None and session.path is not None:
                side.group_heard()
            for _, units in ear.take():
                member.by_group += len(units)
                side.receive_group(units, now)
            asked = ear.next_deadline()
            due = math.inf if asked is None else asked
        member.got += [unit.rstrip() for unit in side.take()]
        if member.confirms:
            side.confirm(side.epoch, side.next, now)
        data = b"".join(side.data_to_send(now))
        if data and member.link is not None:
            self._tcp("up", member, member.link, data)
        ack = side.next_deadline()
        member.due = min(due, math.inf if ack is None else ack)

    # -------------------------------------------------------------- wires

    def _tcp(self, way: str, member: Member, link: Link, data: bytes) -> None:
        at = max(
            self.now + 0.001 + self.chance.random() * 0.003, self._quiet_until.get((way, link.name), 0.0)
        )
        self._quiet_until[way, link.name] = at

        def arrive() -> None:
            if member.link is not link:
                return
            if way == "up":
                self.sender.receive(link, data, self.now)
            elif member.slow:
                member.waiting.append(arrive)
            else:
                member.side.receive(data, self.now)
                member.due = self.now

        self._at(at, arrive)

    def _multicast(self, packet: bytes) -> None:
        for member in self.members:
            if not member.deaf:
                self._after(0.001, member.loss, partial(self._hear, member, packet))

    def _answer(self, packet: bytes) -> None:
        self.source.receive(packet, self.now)

    def _hear(self, member: Member, packet: bytes) -> None:
        if member.ear is not None and not member.slow:
            member.ear.receive([packet], self.now, "source")
            member.due = self.now

    def _after(self, delay: float, loss: float, arrive: Callable[[], None]) -> None:
        if self.chance.random() >= loss:
            delay += self.chance.random() * 0.0005
            if self.chance.random() < loss:
                delay *= 3
            self._at(self.now + delay, arrive)

    def _at(self, when: float, what: Callable[[], None]) -> None:
        heapq.heappush(self._heap, (when, next(self._order), what))
