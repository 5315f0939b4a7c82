"""Congestion control of a source: PGMCC (draft-ietf-rmt-bb-pgmcc-03).

One receiver, the *acker*, acknowledges every packet, as a TCP receiver would. It is the one to which a TCP
connection would be slowest. The window grows by one packet per round trip and is halved on a loss. The draft
also counts tokens; they are the window minus the packets in flight, and are not stored here.

What is in flight has nothing to do with repair. A packet leaves the flight when the acker has it, or counts
as lost for the window; whether receivers request and get it again is the business of the transmit window.

Which receiver is the acker is decided with every report. Reports come in acknowledgements and in NAKs, and
have the loss rate and an echo of the timestamp. From both the source computes how slow a TCP connection to
that receiver would be. The slowest becomes the acker, if it is slower by a margin (``HYSTERESIS``): each
change begins the measurement of the round trip anew. Without an acker, packets carry an address of zeros,
receivers offer themselves, and the first one is taken.

The window is closed by packets in flight, and opened by acknowledgements only. If these stop, because the
acker has gone or everything was lost, the timer starts again with one packet, and after two timeouts in a row
without an acker.
"""

from __future__ import annotations

from plugins.protocols.pgm.extensions import CongestionData, CongestionFeedback
from plugins.protocols.pgm.round_trip import RoundTrip
from plugins.protocols.pgm.sequence import MASK, after, distance

SLOW_START_UNTIL = 4.0
"""Packets up to which the window doubles each round trip (2.2: "a fixed, small value")."""
HYSTERESIS = 0.75
"""How much slower than the acker a receiver must be to replace it (2.3)."""
REORDERING = 3
"""Packets that must arrive after one before it counts as lost (2.2)."""
BITMAP = 32
"""Packets that one acknowledgement covers."""
RETRIES = 2
"""Consecutive timeouts after which another acker is elected (2.7)."""
TIMEOUT_FIRST, TIMEOUT_MIN, TIMEOUT_MAX = 1.0, 0.2, 60.0
TICK = 1000
"""Ticks of the timestamp per second (2.1.3: "1 ms or better")."""
NOT_IN_FLIGHT = object()


def ticks(now: float) -> int:
    """Return a time as a timestamp."""
    return int(now * TICK) & MASK


