"""A multicast network in memory, on a clock of its own: seeded loss, duplication, reordering and jitter.

One source, any number of receivers.  Every packet takes ``delay`` seconds and some jitter to each receiver, which loses, doubles and
delays by itself; what receivers send to the group is heard by the others, too.
"""

from __future__ import annotations

import heapq
import itertools
import math
import random
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from plugins.protocols.pgm.events import Event, What
from plugins.protocols.pgm.options import ReceiverOptions, SourceOptions
from plugins.protocols.pgm.receiver import Receiver
from plugins.protocols.pgm.source import Source

GROUP = bytes((239, 192, 1, 1))
PATH = bytes((198, 18, 0, 1))
PORT = 5555
TSI = bytes.fromhex("0102030405061234")


class Weather(msgspec.Struct, frozen=True):
    """What may happen to a packet on its way to one receiver, or back."""

    loss: float = 0.0
    duplication: float = 0.0
    reordering: float = 0.0
    delay: float = 0.001
    jitter: float = 0.0


FAIR = Weather()
SOURCE = SourceOptions()
RECEIVER = ReceiverOptions()


class Listener:
    """A receiver and what it has delivered."""

    def __init__(self, receiver: Receiver, weather: Weather) -> None:
        self.receiver = receiver
        self.weather = weather
        self.units: list[bytes | None] = []
        self.events: list[Event] = []
        self.alive = True
        self.due = math.inf

    def told(self, what: What) -> list[Event]:
        return [event for event in self.events if event.what is what]


class Network:
    """Everything, and the clock."""

    def __init__(
        self,
        seed: int = 1,
        receivers: int = 1,
        weather: Weather = FAIR,
        *,
        source: SourceOptions = SOURCE,
        receiver: ReceiverOptions = RECEIVER,
        first: int = 0,
        packet_size: int = 1472,
        drop: Callable[[bytes], bool] = lambda packet: False,
    ) -> None:
        self.chance = random.Random(seed)
        self.now = 100.0
        self.drop = drop
        self.source = Source(source, TSI, PORT, PATH, GROUP, packet_size=packet_size, first=first)
        self.source_alive = True
        self.listeners: list[Listener] = []
        self.upstream: list[bytes] = []
        self._receiver_options = receiver
        self._under_way: list[tuple[float, int, Callable[[], Any]]] = []
        self._order = itertools.count()
        for _ in range(receivers):
            self.join(weather)

    def join(self, weather: Weather = FAIR, options: ReceiverOptions | None = None) -> Listener:
        """One more receiver, from now on."""
        address = bytes((198, 18, 1, len(self.listeners) + 1))
        made = Receiver(options or self._receiver_options, PORT, GROUP, self.chance.getrandbits(40), address)
        listener = Listener(made, weather)
        self.listeners.append(listener)
        return listener

    def send(self, tsdus: Sequence[bytes]) -> None:
        self.source.send(tsdus)

    def run(self, seconds: float) -> None:
        """Let so much time pass."""
        end = self.now + seconds
        while True:
            self._work()
            at = self._next()
            if at > end:
                break
            self.now = max(self.now, at)
        self.now = end

    def run_until(self, done: Callable[[], bool], most: float = 600.0) -> None:
        """Let time pass until ``done()``, in steps of what happens."""
        end = self.now + most
        while not done():
            self._work()
            at = self._next()
            assert at <= end, f"not done after {most} s"
            self.now = max(self.now, at)

    def multicast(self, packet: bytes) -> None:
        """From the source's address to all."""
        for listener in self.listeners:
            self._carry(packet, listener.weather, self._to(listener))

    def _next(self) -> float:
        times = [self._under_way[0][0]] if self._under_way else []
        if self.source_alive:
            times.append(self.source.next_deadline())
        times += [listener.due for listener in self.listeners]
        return min(times, default=math.inf)

    def _work(self) -> None:
        while self._under_way and self._under_way[0][0] <= self.now:
            heapq.heappop(self._under_way)[2]()
        if self.source_alive:
            for packet in self.source.packets_to_send(self.now):
                self.multicast(packet)
        for listener in self.listeners:
            if listener.due <= self.now:
                self._serve(listener)

    def _serve(self, listener: Listener) -> None:
        receiver = listener.receiver
        for address, packet in receiver.packets_to_send(self.now):
            self.upstream.append(packet)
            if address is not None:
                assert address == PATH
            self._carry(packet, listener.weather, lambda packet: self.source.receive(packet, self.now))
            if address is None:
                for other in self.listeners:
                    if other is not listener:
                        self._carry(packet, other.weather, self._to(other))
        for _, units in receiver.take():
            listener.units += units
        listener.events += receiver.events
        receiver.events.clear()
        due = receiver.next_deadline()
        listener.due = math.inf if due is None or not listener.alive else due

    def _to(self, listener: Listener) -> Callable[[bytes], None]:
        def arrive(packet: bytes) -> None:
            if listener.alive:
                listener.receiver.receive([packet], self.now, "source")
                listener.due = self.now

        return arrive

    def _carry(self, packet: bytes, weather: Weather, arrive: Callable[[bytes], Any]) -> None:
        if self.drop(packet) or self.chance.random() < weather.loss:
            return
        for _ in range(2 if self.chance.random() < weather.duplication else 1):
            delay = weather.delay + self.chance.random() * weather.jitter
            if self.chance.random() < weather.reordering:
                delay += 3 * weather.delay
            entry = (self.now + delay, next(self._order), lambda: arrive(packet))
            heapq.heappush(self._under_way, entry)
