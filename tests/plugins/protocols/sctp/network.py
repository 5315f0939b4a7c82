"""Two endpoints and the paths between them, in memory, on a clock of its own: seeded loss, duplication and reordering.

Each side has an address on every path.  A packet to the other's address on a path leaves from one's own address there.
"""

from __future__ import annotations

import hashlib
import heapq
import itertools
import math
import random
from collections.abc import Callable

import msgspec

from plugins.protocols.sctp.association import Association
from plugins.protocols.sctp.endpoint import Endpoint
from plugins.protocols.sctp.events import Event, Message, What
from plugins.protocols.sctp.options import SctpOptions
from plugins.protocols.sctp.probing import is_probe

PORT_A, PORT_B = 5001, 5000


class Weather(msgspec.Struct, frozen=True):
    """What may happen to a packet on its way."""

    loss: float = 0.0
    duplication: float = 0.0
    reordering: float = 0.0
    delay: float = 0.01
    bandwidth: float = math.inf
    """Bytes a second that a link takes each way."""
    queue: int = 100
    """Packets of 1,500 bytes that wait for the link; more are dropped."""


FAIR = Weather()
QUICK = SctpOptions(rto_initial=0.2, rto_min=0.1, rto_max=5.0, init_tries=30, association_tries=30)
"""Time-outs that suit a network of 20 ms."""


def address(side: int, path: int) -> bytes:
    return bytes((10, path, 0, side))


class Side:
    """An endpoint, and all that came to its host."""

    def __init__(self, number: int, port: int, options: SctpOptions, paths: int, key: bytes) -> None:
        self.number = number
        self.port = port
        self.options = options
        self.addresses = tuple(address(number, path) for path in range(paths))
        self.key = key
        self.messages: list[Message] = []
        self.events: list[Event] = []
        self.association: Association | None = None
        """The last that was heard of."""
        self.takes = True
        """Whether messages are taken as they come."""
        self.start()

    def start(self) -> None:
        """Begin, or forget everything and begin anew."""
        self.key = hashlib.sha256(self.key).digest()
        self.endpoint = Endpoint(self.options, self.port, self.key, addresses=self.addresses)

    def told(self, what: What) -> list[Event]:
        return [event for event in self.events if event.what is what]

    def collect(self, now: float) -> None:
        for association in (*self.endpoint.associations, self.association):
            if association is None:
                continue
            self.events += association.events
            association.events.clear()
            if self.takes:
                self.messages += association.receive(now)


class Network:
    """Both sides, the paths and the clock."""

    def __init__(
        self,
        seed: int = 1,
        weather: Weather = FAIR,
        *,
        a: SctpOptions = QUICK,
        b: SctpOptions = QUICK,
        paths: int = 1,
        spoil: Callable[[bytes], bytes] = lambda packet: packet,
    ) -> None:
        self.chance = random.Random(seed)
        self.weather = [weather] * paths
        self.cut = [False] * paths
        self.mtu = [1 << 16] * paths
        """Bytes of a packet that each path carries, and of a fragment."""
        self.fragments = True
        """Whether the fragments of larger packets that are no probes come through."""
        self.spoil = spoil
        self.marks: Callable[[bytes], bool] = lambda packet: False
        """Whether a router marks a packet on its way."""
        self.now = 1000.0
        self.packets = 0
        key = self.chance.randbytes
        self.a = Side(1, PORT_A, a, paths, key(32))
        self.b = Side(2, PORT_B, b, paths, key(32))
        self._order = itertools.count()
        self._free_at: dict[tuple[Side, int], float] = {}
        """When the link of each path is free, for each side that sends."""
        self._under_way: list[tuple[float, int, Side, bytes, bytes]] = []

    def connect(self) -> Association:
        """Begin an association from A to B."""
        self.a.association = self.a.endpoint.connect([address(2, 0)], PORT_B, self.now)
        return self.a.association

    def open(self) -> tuple[Association, Association]:
        """An association, open at both ends."""
        ours = self.connect()
        self.run_until(lambda: bool(self.a.told(What.UP) and self.b.told(What.UP)))
        assert self.b.association is not None
        return ours, self.b.association

    def run(self, seconds: float) -> None:
        """Let so much time pass."""
        end = self.now + seconds
        self._work()
        while self._step(end):
            pass
        self.now = end

    def run_until(self, done: Callable[[], bool], most: float = 3600.0) -> None:
        """Let time pass until ``done()``."""
        end = self.now + most
        self._work()
        while not done():
            assert self._step(end), f"not done after {most} s"

    def inject(self, side: Side, packet: bytes, source: bytes) -> None:
        """Hand a packet to a side at once."""
        association = side.endpoint.receive_data(packet, source, self.now, marked=self.marks(packet))
        if association is not None:
            side.association = association

    def _step(self, end: float) -> bool:
        due = [self._under_way[0][0]] if self._under_way else []
        due += [at for side in (self.a, self.b) if (at := side.endpoint.next_deadline()) is not None]
        at = min(due, default=math.inf)
        if at > end:
            return False
        self.now = max(self.now, at)
        for side in (self.a, self.b):
            side.endpoint.handle_timeout(self.now)
        while self._under_way and self._under_way[0][0] <= self.now:
            _, _, side, packet, source = heapq.heappop(self._under_way)
            self.inject(side, packet, source)
        self._work()
        return True

    def _work(self) -> None:
        for side, other in ((self.a, self.b), (self.b, self.a)):
            side.collect(self.now)
            for target, packet in side.endpoint.data_to_send(self.now):
                self._carry(side, other, packet, target[1])
            side.collect(self.now)

    def _carry(self, side: Side, other: Side, packet: bytes, path: int) -> None:
        self.packets += 1
        weather = self.weather[path]
        waiting = max(self._free_at.get((side, path), 0.0) - self.now, 0.0)
        too_large = len(packet) > self.mtu[path] and (is_probe(packet) or not self.fragments)
        if self.cut[path] or too_large or self.chance.random() < weather.loss:
            return
        if waiting * weather.bandwidth > weather.queue * 1500:
            return
        waiting += len(packet) / weather.bandwidth
        self._free_at[side, path] = self.now + waiting
        for _ in range(2 if self.chance.random() < weather.duplication else 1):
            late = (
                self.chance.random() * 3 * weather.delay if self.chance.random() < weather.reordering else 0.0
            )
            entry = (self.now + waiting + weather.delay + late, next(self._order), other, self.spoil(packet))
            heapq.heappush(self._under_way, (*entry, address(side.number, path)))