class Congestion:
    """What a source may send, according to its acker. ``no_acker`` is an address of 4 or 16 zero bytes."""

    def __init__(self, no_acker: bytes) -> None:
        self.window = 1.0
        """The congestion window in packets."""
        self.acker = no_acker
        """The acker's address; zeros: none is elected."""
        self.losses = self.timeouts = self.elections = 0
        self._no_acker = no_acker
        # Numbers in the order in which they were sent; the values are None. ``NOT_IN_FLIGHT`` tells a missing
        # number from that.
        self._flight: dict[int, object] = {}
        self._suspended_until: int | None = None
        self._slowness = 0.0
        self._round_trip = RoundTrip()
        self._retries = 0
        self._timeout_at: float | None = None

    def may_send(self) -> bool:
        """Whether the window has room for one more packet."""
        return len(self._flight) + 1 <= self.window

    def sent(self, number: int, now: float) -> CongestionData:
        """Record that an ODATA packet is sent; return its congestion data."""
        self._flight[number] = None
        # One timer for all packets in flight, as in TCP: sending more does not postpone it, an
        # acknowledgement restarts it.
        if self._timeout_at is None:
            self._timeout_at = now + self._timeout()
        return CongestionData(ticks(now), self.acker)

    # ------------------------------------------------------------------ what receivers say

    def on_feedback(self, feedback: CongestionFeedback, now: float) -> None:
        """Process the report of a receiver, which may become the acker (2.3)."""
        # The receiver has added the time for which it held the feedback back (2.5.1), so the difference is
        # the round trip. It is computed modulo 2**32, as the timestamp wraps after 49 days. At least one
        # tick: a round trip of zero would make every receiver look equally fast.
        seconds = max((ticks(now) - feedback.timestamp) & MASK, 1) / TICK
        if seconds > TIMEOUT_MAX:
            # No echo of a timestamp of ours: a difference that is negative becomes a huge one.
            return
        slowness = _slowness(seconds, feedback.loss)
        # The acker's own reports are smoothed, since its slowness is what the others are compared with. A
        # single report of another receiver is compared as it is: there is no history of it.
        if feedback.address == self.acker:
            self._round_trip.measured(seconds)
            self._slowness = _slowness(self._round_trip.smoothed or seconds, feedback.loss)
        # T_i < C * T_acker (2.3), in squares of the inverse. The first receiver that answers becomes the
        # acker, whatever its rate: there is nothing to compare it with (2.3.1).
        elif self.acker == self._no_acker or self._slowness < HYSTERESIS**2 * slowness:
            self.acker = feedback.address
            self.elections += 1
            self._slowness = slowness
            # The statistics of the old acker's path say nothing about the new one's (2.7).
            self._round_trip = RoundTrip()
            self._round_trip.measured(seconds)
            self._retries = 0

    def on_ack(self, highest: int, bitmap: int, address: bytes, now: float) -> None:
        """Process an acknowledgement of ``BITMAP`` packets (2.2). The lowest bit is ``highest``."""
        # Bit 0 is the newest packet, so this list goes from the newest to the oldest. The bitmap repeats 32
        # packets because acknowledgements are neither reliable nor cumulative (2.1.2).
        arrived = [bit for bit in range(BITMAP) if bitmap >> bit & 1]
        fresh = sum(self._flight.pop(after(highest, -bit), NOT_IN_FLIGHT) is None for bit in arrived)
        # After an election the old acker's acknowledgements still come for one round trip (2.3). They free
        # the window, but loss and growth are decided by one receiver only.
        if address != self.acker:
            return
        self._retries = 0
        lost = self._lost(highest, arrived)
        # A packet sent after the last halving was acknowledged: one round trip has passed, and the window may
        # change again (2.2).
        if self._suspended_until is not None and distance(self._suspended_until, highest) >= 0:
            self._suspended_until = None
        if self._suspended_until is None:
            if lost:
                self.losses += 1
                self.window = max(self.window / 2, 1.0)
                # At most one halving per round trip: all losses among the packets that are in flight now
                # belong to the same congestion. The next packet to be sent ends the suspension.
                newest = next(reversed(self._flight), highest)
                self._suspended_until = after(newest if distance(highest, newest) > 0 else highest)
            else:
                self._open(fresh)
        # An acknowledgement without news must not restart the timer, or repeated ones would keep a source
        # that has stalled from noticing.
        if fresh or lost:
            self._timeout_at = now + self._timeout() if self._flight else None

    def _lost(self, highest: int, arrived: list[int]) -> int:
        """Remove packets from flight that count as lost; return how many."""
        # Packets older than the third newest that has arrived are followed by three that have: lost, as after
        # TCP's three duplicate acknowledgements. With fewer than three, only packets that the bitmap no
        # longer covers are, since no acknowledgement will mention those again.
        back = arrived[REORDERING - 1] if len(arrived) >= REORDERING else BITMAP
        before = after(highest, -back)
        lost = [number for number in self._flight if distance(number, before) > 0]
        for number in lost:
            del self._flight[number]
        return len(lost)

    def _open(self, fresh: int) -> None:
        # 2.2: the first D packets open the window by one each, the others by 1/W each. The threshold is
        # fixed, because the acker may change with every packet and a measured one would belong to another
        # path.
        if self.window < SLOW_START_UNTIL:
            doubling = min(fresh, SLOW_START_UNTIL - self.window)
            self.window += doubling
            left = fresh - doubling
        else:
            left = float(fresh)
        self.window += left / self.window

    # ------------------------------------------------------------------ time

    def next_deadline(self) -> float | None:
        """Return when ``handle_timeout`` has something to do."""
        return self._timeout_at

    def handle_timeout(self, now: float) -> None:
        """Handle a timeout: start again with one packet, and after several with another acker (2.7)."""
        if self._timeout_at is None or self._timeout_at > now:
            return
        self.timeouts += 1
        self.window = 1.0
        # Packets in flight are given up for the window only. Repair does not depend on it: they remain in the
        # transmit window, and NAKs for them are answered.
        self._flight.clear()
        self._suspended_until = None
        self._timeout_at = None
        self._retries += 1
        # An acker can leave without a word. The draft recommends a new election after two timeouts in a row
        # (2.7). The address of zeros in the next packet asks all receivers to offer themselves.
        if self._retries >= RETRIES and self.acker != self._no_acker:
            self.acker = self._no_acker
            self._slowness = 0.0
            self._round_trip = RoundTrip()

    def _timeout(self) -> float:
        # Exponential back-off, as in TCP. The limit of 10 keeps the power finite.
        wanted = max(self._round_trip.timeout(TIMEOUT_FIRST, TIMEOUT_MAX), TIMEOUT_MIN)
        return min(wanted * 2.0 ** min(self._retries, 10), TIMEOUT_MAX)


def _slowness(seconds: float, loss: float) -> float:
    """Return a measure of how slow a TCP connection to a receiver would be: M squared (2.4).

    M is proportional to the inverse of the throughput. Its square needs no root, and orders receivers alike.
    Without loss it is 0: such receivers are equal, whatever their round trips.
    """
    return seconds * seconds * loss * (1 + 9 * loss * (1 + 32 * loss * loss)) ** 2
