"""A path: one address of the peer, with its round trip, its congestion window and its health (RFC 9260, 6.3, 7.2, 8.2)."""

from __future__ import annotations

import heapq

from plugins.protocols.sctp.options import SctpOptions
from plugins.protocols.sctp.probing import Probing

_ALPHA, _BETA = 1 / 8, 1 / 4


class Path:
    """One address.  Windows and flights are bytes of user data."""

    def __init__(self, address: bytes, options: SctpOptions, *, confirmed: bool) -> None:
        self.address = address
        self.confirmed = confirmed
        """Whether it is the peer's for sure; data goes to such paths only (5.4)."""
        self.active = True
        self.errors = 0
        self.rto = options.rto_initial
        self.srtt: float | None = None
        self.flight = 0
        self.lost: list[int] = []
        """Heap of the TSNs that are to be sent again here; some may have been acknowledged since."""
        self.timed: int | None = None
        """The TSN whose round trip is being measured."""
        self.retransmission_due: float | None = None
        """T3-rtx."""
        self.heartbeat_due: float | None = None
        self.heartbeat_sent: tuple[float, bytes] | None = None
        """When, and with which nonce, as long as it has not been answered."""
        self.last_sent = 0.0
        self.recovery_exit: int | None = None
        """The TSN at which fast recovery ends; None outside of it."""
        self.free_packet = False
        """Whether one packet may go in spite of the window: the first of a fast retransmission (7.2.4)."""
        self.probing = Probing(options)
        """Of the size of packets."""
        self._options = options
        self._rttvar = 0.0
        self._reduced_at: int | None = None
        self.reset_congestion()

    def reset_congestion(self) -> None:
        """Begin anew: a new association, or the peer has restarted."""
        size = self._options.packet_size
        self._initial = min(4 * size, max(2 * size, 4404))
        self.cwnd = self._initial
        self.ssthresh = 1 << 30
        self._partial_bytes_acked = 0
        self.recovery_exit = None

    # ------------------------------------------------------------------ round trip

    def measured(self, seconds: float) -> None:
        """Take a round trip into account (6.3.1)."""
        if self.srtt is None:
            self.srtt, self._rttvar = seconds, seconds / 2
        else:
            self._rttvar += _BETA * (abs(self.srtt - seconds) - self._rttvar)
            self.srtt += _ALPHA * (seconds - self.srtt)
        rto = self.srtt + 4 * self._rttvar
        self.rto = min(max(rto, self._options.rto_least), self._options.rto_most)

    def back_off(self) -> None:
        self.rto = min(2 * self.rto, self._options.rto_most)

    # ------------------------------------------------------------------ congestion

    def burst(self) -> int:
        """Return how many packets with new data go at once: fewer where they are larger."""
        options = self._options
        return max(options.burst * options.packet_size // self.probing.size, min(options.burst, 4))

    def may_send(self) -> bool:
        return self.flight < self.cwnd or self.free_packet

    def acknowledged(self, count: int, *, in_flight_before: int, advanced: bool) -> None:
        """Open the window: ``count`` bytes were acknowledged (7.2.1, 7.2.2).

        Slow start counts a burst's packets for each acknowledgement (L of RFC 3465): there is one for a whole batch.
        """
        if self.recovery_exit is not None or not advanced:
            return
        size = self.probing.size
        fully_used = in_flight_before >= self.cwnd
        if self.cwnd <= self.ssthresh:
            if fully_used:
                self.cwnd += min(count, self.burst() * size)
            return
        self._partial_bytes_acked += count
        if self._partial_bytes_acked >= self.cwnd:
            self._partial_bytes_acked = self._partial_bytes_acked - self.cwnd if fully_used else self.cwnd
            if fully_used:
                self.cwnd += size

    def enter_fast_recovery(self, recovery_exit: int) -> None:
        """Enter fast recovery, unless under way: something is missing that others overtook (7.2.4)."""
        if self.recovery_exit is None:
            self.ssthresh = max(self.cwnd // 2, 4 * self.probing.size)
            self.cwnd = self.ssthresh
            self._partial_bytes_acked = 0
            self.recovery_exit = recovery_exit
            self.free_packet = True

    def congestion_notified(self, tsn: int, newest: int) -> None:
        """A router has met congestion: halve the window, unless that was done since ``tsn`` was sent."""
        if self._reduced_at is None or tsn > self._reduced_at:
            self._reduced_at = newest
            self.ssthresh = max(self.cwnd // 2, 4 * self.probing.size)
            self.cwnd = min(self.cwnd, self.ssthresh)
            self._partial_bytes_acked = 0

    def timed_out(self) -> None:
        """Nothing was acknowledged for the whole time-out (7.2.3, 6.3.3)."""
        self.ssthresh = max(self.cwnd // 2, 4 * self.probing.size)
        self.cwnd = self.probing.size
        self._partial_bytes_acked = 0
        self.recovery_exit = None
        self.timed = None
        self.back_off()

    def decay_idle(self, now: float) -> None:
        """Close the window of a path that was not used: half for each time-out (7.2.1)."""
        idle = now - self.last_sent
        if self.flight or idle < self.rto:
            return
        for _ in range(min(int(idle / self.rto), 32)):
            self.cwnd = max(self.cwnd // 2, self._initial)
        self.last_sent = now

    # ------------------------------------------------------------------ health

    def usable(self) -> bool:
        return self.active and self.confirmed

    def is_lost(self, tsn: int) -> None:
        """Remember to send that TSN again here."""
        heapq.heappush(self.lost, tsn)
