"""A path: one address of the peer.

It has a round-trip time, a congestion window and a state (RFC 9260, 6.3, 7.2, 8.2).
"""

from __future__ import annotations

import heapq

from plugins.protocols.sctp.options import SctpOptions
from plugins.protocols.sctp.probing import Probing

_ALPHA, _BETA = 1 / 8, 1 / 4


class Path:
    """One address of the peer. Windows and flight sizes are bytes of user data, times are seconds."""

    def __init__(self, address: bytes, options: SctpOptions, *, confirmed: bool) -> None:
        self.address = address
        self.confirmed = confirmed
        """Whether the address was verified to be the peer's; data is sent to such addresses only (5.4)."""
        self.active = True
        self.errors = 0
        self.rto = options.rto_initial
        self.srtt: float | None = None
        self.flight = 0
        self.lost: list[int] = []
        """Heap of the TSNs to retransmit on this path. Some may have been acknowledged since."""
        self.timed: int | None = None
        """The TSN whose round-trip time is being measured; None: none is."""
        self.retransmission_due: float | None = None
        """When T3-rtx expires; None: it is not running."""
        self.heartbeat_due: float | None = None
        self.heartbeat_sent: tuple[float, bytes] | None = None
        """Time and nonce of a heartbeat that is not answered yet."""
        self.last_sent = 0.0
        self.recovery_exit: int | None = None
        """The TSN at which fast recovery ends (the exit point of 7.2.4, step 6).

        None outside of fast recovery.
        """
        self.free_packet = False
        """Whether the next packet ignores ``cwnd``: the first one of a fast retransmit (7.2.4, step 3)."""
        self.probing = Probing(options)
        """The search for the largest packet that the path carries."""
        self._options = options
        self.rttvar = 0.0
        """The variation of round-trip times."""
        self._reduced_at: int | None = None
        self._decayed_at = 0.0
        self.reset_congestion()

    def reset_congestion(self) -> None:
        """Reset the congestion state, for a new association or after the peer's restart."""
        size = self._options.packet_size
        # 7.2.1, with the value for IPv4; that for IPv6 is 60 bytes smaller.
        self.cwnd = min(4 * size, max(2 * size, 4404))
        # Arbitrarily high (7.2.1): slow start goes on until the first loss.
        self.ssthresh = 1 << 30
        self.partial_bytes_acked = 0
        """Bytes that were acknowledged in congestion avoidance since the last growth (7.2.2)."""
        self.recovery_exit = None

    # ------------------------------------------------------------------ round trip

    def measured(self, seconds: float) -> None:
        """Update SRTT, RTTVAR and RTO with a measured round-trip time (6.3.1)."""
        self.srtt, self.rttvar, self.rto = self.after(seconds)

    def after(self, seconds: float) -> tuple[float, float, float]:
        """Return what SRTT, RTTVAR and RTO are after a measured round-trip time (6.3.1)."""
        if self.srtt is None:
            srtt, rttvar = seconds, seconds / 2
        else:
            # The variation needs the old mean (6.3.1, C3).
            rttvar = self.rttvar + _BETA * (abs(self.srtt - seconds) - self.rttvar)
            srtt = self.srtt + _ALPHA * (seconds - self.srtt)
        # RTO.Min and RTO.Max (6.3.1, C6 and C7).
        return srtt, rttvar, min(max(srtt + 4 * rttvar, self._options.rto_min), self._options.rto_max)

    def back_off(self) -> None:
        self.rto = min(2 * self.rto, self._options.rto_max)

    # ------------------------------------------------------------------ congestion

    def burst(self) -> int:
        """Return how many packets with new data may go at once (Max.Burst.

        6.1, rule D): fewer where they are larger.
        """
        options = self._options
        return max(options.burst * options.packet_size // self.probing.size, min(options.burst, 4))

    def may_send(self) -> bool:
        # 6.1, rule B: ``cwnd`` may be exceeded by less than one packet.
        return self.flight < self.cwnd or self.free_packet

    def acknowledged(self, count: int, *, in_flight_before: int, advanced: bool) -> None:
        """Grow ``cwnd`` after ``count`` bytes were acknowledged (7.2.1, 7.2.2).

        Slow start adds up to a burst per SACK (L = burst; RFC 3465), where the RFC recommends L = 1 for peers
        that acknowledge every second packet: our receiver reads many packets at once and sends one SACK for
        all.
        """
        # No growth in fast recovery, nor for SACKs that do not advance the cumulative TSN (7.2.1).
        if self.recovery_exit is not None or not advanced:
            return
        size = self.probing.size
        # A window that was not used says nothing about the network, and must not grow (7.2.1).
        fully_used = in_flight_before >= self.cwnd
        if self.cwnd <= self.ssthresh:
            if fully_used:
                self.cwnd += min(count, self.burst() * size)
            return
        self.partial_bytes_acked += count
        # Congestion avoidance: one packet for each window of acknowledged bytes (7.2.2).
        if self.partial_bytes_acked >= self.cwnd:
            # Where the window was not used, the count waits at one window: it must not save up growth
            # (7.2.2).
            self.partial_bytes_acked = self.partial_bytes_acked - self.cwnd if fully_used else self.cwnd
            if fully_used:
                self.cwnd += size

    def counted(self, count: int) -> int:
        """Return what ``acknowledged`` makes of ``partial_bytes_acked`` if the window was not used."""
        if self.cwnd <= self.ssthresh:
            return self.partial_bytes_acked
        return min(self.partial_bytes_acked + count, self.cwnd)

    def enter_fast_recovery(self, recovery_exit: int) -> None:
        """Halve the window and enter fast recovery, unless already in it (7.2.3, 7.2.4)."""
        if self.recovery_exit is None:
            self.ssthresh = max(self.cwnd // 2, 4 * self.probing.size)
            self.cwnd = self.ssthresh
            self.partial_bytes_acked = 0
            self.recovery_exit = recovery_exit
            self.free_packet = True

    def congestion_notified(self, tsn: int, newest: int) -> None:
        """Halve the window after an ECN echo, once per window of data (RFC 4960, appendix A)."""
        # A window of packets is marked at once; they are one event of congestion.
        if self._reduced_at is None or tsn > self._reduced_at:
            self._reduced_at = newest
            self.ssthresh = max(self.cwnd // 2, 4 * self.probing.size)
            # ``ssthresh`` has a minimum of four packets, to which a smaller window must not be raised.
            self.cwnd = min(self.cwnd, self.ssthresh)
            self.partial_bytes_acked = 0

    def timed_out(self) -> None:
        """Set ``cwnd`` to one packet and double the RTO: T3-rtx has expired (7.2.3, 6.3.3)."""
        self.ssthresh = max(self.cwnd // 2, 4 * self.probing.size)
        self.cwnd = self.probing.size
        self.partial_bytes_acked = 0
        self.recovery_exit = None
        # A measurement in progress would include the timeout.
        self.timed = None
        self.back_off()

    def decay_idle(self, now: float) -> None:
        """Halve the window once per RTO in which the path was idle, down to four packets (7.2.1)."""
        # Without data so far there is no pause.
        if self.flight or not self.last_sent:
            return
        idle = now - max(self.last_sent, self._decayed_at)
        floor = 4 * self.probing.size
        # A window below four packets stays as it is: it is the initial one, or began anew with one packet
        # after a timeout (7.2.1). The formula ``max(cwnd / 2, 4 * PMDCS)``, taken literally, would open it
        # without an acknowledgement.
        if idle < self.rto or self.cwnd <= floor:
            return
        # Before the first adjustment of a pause only (7.2.1): slow start then returns quickly to the window
        # that was known to be good.
        if self.last_sent > self._decayed_at:
            self.ssthresh = self.cwnd
            self.partial_bytes_acked = 0
        # 32 halvings make any window small; a long pause must not cost a long loop.
        for _ in range(min(int(idle / self.rto), 32)):
            self.cwnd = max(self.cwnd // 2, floor)
        self._decayed_at = now

    # ------------------------------------------------------------------ health

    def usable(self) -> bool:
        return self.active and self.confirmed

    def is_lost(self, tsn: int) -> None:
        """Queue a TSN for retransmission on this path."""
        heapq.heappush(self.lost, tsn)
