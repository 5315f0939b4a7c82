"""The receiving half of an association: received TSNs, SACKs, reassembly, and order within streams.

A chunk passes three stages. ``Received`` records its TSN: which TSNs have arrived is what a SACK tells (RFC
9260, 3.3.4). ``ByTsn`` or ``ByNumber`` collects fragments until a message is complete: DATA is joined by
consecutive TSNs (6.9), I-DATA by message number and fragment number (RFC 8260, 2.2). ``_waiting`` keeps
complete messages whose predecessors in their stream are missing (6.6). What has passed all three is in
``messages``, until the host takes it.

All four stages count against the receive window, each chunk with at least ``MIN_CHARGE`` bytes: otherwise a
peer that sends one byte per chunk could make us store many times the window.

``on_batch`` is the fast path: while TSNs arrive in order and messages are complete, a chunk costs one pass
through a loop. The first chunk that is anything else goes through ``on_data``.

When to acknowledge (6.2): every second packet at once, a single one within ``sack_delay``; at once, too, when
there are gaps, duplicates or drops, because the peer's fast retransmit counts SACKs (7.2.4).
"""

from __future__ import annotations

from collections.abc import Sequence

from kernel.contracts.errors import RemoteProtocolError
from plugins.protocols.sctp.chunks import BEGINNING, ENDING, IMMEDIATE, UNORDERED, Data, Forward, Sack
from plugins.protocols.sctp.errors import NoUserData
from plugins.protocols.sctp.events import Message
from plugins.protocols.sctp.numbered import Numbered
from plugins.protocols.sctp.options import SctpOptions
from plugins.protocols.sctp.reassembly import MIN_CHARGE, ByNumber, ByTsn, charge
from plugins.protocols.sctp.received import Received
from plugins.protocols.sctp.sequence import MASK16, MASK32, unwrapped

_MAX_DUPLICATES = 50
_PACKETS_PER_SACK = 2
# Linux 6.1 numbers the second fragment 0, which RFC 8260 (2.1) gives to the first one. A message would be put
# together without one of its fragments, so that the association ends instead (docs/decisions/0012-sctp.md).
_LATE_COUNT = "the second fragment of an I-DATA message has number 0, as from Linux and against RFC 8260; set interleaving = false"
_WHOLE = BEGINNING | ENDING


