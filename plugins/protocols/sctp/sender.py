"""The sending half of an association: messages are cut into pieces, and fill what windows allow (RFC 9260, 6.1, 6.9).

What comes first in a packet is what was lost; then new data, in the order of the schedule.
"""

from __future__ import annotations

import heapq

from kernel.contracts.errors import LocalProtocolError
from plugins.protocols.sctp import chunks
from plugins.protocols.sctp.chunks import (
    BEGINNING,
    DATA_HEAD,
    ENDING,
    I_DATA_HEAD,
    IMMEDIATE,
    UNORDERED,
    Data,
    Sack,
)
from plugins.protocols.sctp.options import SctpOptions
from plugins.protocols.sctp.outstanding import Outstanding, Piece
from plugins.protocols.sctp.path import Path
from plugins.protocols.sctp.schedule import Outgoing, Schedule, Terms
from plugins.protocols.sctp.sequence import MASK16, MASK32, unwrapped

_LEAST_PIECE = 64
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
        self.hurried = False
        """Whether acknowledgements are wanted at once: the association is to be shut down."""
        self.paused: frozenset[int] = frozenset()
        """Streams that are being reset: messages for them are held until ``resume``."""
        self._held: list[Outgoing] = []
        self._probe: Piece | None = None
        """What was sent although the peer's window was too small for it (6.1, A)."""
        self._options = options
        self._numbers: dict[tuple[int, bool], int] = {}

    def agree(self, *, streams: int, window: int, interleaved: bool, may_forward: bool) -> None:
        """Take over what was agreed with the peer."""
        self.streams = min(self.streams, streams)
        self.peer_window = window
        self.interleaved = self.schedule.interleaved = self.outstanding.interleaved = interleaved
        self.outstanding.may_forward = may_forward
        for message in self.schedule.waiting():
            if message.stream >= self.streams:
                self.outstanding.abandon(message)

    def send(self, stream: int, data: bytes, protocol: int, terms: Terms) -> Outgoing:
        """Queue a message."""
        if not 0 <= stream < self.streams:
            raise LocalProtocolError(f"stream {stream}: this association has 0 to {self.streams - 1}")
        if not data:
            raise LocalProtocolError("a message of SCTP has one byte at least")
        message = Outgoing(stream, data, protocol, terms)
        if terms.priority is not None:
            self._make_room(terms.priority, len(data))
        if stream in self.paused:
            self._held.append(message)
        else:
            self.schedule.push(message)
        return message

    def resume(self, *, reset: bool) -> None:
        """Go on with the paused streams, from number 0 if they were ``reset``."""
        if reset:
            for stream in self.paused:
                self._numbers.pop((stream, False), None)
                self._numbers.pop((stream, True), None)
        self.paused = frozenset()
        held, self._held = self._held, []
        for message in held:
            self.schedule.push(message)

    def buffered(self) -> int:
        """Return the bytes that wait to be sent or acknowledged."""
        return self.schedule.bytes + self.outstanding.bytes + sum(len(each.data) for each in self._held)

    def is_empty(self) -> bool:
        """Whether the peer has acknowledged all, or does not wait for it any more."""
        return not self._held and self.schedule.current() is None and not self.outstanding.pieces

    def _make_room(self, priority: int, size: int) -> None:
        """Give up messages of less importance, the least first, until ``size`` bytes fit (RFC 7496, 3.2)."""
        excess = self.buffered() + size - self._options.send_buffer
        if excess <= 0:
            return
        under_way = {id(piece.message): piece.message for piece in self.outstanding.pieces.values()}
        under_way.update((id(message), message) for message in self.schedule.waiting())
        lesser = [message for message in under_way.values() if (message.priority or 0) > priority]
        for message in sorted(lesser, key=lambda message: -(message.priority or 0)):
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
                    self.outstanding.lose(probe, probe.path, now)
                else:
                    self._probe = probe
            if not sack.window:
                for path in self.outstanding.paths:
                    path.errors = 0
        return progress

    # ------------------------------------------------------------------ filling packets

    def fill(self, path: Path, room: int, now: float, *, fresh: bool) -> list[bytes]:
        """Return chunks of ``room`` bytes together at the most; new data only if it is to be ``fresh``."""
        taken: list[bytes] = []
        while path.lost and path.may_send():
            piece = self.outstanding.pieces.get(path.lost[0])
            if (
                piece is None
                or piece.in_flight
                or piece.acknowledged
                or piece.abandoned
                or piece.path is not path
            ):
                heapq.heappop(path.lost)
                continue
            if len(piece.chunk) > room:
                break
            heapq.heappop(path.lost)
            self.outstanding.sent(piece, now)
            taken.append(piece.chunk)
            room -= len(piece.chunk)
        if fresh and not path.lost:
            self._fill_fresh(path, room, now, taken)
        if taken:
            path.free_packet = False
        return taken

    def _fill_fresh(self, path: Path, room: int, now: float, taken: list[bytes]) -> None:
        head = I_DATA_HEAD if self.interleaved else DATA_HEAD
        while (
            path.flight < path.window
            and self.outstanding.has_room()
            and (message := self.schedule.current()) is not None
        ):
            if message.expires is not None and now >= message.expires and self.outstanding.abandon(message):
                continue
            left = len(message.data) - message.offset
            size = left
            if head + left + -left % 4 > room:
                if room - head < _LEAST_PIECE or (taken and left <= self._most(head)):
                    return  # it is better begun in the next packet
                size = (room - head) & ~3
            if self.outstanding.flight and self.outstanding.flight + size > self.peer_window:
                return
            if not self.outstanding.flight and self.peer_window <= 0 and self.outstanding.pieces:
                return  # the window is probed with one piece, which is outstanding already
            piece = self._cut(message, size, path, now)
            if size > self.peer_window:
                self._probe = piece
            taken.append(piece.chunk)
            room -= len(piece.chunk)

    def _most(self, head: int) -> int:
        return (self._options.packet_size - 12 - head) & ~3

    def _cut(self, message: Outgoing, size: int, path: Path, now: float) -> Piece:
        """Send the next ``size`` bytes of a message."""
        outstanding = self.outstanding
        begins = message.offset == 0
        if begins:
            self._number(message)
        end = message.offset + size
        flags = (BEGINNING if begins else 0) | (UNORDERED if message.unordered else 0)
        if end == len(message.data):
            flags |= ENDING | (IMMEDIATE if message.immediate or self.hurried else 0)
        tsn = outstanding.next_tsn
        outstanding.next_tsn += 1
        chunk = chunks.encode(
            Data(
                tsn=tsn & MASK32,
                stream=message.stream,
                number=message.number & (MASK32 if self.interleaved else MASK16),
                flags=flags,
                protocol=message.protocol,
                fragment=message.pieces_sent,
                data=message.data if size == len(message.data) else message.data[message.offset : end],
                interleaved=self.interleaved,
            )
        )
        piece = Piece(tsn, chunk, size, message, path)
        outstanding.pieces[tsn] = piece
        outstanding.bytes += size
        message.offset = end
        message.pieces_sent += 1
        outstanding.sent(piece, now)
        self.schedule.sent(size)
        return piece

    def _number(self, message: Outgoing) -> None:
        """Number a message in its stream; DATA has no numbers for unordered ones, I-DATA has some of their own."""
        if message.unordered and not self.interleaved:
            message.number = 0
            return
        key = (message.stream, message.unordered)
        message.number = self._numbers.get(key, 0)
        self._numbers[key] = message.number + 1
