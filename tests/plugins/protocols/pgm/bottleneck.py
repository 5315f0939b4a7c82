"""Sources, each with a receiver of its own, that share one slow link with a queue that drops what it cannot hold."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable
from functools import partial

from plugins.protocols.pgm.options import ReceiverOptions, SourceOptions
from plugins.protocols.pgm.receiver import Receiver
from plugins.protocols.pgm.source import Source
from tests.plugins.protocols.pgm.network import GROUP, PATH, PORT

BODY = b"x" * 1000


class Pair:
    """A source that has always something to send, and its receiver."""

    def __init__(self, number: int, options: SourceOptions) -> None:
        tsi = bytes((number + 1,)) * 8
        self.source = Source(options, tsi, PORT, PATH, GROUP)
        self.receiver = Receiver(ReceiverOptions(), PORT, GROUP, number, bytes((198, 18, 2, number + 1)))
        self.delivered = 0


class Bottleneck:
    """The link takes ``bandwidth`` bytes a second and holds ``queue`` packets; all is ``delay`` seconds further away."""

    def __init__(self, pairs: int, bandwidth: int, queue: int, delay: float = 0.01) -> None:
        options = SourceOptions(congestion_control=True, rate=1_000_000_000)
        self.pairs = [Pair(number, options) for number in range(pairs)]
        self.now = 100.0
        self.dropped = 0
        self._bandwidth = bandwidth
        self._queue = queue
        self._delay = delay
        self._free_at: float = 0.0
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()

    def run(self, seconds: float) -> None:
        """Let so much time pass."""
        end = self.now + seconds
        while True:
            for pair in self.pairs:
                self._serve(pair)
            times = [self._heap[0][0]] if self._heap else []
            for pair in self.pairs:
                times.append(pair.source.next_deadline())
                times += [due] if (due := pair.receiver.next_deadline()) is not None else []
            if min(times) > end:
                break
            self.now = max(self.now, min(times))
            while self._heap and self._heap[0][0] <= self.now:
                heapq.heappop(self._heap)[2]()
        self.now = end

    def _serve(self, pair: Pair) -> None:
        if pair.source.queued < 20 * len(BODY):
            pair.source.send([BODY] * 20)
        for packet in pair.source.packets_to_send(self.now):
            self._forward(packet, pair)
        for _, packet in pair.receiver.packets_to_send(self.now):
            self._at(self.now + self._delay, partial(self._answer, pair, packet))
        for _, units in pair.receiver.take():
            pair.delivered += len(units)

    def _forward(self, packet: bytes, pair: Pair) -> None:
        waiting = max(self._free_at - self.now, 0.0)
        if waiting * self._bandwidth > self._queue * len(packet):
            self.dropped += 1
            return
        self._free_at = max(self._free_at, self.now) + len(packet) / self._bandwidth
        self._at(self._free_at + self._delay, partial(self._arrive, pair, packet))

    def _answer(self, pair: Pair, packet: bytes) -> None:
        pair.source.receive(packet, self.now)

    def _arrive(self, pair: Pair, packet: bytes) -> None:
        pair.receiver.receive([packet], self.now, "source")

    def _at(self, when: float, what: Callable[[], None]) -> None:
        heapq.heappush(self._heap, (when, next(self._order), what))