class Receiver:
    """Everything that one side of an association receives.

    Not thread-safe; times are seconds of the host's clock.
    """

    def __init__(self, options: SctpOptions, first_tsn: int, streams: int, *, interleaved: bool) -> None:
        self.received = Received(first_tsn)
        self.interleaved = interleaved
        self.messages: list[Message] = []
        """Complete messages, in the order of delivery, until ``take``."""
        self.invalid_streams: list[int] = []
        """Stream identifiers out of range, of which the peer is to be told (3.3.10.1)."""
        self.sack_due: float | None = None
        """When a SACK is due at the latest; a time in the past means now; None: no SACK is due."""
        self.dropped = 0
        """Chunks that were dropped because the window was full, or because there were too many gaps."""
        self._options = options
        self.streams = streams
        """Inbound streams: how many the peer may use."""
        self.packets = 0
        """Packets with data since the last SACK."""
        self._duplicates: list[int] = []
        self._by_tsn = ByTsn()
        self._by_number = ByNumber()
        self._skipped: dict[tuple[int, bool], int] = {}
        """The last abandoned message of each I-DATA stream: late fragments of it may still arrive, and are
        dropped."""
        self.expected: tuple[dict[int, int], dict[int, int]] = ({}, {})
        """The next SSN or MID of each stream: of ordered messages, and of unordered ones in I-DATA."""
        self._waiting: dict[int, Numbered[Message]] = {}
        self._waiting_bytes = 0
        self._ready_bytes = 0
        self.told_window = options.receive_window
        """The window in the last SACK."""

    # ------------------------------------------------------------------ window

    def window(self) -> int:
        """Return the bytes that are free, which is what a SACK tells the peer (a_rwnd)."""
        return max(0, self._options.receive_window - self._stored())

    def _stored(self) -> int:
        return self._by_tsn.bytes + self._by_number.bytes + self._waiting_bytes + self._ready_bytes

    def take(self, now: float) -> list[Message]:
        """Return and forget the complete messages.

        If at least half of the window has become free since the last SACK, a SACK is due now: a sender that
        had stopped would otherwise learn of it only from its next probe (6.2).
        """
        taken, self.messages = self.messages, []
        self._ready_bytes = 0
        # 6.2 wants few window updates, and names a quarter of the buffer as one possible threshold.
        if self.window() - self.told_window >= self._options.receive_window // 2:
            self.sack_due = now
        return taken

    # ------------------------------------------------------------------ data

    def is_next(self, tsn: int, stream: int, number: int, size: int) -> bool:
        """Whether an ordered message in one chunk is the next one, and nothing else waits.

        And whether its SACK may be delayed, so that it may be delivered on the short way.
        """
        received = self.received
        return (
            tsn == (received.cumulative + 1) & MASK32
            and not (received.has_gaps() or self._skipped or self._waiting or self.messages)
            and stream < self.streams
            and number == self.expected[False].get(stream, 0) & (MASK32 if self.interleaved else MASK16)
            and 0 < size <= self.window()
            and self.packets + 1 < _PACKETS_PER_SACK
            and not self._duplicates
        )

    def delayed_sack(self, now: float) -> float:
        """Return when the SACK for a message that ``is_next`` is due."""
        return now + self._options.sack_delay if self.sack_due is None else self.sack_due

    def plain_sack(self) -> tuple[int, int] | None:
        """Return the cumulative TSN and the window of a SACK that has nothing else; None if it has."""
        if self.received.has_gaps() or self._duplicates:
            return None
        return self.received.cumulative & MASK32, self.window()

    def on_batch(self, batch: Sequence[Data], now: float) -> None:
        """Process the DATA or I-DATA chunks of one packet.

        Raises ``RemoteProtocolError`` for what aborts the association.
        """
        at = 0
        while at < len(batch):
            at = self._take_in_order(batch, at, now)
            if at < len(batch):
                self.on_data(batch[at], now)
                at += 1

    def _take_in_order(self, batch: Sequence[Data], at: int, now: float) -> int:
        """Process chunks while they are in sequence; return the index of the first one that is not."""
        received, interleaved = self.received, self.interleaved
        # With a gap, a chunk may fill it, and late fragments of abandoned messages must be recognised: both
        # are the slow path's.
        if received.has_gaps() or self._skipped:
            return at
        mask = MASK32 if interleaved else MASK16
        tsn, room, taken = received.cumulative, self.window(), 0
        while at < len(batch):
            chunk = batch[at]
            flags, stream, data, size = chunk.flags, chunk.stream, chunk.data, len(chunk.data)
            unordered = bool(flags & UNORDERED)
            # Everything unusual ends the fast path: a wrong TSN, the wrong kind of data, no room, an unknown
            # stream, and a stream in which messages wait for an earlier one. ``on_data`` then treats the
            # chunk by the rules.
            if (
                chunk.tsn != (tsn + 1) & MASK32
                or chunk.interleaved is not interleaved
                or not 0 < size <= room - taken
                or stream >= self.streams
                or stream in self._waiting
            ):
                break
            if flags & _WHOLE != _WHOLE:
                # A later fragment with number 0: ``on_data`` raises the error that names the cause.
                if not flags & BEGINNING and interleaved and not chunk.fsn:
                    break
                self._assemble(tsn + 1, chunk)
                room -= charge(data)
            else:
                if interleaved or not unordered:
                    expected = self.expected[unordered]
                    number = expected.get(stream, 0)
                    if chunk.number != number & mask:
                        break
                    expected[stream] = number + 1
                self.messages.append(Message(stream, data, chunk.protocol, unordered))
                taken += max(size, MIN_CHARGE)
            tsn += 1
            at += 1
            if flags & IMMEDIATE:
                self.sack_due = now
        # Written back once per batch: the loop works on local variables.
        received.cumulative = tsn
        self._ready_bytes += taken
        return at

    def on_data(self, chunk: Data, now: float) -> None:
        """Process one DATA or I-DATA chunk.

        Raises ``RemoteProtocolError`` for what aborts the association.
        """
        if not chunk.data:
            raise NoUserData("DATA without data")
        # RFC 8260, 2.2.3: whichever kind was agreed on, the other one is a violation.
        if chunk.interleaved is not self.interleaved:
            raise RemoteProtocolError(
                "DATA and I-DATA mixed" if self.interleaved else "I-DATA was not agreed on"
            )
        if chunk.interleaved and not chunk.flags & BEGINNING and not chunk.fsn:
            raise RemoteProtocolError(_LATE_COUNT)
        # A TSN is compared with the cumulative one as the nearest integer: serial arithmetic (1.6) in one
        # place.
        tsn = unwrapped(chunk.tsn, self.received.cumulative)
        if self.received.knows(tsn):
            # Duplicates are reported and acknowledged at once: the peer retransmits because a SACK was lost
            # (6.2).
            if len(self._duplicates) < _MAX_DUPLICATES:
                self._duplicates.append(chunk.tsn)
            self.sack_due = now
            return
        # Asked before ``add``, which may close the gap. The SACK that ends the gap goes out at once as well.
        fills_gap = tsn < self.received.highest()
        # A chunk that is dropped must not appear in a SACK, and the SACK goes out at once (6.2).
        if not self._has_room(tsn, len(chunk.data)) or not self.received.add(tsn):
            self.dropped += 1
            self.sack_due = now
            return
        if chunk.flags & IMMEDIATE or self.received.has_gaps() or fills_gap:
            self.sack_due = now
        # The TSN counts as received although the data is dropped: else the peer would retransmit it for ever
        # (6.5).
        if chunk.stream >= self.streams:
            self.invalid_streams.append(chunk.stream)
            return
        self._assemble(tsn, chunk)

    def _has_room(self, tsn: int, size: int) -> bool:
        """Return whether a chunk that is new may be stored (6.2).

        What fills a gap was sent before what is stored already, so that a peer that keeps to the window had
        room for it.  It cannot know that a small chunk counts as ``MIN_CHARGE`` here: twice the window is
        room enough for that, and no peer gets more.
        """
        # May be negative here, unlike in ``window``.
        window = self._options.receive_window - self._stored()
        if window >= size:
            return True
        is_next = tsn == self.received.cumulative + 1 and not self.messages
        if self.received.has_gaps() and tsn < self.received.highest():
            fits = window + self._options.receive_window >= size
            stuck = is_next and not fits
        else:
            fits = is_next
            stuck = is_next and window <= 0
        # No message waits that the host could take to make room: this can never be resolved.
        if stuck:
            raise RemoteProtocolError("incomplete messages fill the receive window")
        return fits

    def packet_done(self, now: float) -> None:
        """Count a packet with data that was processed: every second one is acknowledged at once (6.2)."""
        self.packets += 1
        if self.packets >= _PACKETS_PER_SACK:
            self.sack_due = now
        elif self.sack_due is None:
            self.sack_due = now + self._options.sack_delay

    def sack(self, max_gaps: int) -> Sack:
        """Return the SACK to send now, with at most ``max_gaps`` gap blocks.

        Resets the state of what is due.
        """
        self.sack_due = None
        self.packets = 0
        # Duplicates are reported once (3.3.4).
        duplicates, self._duplicates = tuple(self._duplicates), []
        self.told_window = self.window()
        return Sack(
            cumulative=self.received.cumulative & MASK32,
            window=self.told_window,
            gaps=self.received.gaps(max_gaps),
            duplicates=duplicates,
        )

    def sack_size(self, max_gaps: int) -> int:
        """Return the length in bytes of the chunk that ``sack`` would return."""
        return 16 + 4 * (min(self.received.ranges(), max_gaps) + len(self._duplicates))

    def _assemble(self, tsn: int, chunk: Data) -> None:
        unordered = bool(chunk.flags & UNORDERED)
        number = self._number(chunk, unordered)
        # A late fragment of an abandoned message would start a message that is never completed.
        if self._skipped and number <= self._skipped.get((chunk.stream, unordered), -1):
            return
        if chunk.flags & BEGINNING and chunk.flags & ENDING:
            fragments: list[Data] | None = [chunk]
        elif self.interleaved:
            fragments = self._by_number.add(chunk.stream, unordered, number, chunk)
        else:
            fragments = self._by_tsn.add(tsn, chunk)
        if fragments is None:
            return
        message = Message(
            stream=chunk.stream,
            data=chunk.data if len(fragments) == 1 else b"".join([fragment.data for fragment in fragments]),
            protocol=fragments[0].protocol,
            unordered=unordered,
        )
        self._deliver(message, number)

    def _number(self, chunk: Data, unordered: bool) -> int:
        near = self.expected[unordered].get(chunk.stream, 0)
        return unwrapped(chunk.number, near, MASK32 if self.interleaved else MASK16)

    # ------------------------------------------------------------------ order

    def _deliver(self, message: Message, number: int) -> None:
        expected = self.expected[message.unordered].get(message.stream, 0)
        if message.unordered:
            # The number only helps to unwrap later MIDs; nothing waits for it.
            if self.interleaved:
                self.expected[True][message.stream] = max(expected, number + 1)
            self._ready(message)
            return
        if number > expected:
            self._wait(message, number)
            return
        self._ready(message)
        if number == expected:
            self._deliver_waiting(message.stream, expected + 1)

    def _wait(self, message: Message, number: int) -> None:
        """Keep a message until the ones before it have arrived."""
        waiting = self._waiting.get(message.stream)
        if waiting is None:
            waiting = self._waiting[message.stream] = Numbered()
        # A repeated number under a new TSN is a fault of the peer; the first one counts, as with fragments.
        if number not in waiting.items:
            waiting.add(number, message)
            self._waiting_bytes += charge(message.data)

    def _ready(self, message: Message) -> None:
        self.messages.append(message)
        self._ready_bytes += charge(message.data)

    def _deliver_waiting(self, stream: int, expected: int) -> None:
        """Deliver the waiting messages of a stream that continue at ``expected`` without a gap."""
        waiting = self._waiting.get(stream)
        while waiting is not None and expected in waiting.items:
            message = waiting.remove(expected)
            self._waiting_bytes -= charge(message.data)
            self._ready(message)
            expected += 1
        if waiting is not None and not waiting.items:
            del self._waiting[stream]
        self.expected[False][stream] = expected

    # ------------------------------------------------------------------ streams

    def add_streams(self, count: int) -> bool:
        """Allow the peer more streams (RFC 6525).

        Return whether that is within what was offered in the handshake.
        """
        if self.streams + count > self._options.streams_in:
            return False
        self.streams += count
        return True

    def reset_streams(self, streams: tuple[int, ...]) -> None:
        """Expect SSN or MID 0 next on these streams; no ``streams`` means all (RFC 6525)."""
        if not streams:
            self.expected[False].clear()
            self.expected[True].clear()
            self._skipped.clear()
        # Each stream is looked up: a packet may reset thousands, one by one, while much was skipped.
        for stream in streams:
            for unordered in (False, True):
                self.expected[unordered].pop(stream, None)
                self._skipped.pop((stream, unordered), None)

    # ------------------------------------------------------------------ what the peer has given up

    def on_forward(self, chunk: Forward, now: float) -> None:
        """Process a FORWARD-TSN: stop waiting for chunks that the peer has abandoned (RFC 3758, 3.6.

        RFC 8260, 2.3.1).
        """
        if chunk.interleaved is not self.interleaved:
            raise RemoteProtocolError("FORWARD-TSN and I-FORWARD-TSN mixed")
        cumulative = unwrapped(chunk.cumulative, self.received.cumulative)
        self.sack_due = now
        # An old FORWARD-TSN is only acknowledged again (RFC 3758, 3.6). One that jumps further than gap
        # blocks can express is ignored: it could make us skip everything.
        if cumulative <= self.received.cumulative or cumulative - self.received.cumulative > MASK16:
            return
        # The TSNs first (RFC 3758, 3.6): then fragments of skipped messages, then the order in each stream.
        self.received.advance(cumulative)
        self._by_tsn.forget(cumulative)
        for stream, wire, unordered in chunk.skipped:
            # A stream that does not exist has nothing that waits.
            if stream >= self.streams:
                continue
            near = self.expected[unordered].get(stream, 0)
            number = unwrapped(wire, near, MASK32 if self.interleaved else MASK16)
            if self.interleaved:
                self._by_number.forget(stream, unordered, number)
                # With I-DATA a late fragment may have a TSN above the new cumulative one: its message is
                # known by number only.
                self._skipped[stream, unordered] = max(number, self._skipped.get((stream, unordered), -1))
            if not unordered:
                self._skip(stream, number)

    def _skip(self, stream: int, number: int) -> None:
        waiting = self._waiting.get(stream)
        # Messages that waited for the abandoned one are delivered now, in order.
        for message in waiting.remove_until(number) if waiting is not None else ():
            self._waiting_bytes -= charge(message.data)
            self._ready(message)
        self._deliver_waiting(stream, max(number + 1, self.expected[False].get(stream, 0)))
