"""The sending half of an association: messages are cut into fragments, and fill what windows allow (RFC 9260, 6.1, 6.9).

What comes first in a packet is what was lost; then new data, in the order of the schedule.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

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
_MIN_FRAGMENT = 64
"""Bytes below which a message is not cut to use up the rest of a packet."""


class Sender:
    """All that we send."""

    def __init__(self, options: SctpOptions, first_tsn: int, paths: list[Path]) -> None:
        self.outstanding = Outstanding(first_tsn, paths)
        self.schedule = Schedule(options.schedule)
        self.streams = options.streams_out
        """How many we may use."""
        self.peer_window = 0
        """As the peer told it last, outstanding data included."""
        self.interleaved = False
        self.immediate_acks = False
        """Whether acknowledgements are wanted at once: the association is to be shut down."""
        self.paused: frozenset[int] = frozenset()
        """Streams that are being reset: messages for them are held until ``resume``."""
        self._paused_messages: list[Outgoing] = []
        self._probe: Bundle | None = None
        """What was sent although the peer's window was too small for it (6.1, A)."""
        self._options = options
        self._numbers: tuple[dict[int, int], dict[int, int]] = ({}, {})
        """Of the next message in each stream: the ordered ones, and the unordered ones of I-DATA."""

    def agree(self, *, streams: int, window: int, interleaved: bool, may_forward: bool) -> None:
        """Take over what was agreed with the peer."""
        self.streams = min(self.streams, streams)
        self.peer_window = window
        self.interleaved = self.schedule.interleaved = self.outstanding.interleaved = interleaved
        self.outstanding.may_forward = may_forward
        for message in self.schedule.waiting():
            if message.stream >= self.streams:
                self.outstanding.abandon(message)

    def send_many(self, stream: int, bodies: Sequence[bytes], protocol: int, terms: Terms) -> list[Outgoing]:
        """Queue messages of one stream."""
        if not 0 <= stream < self.streams:
            raise LocalProtocolError(f"stream {stream}: this association has 0 to {self.streams - 1}")
        if not all(bodies):
            raise LocalProtocolError("a message of SCTP has one byte at least")
        messages = [Outgoing(stream, data, protocol, terms) for data in bodies]
        if terms.priority is not None:
            self._make_room(terms.priority, sum(map(len, bodies)))
        if stream in self.paused:
            self._paused_messages += messages
        else:
            self.schedule.push(messages, stream)
        return messages

    def resume(self, *, reset: bool) -> None:
        """Go on with the paused streams, from number 0 if they were ``reset``."""
        if reset:
            for stream in self.paused:
                for numbers in self._numbers:
                    numbers.pop(stream, None)
        self.paused = frozenset()
        messages, self._paused_messages = self._paused_messages, []
        for message in messages:
            self.schedule.push((message,), message.stream)

    def has_unacknowledged(self, stream: int) -> bool:
        """Whether the peer lacks anything of that stream, or has not said that it knows what was given up: that has a number."""
        return self.schedule.has_unsent(stream) or self.outstanding.has_unacknowledged(stream)

    def buffered(self) -> int:
        """Return the bytes that wait to be sent or acknowledged."""
        return (
            self.schedule.bytes
            + self.outstanding.bytes
            + sum(len(each.data) for each in self._paused_messages)
        )

    def is_empty(self) -> bool:
        """Whether the peer has acknowledged all, or does not wait for it any more."""
        return not self._paused_messages and self.schedule.current() is None and not self.outstanding.bundles

    def _make_room(self, priority: int, size: int) -> None:
        """Give up messages of less importance, the least first, until ``size`` bytes fit (RFC 7496, 3.2)."""
        excess = self.buffered() + size - self._options.send_buffer
        if excess <= 0:
            return
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
        """Take an acknowledgement in; return whether it acknowledged anything new.  Raises ``RemoteProtocolError``."""
        overtaken = unwrapped(sack.cumulative, self.outstanding.cumulative) < self.outstanding.cumulative
        progress = self.outstanding.on_sack(sack, now, names_gaps=names_gaps)
        if not overtaken:
            self.peer_window = sack.window
            probe, self._probe = self._probe, None
            if probe is not None and probe.in_flight:
                if (
                    probe.size <= sack.window
                ):  # it was refused when there was no room for it, and now there is
                    self.outstanding.mark_lost(probe, probe.path, now)
                else:
                    self._probe = probe
            if self.is_refused():
                for path in self.outstanding.paths:
                    path.errors = 0
                    path.probing.progressed()  # what has no room has come, however large the packet
        return progress

    def is_refused(self) -> bool:
        """Whether the peer, as it said last, has no room for what it lacks: it is alive, however often that is repeated."""
        bundles = self.outstanding.bundles
        return self.peer_window <= 0 or (bool(bundles) and bundles[0].size > self.peer_window)

    # ------------------------------------------------------------------ filling packets

    def fill(self, path: Path, room: int, now: float, *, fresh: bool) -> list[bytes]:
        """Return the parts of chunks of ``room`` bytes together at the most; new data only if it is to be ``fresh``."""
        taken = self._fill_again(path, room, now) if path.lost else []
        if fresh and self.schedule.current() is not None and not path.lost and path.flight < path.cwnd:
            taken += self._fill_fresh(path, room - sum(map(len, taken)), now, alone=not taken)
        if taken:
            path.free_packet = False
        return taken

    def _fill_again(self, path: Path, room: int, now: float) -> list[bytes]:
        """Return the parts of what was lost, as far as there is room."""
        taken: list[bytes] = []
        bundles = self.outstanding.bundles
        while path.lost and path.may_send():
            bundle = bundles.find(path.lost[0])
            if bundle is not None and bundle.path is path and bundle.awaits_retransmission():
                fitting = bundle.fitting(room)
                if not fitting and (taken or room < path.probing.size - HEADER.size & ~3):
                    break
                bundles.cut(
                    bundle.first + max(fitting, 1)
                )  # one that is too large by now is IP's to fragment
                self.outstanding.repeat(bundle, now)
                taken += bundle.parts
                room -= bundle.length
            heapq.heappop(path.lost)
        return taken

    def _fill_fresh(self, path: Path, room: int, now: float, *, alone: bool) -> list[bytes]:
        """Send new data, one packet's at the most, which is ``alone`` in it or not; return its parts."""
        outstanding, schedule = self.outstanding, self.schedule
        parts: list[bytes] = []
        messages: list[Outgoing] = []
        begun = space = room - (I_DATA.size if self.interleaved else DATA.size)
        largest = self._largest(path)
        tsn, flight, limited = outstanding.next_tsn, outstanding.flight, False
        most = tsn + outstanding.room()
        while tsn < most and (message := schedule.current()) is not None:
            terms = message.terms
            if terms.expires is not None and now >= terms.expires:
                if messages:
                    break  # what is given up may take the next TSN
                if outstanding.abandon(message):
                    tsn, flight = outstanding.next_tsn, outstanding.flight  # it may have used one up
                    continue
            size = len(message.data) - message.offset
            if size > largest or size + (-size & 3) > space:
                size = self._part(size, space, largest, alone=alone and not messages)
            if not size:
                break
            if flight + size > self.peer_window and (
                flight or (self.peer_window <= 0 and outstanding.bundles)
            ):
                break  # a window that is closed is probed with one fragment, when nothing else is under way
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
            if size > self.peer_window:
                self._probe = bundle
            outstanding.add(bundle, now)
        return parts

    def _largest(self, path: Path) -> int:
        """Return the bytes of data that have room in a packet of their own on any path, so that each can repeat it (AMDCS)."""
        paths = self.outstanding.paths
        least = path.probing.size if len(paths) == 1 else min([each.probing.size for each in paths])
        return least - HEADER.size - (I_DATA.size if self.interleaved else DATA.size) & ~3

    def _part(self, size: int, space: int, largest: int, *, alone: bool) -> int:
        """Return how much of ``size`` bytes to send now that not all may; 0 when it is better begun in the next packet."""
        if space < _MIN_FRAGMENT or (not alone and size <= largest):
            return 0
        return min(space, largest) & ~3

    def _chunk(self, message: Outgoing, size: int, tsn: int, parts: list[bytes]) -> int:
        """Add the header and the data of the chunk with the next ``size`` bytes of a message; return its length."""
        offset, terms, data = message.offset, message.terms, message.data
        flags = UNORDERED if terms.unordered else 0
        if not offset:
            flags |= BEGINNING
            message.tsn = tsn
            if self.interleaved or not flags & UNORDERED:  # DATA has no numbers for unordered ones
                numbers = self._numbers[terms.unordered]
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
            last = message.fragments_sent if offset else message.protocol
            length = I_DATA.size + size
            parts.append(_pack_i_data(_I_DATA, flags, length, tsn & MASK32, stream, 0, number & MASK32, last))
        else:
            length = DATA.size + size
            parts.append(
                _pack_data(_DATA, flags, length, tsn & MASK32, stream, number & MASK16, message.protocol)
            )
        parts.append(data + bytes(-size & 3) if size & 3 else data)
        message.fragments += 1
        message.fragments_sent += 1
        return length + (-size & 3)
