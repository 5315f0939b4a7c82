"""A PGM source: the sending side of one transport session (RFC 3208, 5). Sans-I/O.

Data is queued with ``send`` and leaves with ``packets_to_send``, as fast as the rate allows. Packets of
receivers go in with ``receive``. Everything is sent to the group. Nothing is thread-safe; all times are
seconds of the caller's clock.

Transmit window (3.3). Every packet stays in the window after it was sent, and can be repaired until it
leaves: when there are too many packets or bytes, or when it is too old. The trailing edge in every packet
tells receivers what can no longer be repaired.

Rate. Two token buckets count bytes: one for everything, one for repairs and confirmations. Repairs go before
new data (5.1.3), but only within their share of the rate: a receiver on a bad link cannot stop the feed for
all others.

What is sent, in this order: confirmations (NCF) for NAKs, an SPM if one is due (5.1.4 to 5.1.6), repairs
(RDATA), new data (ODATA).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import msgspec

from plugins.protocols.pgm import extensions as ext
from plugins.protocols.pgm import packets
from plugins.protocols.pgm.checksum import checksum_of, ones_sum, sealed
from plugins.protocols.pgm.congestion import Congestion
from plugins.protocols.pgm.extensions import Extensions, Fragment, MalformedPacket, Reset
from plugins.protocols.pgm.options import SourceOptions
from plugins.protocols.pgm.packets import (
    DATA,
    NAK,
    NCF,
    NNAK,
    ODATA,
    RDATA,
    SPM,
    SPMR,
    Ack,
    Data,
    Request,
    SourcePath,
)
from plugins.protocols.pgm.repair_queue import RepairQueue
from plugins.protocols.pgm.request_delay import RequestDelay
from plugins.protocols.pgm.sequence import MASK, after
from plugins.protocols.pgm.source_parity import Parity, SourceParity
from plugins.protocols.pgm.token_bucket import TokenBucket
from plugins.protocols.pgm.transmit_window import AGE_GRAIN, TransmitWindow


class SpmSchedule:
    """When SPMs are due (5.1.4 to 5.1.6): ambient ones while data flows, heartbeats in silence."""

    __slots__ = (
        "_ambient", "_ambient_at", "_answer_from", "_asked", "_most", "first", "heartbeat_at", "interval",
    )  # fmt: skip

    def __init__(self, ambient: float, first: float, most: float) -> None:
        self._ambient = ambient
        self.first = first
        self._most = most
        # Half, since the first heartbeat doubles it before use. IHB_TMR starts at IHB_MIN (5.1.5).
        self.interval = first / 2
        """Seconds from the last heartbeat to the next."""
        # The first SPM is due at once: receivers need one before they may send NAKs (6.2).
        self._ambient_at = self.heartbeat_at = 0.0
        self._asked = False
        # When the next request may be answered.
        self._answer_from = 0.0

    def due(self) -> float:
        """Return when the next SPM is due."""
        return min(self._ambient_at, self.heartbeat_at)

    def at_once(self, now: float) -> None:
        """Make an SPM due at ``now``."""
        # Only the ambient timer moves. The heartbeat interval is not doubled by an SPM that a receiver has
        # caused, so that a storm of requests does not make heartbeats rare.
        self._ambient_at = min(self._ambient_at, now)

    def requested(self, now: float) -> None:
        """Make an SPM due because a receiver has asked for one (SPMR)."""
        self._asked = True
        # Immediately, but at most once per IHB_MIN (13.4): one SPM goes to the whole group, so that it
        # answers all requests that have come meanwhile.
        self.at_once(max(now, self._answer_from))

    def sent_data(self, now: float) -> None:
        """Record that data was sent: start again with the shortest heartbeat interval."""
        self.interval = self.first
        self.heartbeat_at = now + self.first

    def sent_spm(self, now: float) -> None:
        """Record that an SPM was sent."""
        self._ambient_at = now + self._ambient
        # Any SPM answers a request that waits.
        if self._asked:
            self._asked = False
            self._answer_from = now + self.first
        # The two timers are independent (5.1.6): an ambient SPM that falls between two heartbeats counts as
        # neither.
        if now >= self.heartbeat_at:
            self.interval = min(2 * self.interval, self._most)
            self.heartbeat_at = now + self.interval


BURST_SECONDS = 0.002
"""Seconds of the rate that may be sent at once after a pause, or ``MIN_BURST`` if that is more."""
MIN_BURST = 64 * 1024
"""Bytes that may always be sent at once: what one system call takes."""
FINS = 3
"""How often the last packet of a session is sent."""
FRAGMENT_OVERHEAD = 20
"""Bytes of OPT_LENGTH and OPT_FRAGMENT."""
SYN_OVERHEAD = FRAGMENT_OVERHEAD + 4
"""Bytes of those and OPT_SYN."""
CONGESTION_OVERHEAD = 12
"""Bytes of OPT_LENGTH and OPT_PGMCC_DATA, without the address."""
PARITY_OVERHEAD = FRAGMENT_OVERHEAD + 8 + 2
"""Bytes of OPT_LENGTH, OPT_FRAGMENT, OPT_PARITY_GRP and a length."""


class LonePacket(msgspec.Struct):
    """A packet that is sent by itself, and what is to be noted when it was sent (``Source.lone``)."""

    packet: bytes
    number: int
    now: float
    tokens: float
    """What is left of the rate."""
    leaves: bool
    """Whether the oldest packet leaves the window."""
    oldest: int
    """Its bytes."""
    ages: tuple[tuple[int, float], ...]
    """What is added to the ages of the window."""


class SourceStatistics:
    """Counters of a source."""

    def __init__(self) -> None:
        self.packets_out = self.bytes_out = self.repairs = self.naks_in = self.ncfs = self.spms = 0
        self.malformed = self.beyond_repair = self.nnaks_in = self.acks_in = 0


class Source:
    """One transport session.

    ``tsi`` identifies it; ``port`` is the data-destination port; ``path`` and ``group`` are addresses of 4 or
    16 bytes: where receivers send NAKs, and where data goes. A packet has at most ``packet_size`` bytes.
    ``first`` is the first sequence number.
    """

    def __init__(
        self,
        options: SourceOptions,
        tsi: bytes,
        port: int,
        path: bytes,
        group: bytes,
        *,
        packet_size: int = 1472,
        first: int = 0,
    ) -> None:
        self.tsi = tsi
        self.tsdu_size = packet_size - DATA.size - _overhead(options, path)
        """Bytes of data in a packet at most.

        Parity packets are larger, by the options and the length that describe their group.
        """
        self.congestion = Congestion(bytes(len(path))) if options.congestion_control else None
        self.statistics = SourceStatistics()
        self._options = options
        self._port = port
        self._path = path
        self._group = group
        self._own_port = int.from_bytes(tsi[6:], "big")
        # The sum of all header fields that are the same in every plain ODATA packet. A field of several words
        # may be added as one number, because 2**16 is 1 modulo 65,535.
        self._head_sum = self._own_port + port + (ODATA << 8) + int.from_bytes(tsi[:6], "big")
        self.window = TransmitWindow(
            first, options.window_packets, options.window_bytes, options.window_seconds
        )
        burst = max(options.rate * BURST_SECONDS, MIN_BURST)
        self.bucket = TokenBucket(options.rate, burst)
        # 5.1.3 leaves the priority of RDATA and ODATA to the implementation, and warns of both extremes:
        # repairs that always go first can stall new data, new data that always goes first makes losses final.
        self._repair_tokens = TokenBucket(options.rate * options.repair_share, burst * options.repair_share)
        self.spms = SpmSchedule(options.ambient, options.heartbeat_first, options.heartbeat_max)
        self._repairs = RepairQueue(options.repeat_guard)
        self.request_delay = RequestDelay(options.repeat_guard)
        self._queue: deque[tuple[bytes, Extensions]] = deque()
        self.queued = 0
        """Bytes that are queued and not sent."""
        self._parity = SourceParity(options, self.window.get) if options.parity_group else None
        self._spm_number = 0
        self._begun = False
        self._final_options = Extensions()

    @property
    def lead(self) -> int:
        """The sequence number of the last packet sent (leading edge)."""
        return self.window.lead

    @property
    def trail(self) -> int:
        """The sequence number of the oldest packet that can be repaired (trailing edge)."""
        return self.window.trail

    # ------------------------------------------------------------------ data in

    def send(self, units: Sequence[bytes]) -> None:
        """Queue units of data. Each is one packet, or several fragments if it is larger (OPT_FRAGMENT)."""
        if max(map(len, units), default=0) <= self.tsdu_size:
            # The identity of this object is the mark of a packet without options: ``_send_new`` compares with
            # ``is``.
            none = ext.NONE
            self._queue += [(unit, none) for unit in units]
        else:
            for unit in units:
                self._queue += self._fragments(unit)
        self.queued += sum(map(len, units))

    def _fragments(self, unit: bytes) -> list[tuple[bytes, Extensions]]:
        size = len(unit)
        if size <= self.tsdu_size:
            return [(unit, ext.NONE)]
        # Every fragment names the sequence number of the first one (9.2.4). Packets are numbered when they
        # are sent, in the order of the queue and without gaps, so the number is known here already: parity
        # packets reuse the numbers of their group (11.2) and take none.
        size_of_fragment = self.tsdu_size - FRAGMENT_OVERHEAD
        first = after(self.window.lead, len(self._queue) + 1)
        return [
            (unit[offset : offset + size_of_fragment], Extensions(fragment=Fragment(first, offset, size)))
            for offset in range(0, size, size_of_fragment)
        ]

    def announce(self, now: float) -> None:
        """Send SPMs now and at growing intervals, as after data: a receiver is about to listen."""
        self.spms.sent_data(now)
        self.spms.at_once(now)

    def close(self, reset: Reset | None = None) -> list[bytes]:
        """Return the last packets of the session: OPT_FIN, or OPT_RST if it was given up."""
        self._final_options = Extensions(fin=reset is None, reset=reset)
        # Several times, since nobody can request the last packet of a session.
        return [self._spm() for _ in range(FINS)]

    # ------------------------------------------------------------------ what receivers say

    def receive(self, packet: bytes, now: float) -> None:
        """Process a packet from the network.

        Malformed ones are counted; those of other sessions are ignored.
        """
        try:
            # Everybody's packets arrive on this port of the group. Those of other sessions are not malformed,
            # and are not worth decoding.
            if len(packet) < packets.HEADER.size or packets.tsi_of(packet) != self.tsi:
                return
            decoded = packets.decode(packet)
        except MalformedPacket:
            self.statistics.malformed += 1
            return
        if isinstance(decoded, Request) and decoded.kind == NAK:
            self._on_nak(decoded, now)
        elif isinstance(decoded, Ack):
            self._on_ack(decoded, now)
        elif decoded.kind == NNAK:
            self.statistics.nnaks_in += 1
        elif decoded.kind == SPMR:
            self.spms.requested(now)

    def _on_ack(self, ack: Ack, now: float) -> None:
        self.statistics.acks_in += 1
        feedback = ack.extensions.feedback
        if self.congestion is not None and feedback is not None:
            # The report goes first: it may elect this receiver, whose acknowledgement then moves the window.
            self.congestion.on_feedback(feedback, now)
            self.congestion.on_ack(ack.highest, ack.bitmap, feedback.address, now)

    def _on_nak(self, nak: Request, now: float) -> None:
        self.statistics.naks_in += 1
        if self.congestion is not None and nak.extensions.feedback is not None:
            self.congestion.on_feedback(nak.extensions.feedback, now)
        if nak.parity:
            # A parity NAK asks for a count of packets of a group, not for numbers (11.3.1). It never becomes
            # a selective repair: the receiver would not know which of its losses is meant.
            known = [
                number for number in nak.numbers if self._parity is not None and self._parity.ask(number, now)
            ]
            if len(known) < len(nak.numbers):
                self._beyond_repair(len(nak.numbers) - len(known), now)
            return
        # A list may repeat numbers, and the header's number too. Each is confirmed and repaired once.
        here = [number for number in dict.fromkeys(nak.numbers) if self.window.get(number) is not None]
        if len(here) < len(nak.numbers):
            self._beyond_repair(len(nak.numbers) - len(here), now)
        if here:
            # The last one was found missing last, mostly by the packet behind it.
            if not self._repairs.was_asked(here[-1]):
                self._repairs.guard = self.request_delay.measured(here[-1], now)
            self._repairs.ask(here, now)

    def _beyond_repair(self, count: int, now: float) -> None:
        """Handle a NAK for packets that have left the window: an SPM tells receivers the trailing edge."""
        self.statistics.beyond_repair += count
        self.spms.at_once(now)

    # ------------------------------------------------------------------ packets out

    def packets_to_send(self, now: float) -> list[bytes]:
        """Return the packets to send now: confirmations, SPMs, repairs, new data, in this order (5.1.3)."""
        # First, because the trailing edge goes into every packet that follows: no packet may announce as
        # repairable what the next NAK would not get.
        self.window.expire(now)
        self.bucket.fill(now)
        self._repair_tokens.fill(now)
        out: list[bytes] = []
        # The order is that of 5.1.3: NCFs strictly first, then SPMs, then data. NCFs suppress NAKs of other
        # receivers only if they arrive before their back-off ends.
        self._confirm(out, now)
        if self.spms.due() <= now:
            out.append(self._spm())
            self.spms.sent_spm(now)
            # An SPM shows that its leading edge is missing, as a packet behind that would.
            self.request_delay.sent.append((after(self.window.lead), now))
            # An SPM counts against the rate but does not wait for tokens: 5.1.3 puts it before all data, and
            # its own timers bound it.
            self.bucket.tokens -= len(out[-1])
        # Both are empty if nothing is to be repaired.
        if self._repairs or self._parity:
            self._repair(out, now)
        if self.congestion is not None:
            self.congestion.handle_timeout(now)
        if self._queue and self.bucket.tokens > 0:
            self._send_new(out, now)
        self.statistics.packets_out += len(out)
        self.statistics.bytes_out += sum(map(len, out))
        return out

    def _confirm(self, out: list[bytes], now: float) -> None:
        """Send confirmations, within the repairs' share of the rate: a storm of NAKs must not take more."""
        while self._repair_tokens.tokens > 0:
            numbers = self._repairs.confirmation(now)
            if numbers is None:
                break
            self._spend(out, self._ncf(numbers))
        # Parity requests cannot share an NCF with selective ones: the header's OPT_PARITY bit says how all
        # the numbers of the packet are to be read (11.2).
        if self._parity is not None and self._parity.confirmations and self._repair_tokens.tokens > 0:
            self._spend(out, self._ncf(self._parity.confirmed(), parity=True))

    def _spend(self, out: list[bytes], packet: bytes) -> None:
        """Add a packet that counts against the repairs' share."""
        out.append(packet)
        self._repair_tokens.tokens -= len(packet)
        self.bucket.tokens -= len(packet)

    def _repair(self, out: list[bytes], now: float) -> None:
        # Both buckets must have tokens. They may go below zero by one packet, so that no packet waits for an
        # exact fit.
        while self._repair_tokens.tokens > 0 and self.bucket.tokens > 0:
            repair = self._next_repair(now)
            if repair is None:
                break
            self._spend(out, repair)
            self.statistics.repairs += 1
            self.spms.sent_data(now)

    def _next_repair(self, now: float) -> bytes | None:
        # A number may have left the window between the NAK and now. It is skipped; the receiver learns that
        # from the trailing edge of any packet.
        while (number := self._repairs.next(now)) is not None:
            packet = self.window.get(number)
            if packet is not None:
                return self._as_repair(packet)
        # Parity comes after selective repairs. Selective ones are for incomplete groups, or for receivers
        # that joined within one, which parity cannot help.
        parity = self._parity.next() if self._parity is not None else None
        return self._parity_packet(parity, RDATA) if parity is not None else None

    def _parity_packet(self, parity: Parity, kind: int) -> bytes:
        return packets.encode(
            Data(
                kind=kind,
                tsi=self.tsi,
                port=self._port,
                extensions=parity.extensions,
                number=parity.number,
                trail=self.window.trail,
                data=parity.data,
                parity=True,
                variable=parity.variable,
            )
        )

    def _as_repair(self, packet: bytes) -> bytes:
        """Return the RDATA packet for an ODATA packet, with the current trailing edge (8.2)."""
        # RDATA differs from ODATA in type, checksum and trailing edge only (8.2).
        head = packet[:4] + bytes((RDATA, packet[5], 0, 0)) + packet[8:20]
        return sealed(head + self.window.trail.to_bytes(4, "big") + packet[24:])

    def _send_new(self, out: list[bytes], now: float) -> None:
        """Number and send new data."""
        window, queue, pack = self.window, self._queue, DATA.pack
        own_port, port, identifier = self._own_port, self._port, self.tsi[:6]
        tokens, parity, congestion = self.bucket.tokens, self._parity, self.congestion
        # One time stamp for the whole batch: it is within AGE_GRAIN anyway.
        window.stamp(now)
        # Locals and one loop: this is the hot path of a source. ``tokens`` may become negative by one packet;
        # the bucket then waits until the debt is paid.
        while queue and tokens > 0 and (congestion is None or congestion.may_send()):
            tsdu, extensions = queue.popleft()
            size = len(tsdu)
            self.queued -= size
            number, trail = (window.lead + 1) & MASK, window.trail
            if congestion is not None:
                said = congestion.sent(number, now)
                # A packet with OPT_PGMCC_DATA never takes the fast path below: the acker and the time stamp
                # are in every ODATA packet (PGMCC, 2.1.1).
                extensions = Extensions(fragment=extensions.fragment, congestion=said)
            if extensions is ext.NONE and self._begun:
                # The header's sum is known except for size, number and trail: only the data is summed per
                # packet.
                checksum = checksum_of(self._head_sum + size + number + trail + ones_sum(tsdu))
                head = pack(own_port, port, ODATA, 0, checksum, identifier, size, number, trail)
                packet = head + tsdu
            else:
                packet = self._special(tsdu, extensions, number, trail)
            # The finished packet is kept, not the data: a repair differs from it in a few header bytes only.
            window.add(packet)
            tokens -= len(packet)
            out.append(packet)
            # The last packet of a group: its parity follows at once.
            if parity is not None and number & parity.mask == parity.mask:
                unasked = [self._parity_packet(made, ODATA) for made in parity.at_end(number)]
                tokens -= sum(map(len, unasked))
                out += unasked
        self.bucket.tokens = tokens
        self.request_delay.sent.append((window.lead, now))
        self.spms.sent_data(now)

    def lone(self, tsdu: bytes, now: float) -> LonePacket | None:
        """Return the packet that ``packets_to_send`` would return for this unit alone.

        None: it has to be queued.  Changes nothing: the caller notes the packet when it was sent.  Old
        packets leave the window, and SPMs are sent, when ``packets_to_send`` is called at its deadline.
        """
        window, size = self.window, len(tsdu)
        if (
            not self._begun
            or self._queue
            or not self._repairs.is_idle()
            or self._parity is not None
            or self.congestion is not None
            or size > self.tsdu_size
        ):
            return None
        tokens, leaves = self.bucket.at_time(now), window.leaves_for(size + DATA.size)
        if tokens <= 0 or leaves > 1:
            return None
        number, trail = (window.lead + 1) & MASK, window.trail
        checksum = checksum_of(self._head_sum + size + number + trail + ones_sum(tsdu))
        head = DATA.pack(self._own_port, self._port, ODATA, 0, checksum, self.tsi[:6], size, number, trail)
        return LonePacket(
            packet=head + tsdu,
            number=number,
            now=now,
            tokens=tokens - size - DATA.size,
            leaves=leaves == 1,
            oldest=len(window.packets[trail]) if leaves else 0,
            ages=() if window.ages and now - window.ages[-1][1] <= AGE_GRAIN else ((number, now),),
        )

    def _special(self, tsdu: bytes, extensions: Extensions, number: int, trail: int) -> bytes:
        """Return a packet with options: a fragment, or the first of the session (OPT_SYN, 9.6)."""
        if not self._begun:
            # Set even when OPT_SYN does not fit: 9.6.2 makes it optional, and it belongs to the first ODATA
            # packet only. RDATA of this packet repeats it, because the stored packet is copied.
            self._begun = True
            if len(tsdu) + SYN_OVERHEAD <= self.tsdu_size:
                extensions = msgspec.structs.replace(extensions, syn=True)
        return packets.encode(
            Data(
                kind=ODATA,
                tsi=self.tsi,
                port=self._port,
                extensions=extensions,
                number=number,
                trail=trail,
                data=tsdu,
            )
        )

    def _ncf(self, numbers: tuple[int, ...], *, parity: bool = False) -> bytes:
        self.statistics.ncfs += 1
        return packets.encode(
            Request(
                kind=NCF,
                tsi=self.tsi,
                port=self._port,
                numbers=numbers,
                source=self._path,
                group=self._group,
                parity=parity,
            )
        )

    def _spm(self) -> bytes:
        self.statistics.spms += 1
        window = self.window
        extensions = self._final_options
        # An SPM after the end has OPT_FIN or OPT_RST in place of the options for joining: 9.7 and 9.8 require
        # them in every SPM from then on, and nobody should join a session that ends.
        if not extensions.reset and not extensions.fin:
            join = window.trail if self._options.late_join else None
            parity = self._parity.parameters if self._parity is not None else None
            extensions = Extensions(join=join, parity=parity)
        spm = SourcePath(
            kind=SPM,
            tsi=self.tsi,
            port=self._port,
            extensions=extensions,
            number=self._spm_number,
            trail=window.trail,
            lead=window.lead,
            path=self._path,
        )
        # SPMs are numbered apart from data, so that receivers discard those that were overtaken (6.2).
        self._spm_number = after(self._spm_number)
        return packets.encode(spm)

    # ------------------------------------------------------------------ time

    def next_deadline(self) -> float:
        """Return when ``packets_to_send`` will have something to send."""
        due = self.spms.due()
        confirm_at = self._repairs.confirm_at()
        if confirm_at < due:
            due = min(due, max(confirm_at, self._repair_tokens.ready_at()))
        if self._parity is not None and self._parity.confirmations:
            due = min(due, self._repair_tokens.ready_at())
        # Repairs need tokens in both buckets, so the later of the two times counts.
        if self._repairs or self._parity:
            due = min(due, max(self.bucket.ready_at(), self._repair_tokens.ready_at()))
        congestion = self.congestion
        # When the congestion window is closed, tokens do not help: an acknowledgement or the timeout of
        # ``congestion`` opens it.
        if self._queue and (congestion is None or congestion.may_send()):
            due = min(due, self.bucket.ready_at())
        waits_until = congestion.next_deadline() if congestion is not None else None
        return due if waits_until is None else min(due, waits_until)


def _overhead(options: SourceOptions, path: bytes) -> int:
    """Return the bytes of options in every data packet, or of the parity of its group."""
    # With parity the data packets have no options of their own. But a parity packet is as long as the longest
    # packet of its group, plus its options and the encoded length (11.2), and must fit into a packet as well.
    if options.parity_group:
        return PARITY_OVERHEAD
    return CONGESTION_OVERHEAD + len(path) if options.congestion_control else 0
