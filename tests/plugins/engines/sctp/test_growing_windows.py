"""Windows of streams grow with what a path carries in a round trip, and no further than their option says."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from kernel.contracts.engine import Taken
from kernel.contracts.message import batch_of
from plugins.engines.sctp.framing import BackendFraming, Kind
from plugins.engines.sctp.growing_window import INITIAL, GrowingWindow
from plugins.engines.sctp.stream_input import StreamInput
from plugins.engines.sctp.stream_output import Limits, StreamOutput
from plugins.protocols.sctp.schedule import Outgoing, Terms

MIB = 1024 * 1024
BODY = bytes(8192)


class Port:
    """A source that has always more, and a destination."""

    confirms = False

    def __init__(self) -> None:
        self.delivered = 0
        self.takes = True

    def take(self, count: int) -> Taken:
        return Taken([batch_of([BODY] * 8)], 8, None)

    def take_again(self) -> Taken:
        return Taken([], 0, None)

    def has_input(self) -> bool:
        return True

    def confirm_through(self, position: int) -> None:
        """Nothing is to be confirmed."""

    def send(self, batches: list[Any]) -> bool:
        self.delivered += sum(batch.size for batch in batches)
        return self.takes


class Flow:
    """A stream from one side to the other, over a link of ``bandwidth`` bytes a second."""

    def __init__(self, delay: float, bandwidth: float, most: int = 4 * MIB) -> None:
        self.now = 0.0
        self.source, self.sink = Port(), Port()
        self.stored = 0
        self._delay, self._bandwidth = delay, bandwidth
        self._free_at = 0.0
        self._heap: list[tuple[float, int, Callable[[], Any]]] = []
        self._order = itertools.count()
        trip = 2 * delay
        self.window, self.buffer = (GrowingWindow(most, lambda: self.now, lambda: trip) for _ in range(2))
        self.input = StreamInput(BackendFraming(MIB), self._tell, max_message=MIB, window=self.window)
        self.input.port = self.sink  # type: ignore[assignment]  # has what the stream asks for
        limits = Limits(buffer=self.buffer, window=self.window.size, largest=MIB, protocol_id=None)
        self.output = StreamOutput(
            self,  # type: ignore[arg-type]  # has what the stream asks for
            0,
            BackendFraming(MIB),
            self.source,  # type: ignore[arg-type]
            limits,
            send_control=lambda kind, number: None,
            now=lambda: self.now,
            on_refused=lambda why: None,
        )

    def run(self, seconds: float) -> None:
        """Let so much time pass."""
        end = self.now + seconds
        self.output.send()
        while self._heap and self._heap[0][0] <= end:
            self.now, _, callback = heapq.heappop(self._heap)
            callback()
            self.output.send()
        self.now = end

    def send(self, stream: int, data: bytes, kind: int, terms: Terms) -> Outgoing:
        """The association's part: a message arrives, and is acknowledged."""
        message = Outgoing(stream, data, kind, terms)
        self._free_at = max(self._free_at, self.now) + len(data) / self._bandwidth
        self._at(self._free_at + self._delay, partial(self._arrive, message))
        return message

    def _arrive(self, message: Outgoing) -> None:
        self.input.receive(message.protocol, [message.data])
        self.stored = max(self.stored, self.input.pending_bytes)
        self._at(self.now + self._delay, partial(self._acknowledge, message))

    def _acknowledge(self, message: Outgoing) -> None:
        message.offset = len(message.data)
        self.output.collect_acknowledged()

    def _tell(self, kind: Kind, number: int) -> None:
        if kind is Kind.WINDOW:
            self._at(self.now + self._delay, partial(self.output.on_window, number))

    def _at(self, when: float, callback: Callable[[], Any]) -> None:
        heapq.heappush(self._heap, (when, next(self._order), callback))


def test_a_long_path_is_filled() -> None:
    """100 Mbit/s and a round trip of 100 ms: 1.25 MB are under way."""
    flow = Flow(0.05, 12_500_000)
    flow.run(1.0)
    before = flow.sink.delivered
    flow.run(2.0)
    assert flow.sink.delivered - before > 0.9 * 2.0 * 12_500_000


@pytest.mark.parametrize("delay, bandwidth", [(0.05, 500_000), (0.0005, 12_500_000)])
def test_where_a_link_is_slow_or_short_the_windows_stay_small(delay: float, bandwidth: float) -> None:
    flow = Flow(delay, bandwidth)
    flow.run(3.0)
    assert flow.sink.delivered > 0.9 * 3.0 * bandwidth
    # A first window that leaves at once may pass in less than a round trip.
    assert max(flow.window.size, flow.buffer.size) <= 2 * INITIAL


@pytest.mark.slow
@pytest.mark.parametrize("most", [64 * 1024, MIB, 4 * MIB])
def test_no_more_is_stored_for_a_destination_that_stops_than_the_option_says(most: int) -> None:
    flow = Flow(0.05, 125_000_000, most)
    flow.run(2.0)
    assert (flow.window.size, flow.buffer.size) == (most, most)
    flow.sink.takes = False
    flow.run(5.0)
    # The window may be exceeded by one unit.
    assert 0 < flow.stored <= most + 32 * 1024
    flow.sink.takes = True
    flow.input.resume()
    before = flow.sink.delivered
    flow.run(1.0)
    assert flow.sink.delivered > before + most


def test_without_a_measured_round_trip_a_window_stays_as_it_is() -> None:
    under_test = GrowingWindow(4 * MIB, lambda: 0.0, lambda: None)
    for _ in range(10):
        under_test.half_passed()
    assert under_test.size == INITIAL
