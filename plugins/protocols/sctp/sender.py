"""The sending half of an association: fragments, and what goes into a packet (RFC 9260, 6.1, 6.9).

The order within a packet is that of rule C of section 6.1: retransmissions first, then new data in the order
of the stream scheduler (RFC 8260, 3). New data goes only to the primary path; retransmissions go wherever
their bundle was assigned when it was lost.

Two windows limit new data. The congestion window belongs to a path (``Path.cwnd``); it may be exceeded by
less than one packet (6.1, rule B), so that the check is "flight < cwnd" before a packet and not "flight +
size <= cwnd". The receive window belongs to the peer (``peer_window``); it is never exceeded but by one
probe, when nothing else is in flight (6.1, rule A).

``peer_window`` is what the last SACK said. The receiver computes it without the data that is still in flight,
so that ``flight + size`` is compared with it (6.2.1).
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Sequence

from kernel.contracts.errors import LocalProtocolError
from plugins.protocols.sctp.bundle import Bundle
from plugins.protocols.sctp.chunks import BEGINNING, DATA, ENDING, I_DATA, IMMEDIATE, UNORDERED, Sack, Type
from plugins.protocols.sctp.options import SctpOptions
from plugins.protocols.sctp.outstanding import Outstanding
from plugins.protocols.sctp.packets import HEADER
from plugins.protocols.sctp.path import Path
from plugins.protocols.sctp.schedule import Outgoing, Schedule, Terms
from plugins.protocols.sctp.sequence import MASK16, MASK32, unwrapped

_DATA, _I_DATA = int(Type.DATA), int(Type.I_DATA)
_pack_data, _pack_i_data = DATA.pack, I_DATA.pack
_FEW = 4
"""Packets that may be under way when a message is sent on the short way."""
_MIN_FRAGMENT = 64
"""Bytes of user data below which no message is fragmented to fill the rest of a packet."""


class Sender:
    """Everything that one side of an association sends.

    Not thread-safe; all times are seconds of the host's clock.
    """

    def __init__(self, options: SctpOptions, first_tsn: int, paths: list[Path]) -> None:
        self.outstanding = Outstanding(first_tsn, paths)
        self.schedule = Schedule(options.schedule)
        self.streams = options.streams_out
        """Outbound streams that may be used."""
        self.peer_window = 0
        """The peer's receive window in bytes, as its last SACK told it: in-flight data is not subtracted."""
        self.interleaved = False
        self.immediate_acks = False
        """Whether SACKs are wanted at once, because the association is shutting down (RFC 7053)."""
        self.paused: frozenset[int] = frozenset()
        """Streams that are being reset: their new messages wait until ``resume``."""
        self._paused_messages: list[Outgoing] = []
        self._probe: Bundle | None = None
        """The zero window probe: a bundle that was sent although the peer's window was too small for it (6.1,
        rule A)."""
        self._options = options
        self.numbers: tuple[dict[int, int], dict[int, int]] = ({}, {})
        """The next SSN or MID of each stream: of ordered messages, and of unordered ones in I-DATA."""

    def sends_at_once(self, size: int, path: Path, now: float) -> bool:
        """Whether a message of ``size`` bytes would leave at once, in one chunk and before all others."""
        outstanding = self.outstanding
        return (
            self.schedule.is_empty()
            and not (path.lost or self.paused or self.immediate_acks or outstanding.forward_due)
            # What else is on its way was sent by itself, too: the windows are hardly used.
            and len(outstanding.bundles) < _FEW
            and path.flight < path.cwnd
            and outstanding.flight + size <= self.peer_window
            and 0 < size <= self._largest(path)
            # Else the window of a path that was idle shrinks first (7.2.1).
            and now - path.last_sent < path.rto
        )

    def acknowledges_the_only(self, cumulative: int, window: int) -> Bundle | None:
        """Return the only bundle that is under way, if a SACK without gap blocks acknowledges it.

        And if nothing else follows from that SACK but a measured round trip.
        """
        outstanding, probed = self.outstanding, self._probe is not None
        if len(outstanding.bundles) != 1 or outstanding.has_gaps() or probed or window <= 0:
            return None
        bundle, last = outstanding.bundles[0], outstanding.next_tsn - 1
        path = bundle.path
        simple = (
            unwrapped(cumulative, outstanding.cumulative) == bundle.last == last
            and len(bundle.messages) == 1
            and bundle.in_flight
            and not bundle.abandoned
            and not outstanding.abandoned_count
            and path.recovery_exit is None
            # A window that was used grows (7.2.1, 7.2.2).
            and path.flight < path.cwnd
            and not path.lost
        )
        return bundle if simple else None

    def agree(self, *, streams: int, window: int, interleaved: bool, may_forward: bool) -> None:
        """Apply what the handshake negotiated.

        Messages on streams that the peer does not allow are abandoned.
        """
        self.streams = min(self.streams, streams)
        self.peer_window = window
        self.interleaved = self.schedule.interleaved = self.outstanding.interleaved = interleaved
        self.outstanding.may_forward = may_forward
        # The host may queue messages before the handshake is complete, and so before it is known how many
        # streams the peer allows.
        for message in self.schedule.waiting():
            if message.stream >= self.streams:
                self.outstanding.abandon(message)

    def send_many(self, stream: int, bodies: Sequence[bytes], protocol: int, terms: Terms) -> list[Outgoing]:
        """Queue messages on one stream.

        Raises ``LocalProtocolError`` for a stream that does not exist or an empty body.
        """
        if not 0 <= stream < self.streams:
            raise LocalProtocolError(
                f"no stream {stream}: this association has streams 0 to {self.streams - 1}"
            )
        if not all(bodies):
            raise LocalProtocolError("an SCTP message has at least one byte")
        messages = [Outgoing(stream, data, protocol, terms) for data in bodies]
        if terms.priority is not None:
            self._make_room(terms.priority, sum(map(len, bodies)))
        # Messages of a stream that is being reset must not get numbers before the reset is answered (RFC
        # 6525).
        if stream in self.paused:
            self._paused_messages += messages
        else:
            self.schedule.push(messages, stream)
        return messages

    def resume(self, *, reset: bool) -> None:
        """Resume the paused streams, with SSN 0 if they were ``reset``."""
        if reset:
            for stream in self.paused:
                for numbers in self.numbers:
                    # Both numbers of a stream begin at 0 again: of ordered and of unordered messages (RFC
                    # 8260, 2.3.2).
                    numbers.pop(stream, None)
        self.paused = frozenset()
        messages, self._paused_messages = self._paused_messages, []
        for message in messages:
            self.schedule.push((message,), message.stream)

    def has_unacknowledged(self, streams: Collection[int]) -> bool:
        """Whether anything of these streams is not acknowledged.

        An abandoned message counts until the peer has acknowledged that: its number is in a FORWARD-TSN, and
        must not be used again before.
        """
        # What is outstanding is walked once for all of them: this is asked with each packet, and the peer may
        # have named the streams.
        return any(map(self.schedule.has_unsent, streams)) or self.outstanding.has_unacknowledged(streams)

    def buffered(self) -> int:
        """Return the bytes of user data that are not sent, or sent and not acknowledged."""
        return (
            self.schedule.bytes
            + self.outstanding.bytes
            + sum(len(each.data) for each in self._paused_messages)
        )

    def is_empty(self) -> bool:
        """Whether nothing is queued or outstanding."""
        return not self._paused_messages and self.schedule.current() is None and not self.outstanding.bundles

    def _make_room(self, priority: int, size: int) -> None:
        """Abandon messages of lower priority, the lowest first, until ``size`` bytes fit (RFC 7496, 3.2)."""
        excess = self.buffered() + size - self._options.send_buffer
        if excess <= 0:
            return
        # By identity: a message of several fragments is in several bundles.
        under_way = {
            id(message): message for bundle in self.outstanding.bundles for message in bundle.messages
        }
        under_way.update((id(message), message) for message in self.schedule.waiting())
        lesser = [message for message in under_way.values() if (message.terms.priority or 0) > priority]
        for message in sorted(lesser, key=lambda message: -(message.terms.priority or 0)):
            if excess <= 0:
                break
            if self.outstanding.abandon(message):
                excess -= len(message.data)

    def on_sack(self, sack: Sack, now: float, *, names_gaps: bool = True) -> bool:
        """Process a SACK; return whether it acknowledged anything new. Raises ``RemoteProtocolError``."""
        # Asked before the SACK is processed, which moves ``cumulative``. The window of an old SACK is not the
        # current one (6.2.1, D i).
        overtaken = unwrapped(sack.cumulative, self.outstanding.cumulative) < self.outstanding.cumulative
        progress = self.outstanding.on_sack(sack, now, names_gaps=names_gaps)
        if not overtaken:
            self.peer_window = sack.window
            probe, self._probe = self._probe, None
            if probe is not None and probe.in_flight:
                # The probe was dropped for lack of room. If there is room now, do not wait for T3-rtx.
                if probe.size <= sack.window:
                    self.outstanding.mark_lost(probe, probe.path, now)
                else:
                    self._probe = probe
            if self.is_refused():
                for path in self.outstanding.paths:
                    path.errors = 0
                    # The probe arrived, however large its packet: this is no sign of a too small path MTU.
                    path.probing.progressed()
        return progress

    def is_refused(self) -> bool:
        """Whether the peer has no room for what it lacks.

        Such a peer is alive, and retransmissions are no errors (6.1, rule A).
        """
        bundles = self.outstanding.bundles
        # The first bundle is what the peer lacks most: with it, the cumulative TSN moves.
        return self.peer_window <= 0 or (bool(bundles) and bundles[0].size > self.peer_window)

    # ------------------------------------------------------------------ filling packets

    def fill(self, path: Path, room: int, now: float, *, fresh: bool) -> list[bytes]:
        """Return the parts of chunks for the next packet of a path, ``room`` bytes at most.

        Without ``fresh``, retransmissions only.
        """
        taken = self._fill_again(path, room, now) if path.lost else []
        # Lost chunks first (6.1, rule C), and no new data on a path that still has any.
        if fresh and self.schedule.current() is not None and not path.lost and path.flight < path.cwnd:
            taken += self._fill_fresh(path, room - sum(map(len, taken)), now, alone=not taken)
        # The exception of 7.2.4, step 3, is for a single packet.
        if taken:
            path.free_packet = False
        return taken

    def _fill_again(self, path: Path, room: int, now: float) -> list[bytes]:
        """Return the parts of lost chunks that fit into ``room`` bytes."""
        taken: list[bytes] = []
        bundles = self.outstanding.bundles
        while path.lost and path.may_send():
            # The heap may have TSNs that were acknowledged, abandoned or assigned to another path since: they
            # are skipped here, which is cheaper than to remove them when that happens.
            bundle = bundles.find(path.lost[0])
            if bundle is not None and bundle.path is path and bundle.awaits_retransmission():
                fitting = bundle.fitting(room)
                if not fitting and (taken or room < path.probing.size - HEADER.size & ~3):
                    break
                # If the path MTU has shrunk since, IP must fragment the packet: a chunk's TSN fixes its size.
                bundles.cut(bundle.first + max(fitting, 1))
                self.outstanding.repeat(bundle, now)
                taken += bundle.parts
                room -= bundle.length
            heapq.heappop(path.lost)
        return taken

    def _fill_fresh(self, path: Path, room: int, now: float, *, alone: bool) -> list[bytes]:
        """Return the parts of new chunks for one packet. ``alone``: the packet has no other chunks."""
        outstanding, schedule = self.outstanding, self.schedule
        parts: list[bytes] = []
        messages: list[Outgoing] = []
        # ``space`` is what is left for the user data of the next chunk, after its header.
        begun = space = room - (I_DATA.size if self.interleaved else DATA.size)
        largest = self._largest(path)
        tsn, flight, limited = outstanding.next_tsn, outstanding.flight, False
        most = tsn + outstanding.room()
        while tsn < most and (message := schedule.current()) is not None:
            terms = message.terms
            # The lifetime is checked once more when a TSN would be assigned: before that a message costs
            # nothing to abandon.
            if terms.expires is not None and now >= terms.expires:
                if messages:
                    # Abandoning may use the TSN that the next chunk of this packet would have.
                    break
                if outstanding.abandon(message):
                    # Abandoning may have used a TSN.
                    tsn, flight = outstanding.next_tsn, outstanding.flight
                    continue
            size = len(message.data) - message.offset
            # Chunks are padded to four bytes: the padding has to fit, too.
            if size > largest or size + (-size & 3) > space:
                size = self._part(size, space, largest, alone=alone and not messages)
            if not size:
                break
            if flight + size > self.peer_window and (
                flight or (self.peer_window <= 0 and outstanding.bundles)
            ):
                # A closed receive window is probed with one chunk when nothing is in flight (6.1, rule A).
                break
            space -= self._chunk(message, size, tsn, parts)
            messages.append(message)
            tsn += 1
            flight += size
            limited = limited or terms.is_limited()
            schedule.sent(message, size)
        if messages:
            size = flight - outstanding.flight
            bundle = Bundle(
                outstanding.next_tsn, tsn - 1, parts, messages, path, size, begun - space, limited
            )
            # Remember the probe: if the peer drops it, the SACK that opens the window triggers its
            # retransmission.
            if size > self.peer_window:
                self._probe = bundle
            outstanding.add(bundle, now)
        return parts

    def _largest(self, path: Path) -> int:
        """Return the largest user data, in bytes, of a chunk that fits into a packet on every path (AMDCS).

        So any path can retransmit it.
        """
        paths = self.outstanding.paths
        least = path.probing.size if len(paths) == 1 else min([each.probing.size for each in paths])
        return least - HEADER.size - (I_DATA.size if self.interleaved else DATA.size) & ~3

    def _part(self, size: int, space: int, largest: int, *, alone: bool) -> int:
        """Return how many of ``size`` bytes to send now, since not all fit.

        0 if the next packet is a better start.
        """
        if space < _MIN_FRAGMENT or (not alone and size <= largest):
            return 0
        # A multiple of four, so that only a message's last fragment is padded.
        return min(space, largest) & ~3

    def _chunk(self, message: Outgoing, size: int, tsn: int, parts: list[bytes]) -> int:
        """Append the header and the next ``size`` bytes of a message as one chunk.

        Return the chunk's padded length.
        """
        offset, terms, data = message.offset, message.terms, message.data
        flags = UNORDERED if terms.unordered else 0
        if not offset:
            flags |= BEGINNING
            message.tsn = tsn
            # An unordered DATA chunk has no SSN (6.6); an unordered I-DATA has a MID of its own space.
            # The number is assigned with the first fragment, not when the message is queued: an abandoned
            # message must not leave a gap in the numbers of its stream.
            if self.interleaved or not flags & UNORDERED:
                numbers = self.numbers[terms.unordered]
                message.number = number = numbers.get(message.stream, 0)
                numbers[message.stream] = number + 1
            else:
                message.number = 0
        message.offset = end = offset + size
        if end == len(data):
            flags |= ENDING | (IMMEDIATE if terms.immediate or self.immediate_acks else 0)
        if size != len(data):
            data = data[offset:end]
        stream, number = message.stream, message.number
        if self.interleaved:
            # The same field: the first fragment has the protocol identifier, the others have their number
            # (RFC 8260, 2.1).
            last = message.fragments_sent if offset else message.protocol
            length = I_DATA.size + size
            parts.append(_pack_i_data(_I_DATA, flags, length, tsn & MASK32, stream, 0, number & MASK32, last))
        else:
            length = DATA.size + size
            parts.append(
                _pack_data(_DATA, flags, length, tsn & MASK32, stream, number & MASK16, message.protocol)
            )
        # Without padding, the message's own bytes are used: no copy.
        parts.append(data + bytes(-size & 3) if size & 3 else data)
        message.fragments += 1
        message.fragments_sent += 1
        return length + (-size & 3)
