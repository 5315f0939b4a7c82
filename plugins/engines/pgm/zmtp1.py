"""Framing ``zmtp1``: messages in PGM packets exactly as libzmq's ``pgm://`` and ``epgm://`` send them.

Messages are ZMTP/1.0 frames in one endless stream: length (including the flags byte; 0xFF and eight bytes
from 255 on), flags (1: more parts follow), body. The data of a packet is an offset of two bytes, big-endian,
at which the first message of the packet begins (0xFFFF: none does), and a section of the stream. After a loss
the decoder continues at the next offset.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate
from struct import Struct
from typing import Any

from kernel.contracts.message import PLAIN, Batch, Envelope, batch_of

NO_MESSAGE = 0xFFFF
_OFFSET = 2
_MORE = 1
_LONG = 0xFF
_LONGEST_HEADER = 10
_BEGINS_HERE = bytes(_OFFSET)


def header(size: int, flags: int = 0) -> bytes:
    """Return the header of a frame with a body of ``size`` bytes."""
    if size + 1 < _LONG:
        return bytes((size + 1, flags))
    return b"\xff" + (size + 1).to_bytes(8, "big") + bytes((flags,))


_SHORT = tuple(header(size) for size in range(_LONG - 1))
"""The headers of short frames."""


class Zmtp1Encoder:
    """Encodes batches as data of packets with at most ``tsdu_size`` bytes."""

    def __init__(self, tsdu_size: int, *, keys: bool = False) -> None:
        self._chunk_size = tsdu_size - _OFFSET
        self._alone = self._chunk_size - _LONGEST_HEADER
        self._keys = keys
        self.refused = 0
        """Messages whose key cannot be sent."""
        self.problem = ""
        """The reason for the last of them."""

    def encode(self, batches: Sequence[Batch]) -> list[bytes]:
        """Return the data of packets. The last may be short: the next call begins a new packet."""
        # One small message, as at low rates, needs no accumulation of sizes and no search for offsets.
        if (
            len(batches) == 1
            and len(batches[0].bodies) == 1
            and batches[0].size < self._alone
            and not self._keys
        ):
            (batch,) = batches
            if not batch.multipart:
                return [b"".join((_BEGINS_HERE, header(batch.size), batch.bodies[0]))]
        frames: list[bytes] = []
        sizes: list[int] = []
        for batch in batches:
            # All bodies have one size, and so one header: a single join, without a loop in Python.
            if batch.width and not self._keys:
                head = header(batch.width)
                frames.append(head.join((b"", *batch.bodies)))
                sizes += [len(head) + batch.width] * len(batch.bodies)
            else:
                messages = self._messages(batch)
                frames += messages
                sizes += map(len, messages)
        return self._cut(b"".join(frames), sizes)

    def encode_one(self, body: bytes) -> bytes | None:
        """Return the data of the packet for one message; None if there are keys, or more packets."""
        size = len(body)
        if self._keys or size >= self._alone:
            return None
        return b"".join((_BEGINS_HERE, _SHORT[size] if size < len(_SHORT) else header(size), body))

    def _messages(self, batch: Batch) -> list[bytes]:
        first: list[bytes] = []
        if self._keys:
            try:
                first = [batch.envelope.key.encode("utf-8", "surrogateescape")]
            except (ValueError, AttributeError) as error:
                self.problem = f"a key that cannot be sent: {error}"
                self.refused += len(batch.bodies)
                return []
        return [_message([*first, *body] if batch.multipart else [*first, body]) for body in batch.bodies]

    def _cut(self, stream: bytes, sizes: list[int]) -> list[bytes]:
        starts = list(accumulate(sizes, initial=0))
        starts.pop()
        chunk_size = self._chunk_size
        tsdus: list[bytes] = []
        for at in range(0, len(stream), chunk_size):
            # The first message that begins in this packet. A receiver that has lost the packet before begins
            # to decode there.
            number = bisect_left(starts, at)
            offset = starts[number] - at if number < len(starts) else NO_MESSAGE
            if offset >= chunk_size:
                offset = NO_MESSAGE
            tsdus.append(offset.to_bytes(_OFFSET, "big") + stream[at : at + chunk_size])
        return tsdus


def _message(parts: Sequence[Any]) -> bytes:
    last = len(parts) - 1
    return b"".join(
        part_bytes
        for number, part in enumerate(parts)
        for part_bytes in (header(len(part), _MORE if number < last else 0), part)
    )


class Zmtp1Decoder:
    """Decodes the data of one source's packets. After a loss it continues with the next complete message.

    Each byte is copied a fixed number of times, however large its message is and whatever number of parts it
    has: sections of an incomplete frame wait as they came, and are joined when the frame is complete.
    """

    def __init__(self, max_message: int, *, keys: bool = False) -> None:
        self.malformed = 0
        """Packets with impossible data, and messages larger than allowed."""
        self._max_message = max_message
        self._keys = keys
        self._synchronized = False
        """Whether it is known where a frame starts."""
        self._sections: list[bytes] = []
        """Sections of the stream that are not decoded: the incomplete frame, from its start on."""
        self._size = 0
        """Their bytes."""
        self._needed = 1
        """Bytes of sections with which the next frame, or its header, may be complete."""
        self._parts: list[bytes] = []
        self._parts_size = 0
        self._drops_parts = False
        """Whether the parts that follow belong to a message that was too large."""
        self._envelopes: dict[bytes, Envelope] = {}

    def decode(self, units: Sequence[bytes | None]) -> list[Batch]:
        """Process the data of consecutive packets, None where some were lost; return the complete batches."""
        batches: list[Batch] = []
        sections = self._sections
        for unit in units:
            if unit is None or len(unit) < _OFFSET:
                self.malformed += unit is not None
                # The messages in front of the loss are decoded before the incomplete one is dropped.
                self._decode(batches)
                self._resynchronize()
            # Not synchronized: at the beginning, or after a loss. A packet in the middle of a large message
            # (0xFFFF) does not help; the offset is then beyond the packet.
            elif not self._synchronized:
                begin = _OFFSET + int.from_bytes(unit[:_OFFSET], "big")
                if begin <= len(unit):
                    self._synchronized = True
                    sections.append(unit[begin:])
                    self._size += len(unit) - begin
            else:
                sections.append(unit[_OFFSET:])
                self._size += len(unit) - _OFFSET
        self._decode(batches)
        return batches

    def decode_one(self, unit: bytes) -> bytes | None:
        """Return the body if the next unit is one whole message; None: it has to be decoded."""
        end = len(unit)
        if (
            not self._synchronized
            or self._size
            or self._parts
            or self._drops_parts
            or end <= _OFFSET
            or unit[:_OFFSET] != _BEGINS_HERE
        ):
            return None
        size, head = _read_header(unit, _OFFSET)
        begin = _OFFSET + head
        # The length includes the flags byte.
        if not 0 < size <= self._max_message + 1 or begin + size - 1 != end or unit[begin - 1]:
            return None
        return unit[begin:]

    def _resynchronize(self) -> None:
        self._synchronized = False
        self._sections.clear()
        self._size, self._needed = 0, 1
        self._parts.clear()
        self._parts_size = 0
        self._drops_parts = False

    def _decode(self, batches: list[Batch]) -> None:
        """Decode the complete frames, if there is one; keep the incomplete one."""
        if self._size < self._needed:
            return
        sections = self._sections
        data = sections[0] if len(sections) == 1 else b"".join(sections)
        at, end = 0, len(data)
        self._needed = 1
        while at < end:
            size, head = _read_header(data, at)
            if size < 0:
                self._needed = end - at + 1
                break
            # The length includes the flags byte, so that 0 is impossible. After either fault the stream's
            # position is unknown, and only the next packet with an offset helps.
            if size == 0 or size - 1 > self._max_message:
                self.malformed += 1
                self._resynchronize()
                return
            size -= 1
            if at + head + size > end:
                self._needed = head + size
                break
            if data[at + head - 1] & _MORE or self._parts or self._drops_parts:
                self._part(data[at + head : at + head + size], bool(data[at + head - 1] & _MORE), batches)
                at += head + size
                continue
            # Several frames of one size and flags are the usual case, and are split in one call.
            bodies = _equal_frames(data, at, head, size)
            at += len(bodies) * (head + size)
            batches.append(Batch(bodies, len(bodies) * size, width=size))
        # ``data`` itself if nothing was decoded, which saves a copy of a large message that is incomplete.
        sections[:] = [data[at:] if at else data] if at < end else ()
        self._size = end - at

    def _part(self, part: bytes, more: bool, batches: list[Batch]) -> None:
        """Take a part of a message, the last one without ``more``."""
        if self._drops_parts:
            self._drops_parts = more
            return
        self._parts.append(part)
        # The limit holds for the message and not only for each part: parts could otherwise add up without
        # end. An empty part counts as a byte, since it takes memory, too.
        self._parts_size += len(part) or 1
        if self._parts_size > self._max_message:
            self.malformed += 1
            self._parts.clear()
            self._parts_size = 0
            # The position in the stream is known, so that only this message is dropped: all of its parts.
            self._drops_parts = more
        elif not more:
            parts, self._parts = self._parts, []
            self._parts_size = 0
            if self._keys:
                envelope = self._envelope(parts.pop(0))
                if len(parts) == 1:
                    batches.append(batch_of(parts, envelope))
                else:
                    batches.append(batch_of([tuple(parts)], envelope, multipart=True))
            else:
                batches.append(batch_of([tuple(parts)], multipart=True))

    def _envelope(self, key: bytes) -> Envelope:
        envelope = self._envelopes.get(key)
        if envelope is None:
            # Keys come from the network, and their number has no limit.
            if len(self._envelopes) >= ENVELOPES:
                self._envelopes.clear()
            text = key.decode(errors="replace")
            envelope = self._envelopes[key] = Envelope(key=text) if text else PLAIN
        return envelope


ENVELOPES = 4096
"""Keys whose envelopes are cached."""

_frames: dict[tuple[int, int], Struct] = {}


def _read_header(data: bytes, at: int) -> tuple[int, int]:
    """Return a frame's length field and header size; -1 if the header is incomplete."""
    if data[at] != _LONG:
        return (data[at], 2) if at + 1 < len(data) or not data[at] else (-1, 2)
    if at + 10 > len(data):
        return -1, 10
    return int.from_bytes(data[at + 1 : at + 9], "big"), 10


def _equal_frames(data: bytes, at: int, head: int, size: int) -> list[bytes]:
    """Return the bodies of the frame at ``at`` and of the following ones with the same header.

    A frame with the same header has the same size, so that the position of the next one is known: 50 to 80 ns
    a frame.
    """
    frame = _frames.get((head, size))
    if frame is None:
        if len(_frames) >= 1024:
            _frames.clear()
        frame = _frames[head, size] = Struct(f"{head}s{size}s")
    first = data[at : at + head]
    count = (len(data) - at) // frame.size
    bodies: list[bytes] = []
    append = bodies.append
    for found, body in frame.iter_unpack(memoryview(data)[at : at + count * frame.size]):
        if found != first:
            break
        append(body)
    return bodies
