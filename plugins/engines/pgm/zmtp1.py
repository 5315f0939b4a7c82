"""Framing ``zmtp1``: messages over PGM byte for byte as libzmq's ``pgm://`` and ``epgm://`` have them.

Messages are frames of ZMTP/1.0 in one endless stream: length (the flags byte counted; 0xFF and eight bytes from 255 on),
flags (1: more parts follow), body.  A packet's data is two bytes, big-endian, that say where in it the first message begins
(0xFFFF: none does), and a piece of the stream.
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
    """Return what stands before a body of ``size`` bytes."""
    if size + 1 < _LONG:
        return bytes((size + 1, flags))
    return b"\xff" + (size + 1).to_bytes(8, "big") + bytes((flags,))


class Zmtp1Encoder:
    """Batches to the data of packets, which have ``tsdu_size`` bytes at the most."""

    def __init__(self, tsdu_size: int, *, keys: bool = False) -> None:
        self._piece = tsdu_size - _OFFSET
        self._alone = self._piece - _LONGEST_HEADER
        self._keys = keys
        self.refused = 0
        """Messages whose key cannot be written."""
        self.problem = ""
        """What was wrong with the last of these."""

    def encode(self, batches: Sequence[Batch]) -> list[bytes]:
        """Return the data of packets; the last may be short, and the next batch begins with a packet of its own."""
        if (
            len(batches) == 1
            and len(batches[0].bodies) == 1
            and batches[0].size < self._alone
            and not self._keys
        ):
            (batch,) = batches
            if not batch.multipart:  # a thin flow: one small message, one packet
                return [b"".join((_BEGINS_HERE, header(batch.size), batch.bodies[0]))]
        frames: list[bytes] = []
        sizes: list[int] = []
        for batch in batches:
            if batch.width and not self._keys:
                head = header(batch.width)
                frames.append(head.join((b"", *batch.bodies)))
                sizes += [len(head) + batch.width] * len(batch.bodies)
            else:
                messages = self._messages(batch)
                frames += messages
                sizes += map(len, messages)
        return self._cut(b"".join(frames), sizes)

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
        piece = self._piece
        tsdus: list[bytes] = []
        for at in range(0, len(stream), piece):
            number = bisect_left(starts, at)
            offset = starts[number] - at if number < len(starts) else NO_MESSAGE
            if offset >= piece:
                offset = NO_MESSAGE
            tsdus.append(offset.to_bytes(_OFFSET, "big") + stream[at : at + piece])
        return tsdus


def _message(parts: Sequence[Any]) -> bytes:
    last = len(parts) - 1
    return b"".join(
        piece
        for number, part in enumerate(parts)
        for piece in (header(len(part), _MORE if number < last else 0), part)
    )


class Zmtp1Decoder:
    """Data of one source's packets to batches.  After a loss it goes on with the next whole message."""

    def __init__(self, max_message: int, *, keys: bool = False) -> None:
        self.malformed = 0
        """Packets whose data cannot be right, and messages larger than is allowed."""
        self._max_message = max_message
        self._keys = keys
        self._rest: bytes | None = None
        """The begun frame; None while it is not known where one begins."""
        self._parts: list[bytes] = []
        self._skip = False  # the parts of a message whose first were lost
        self._envelopes: dict[bytes, Envelope] = {}

    def decode(self, units: Sequence[bytes | None]) -> list[Batch]:
        """Take the data of consecutive packets, None where some were lost; return what is complete."""
        batches: list[Batch] = []
        pieces: list[bytes] = [] if self._rest is None else [self._rest]
        for unit in units:
            if unit is None or len(unit) < _OFFSET:
                self.malformed += unit is not None
                self._decode(b"".join(pieces), batches)
                self._lose()
                pieces = []
            elif self._rest is None:
                begin = _OFFSET + int.from_bytes(unit[:_OFFSET], "big")
                if begin <= len(unit):
                    self._rest = b""
                    pieces = [unit[begin:]]
            else:
                pieces.append(unit[_OFFSET:])
        if pieces and self._rest is not None:
            self._decode(b"".join(pieces), batches)
        return batches

    def _lose(self) -> None:
        self._rest = None
        self._parts.clear()

    def _decode(self, data: bytes, batches: list[Batch]) -> None:
        """Read frames; keep the begun one."""
        at, end = 0, len(data)
        while at < end:
            size, head = _read_header(data, at)
            if size < 0:
                break
            if size == 0 or size - 1 > self._max_message:
                self.malformed += 1
                self._lose()
                return
            size -= 1
            if at + head + size > end:
                break
            if data[at + head - 1] & _MORE or self._parts:
                self._part(data[at + head : at + head + size], bool(data[at + head - 1] & _MORE), batches)
                at += head + size
                continue
            bodies = _equal_frames(data, at, head, size)
            at += len(bodies) * (head + size)
            batches.append(Batch(bodies, len(bodies) * size, width=size))
        self._rest = data[at:] if at else data

    def _part(self, part: bytes, more: bool, batches: list[Batch]) -> None:
        self._parts.append(part)
        if sum(map(len, self._parts)) > self._max_message:
            self.malformed += 1
            self._lose()
        elif not more:
            parts, self._parts = self._parts, []
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
            if len(self._envelopes) >= ENVELOPES:
                self._envelopes.clear()
            text = key.decode(errors="replace")
            envelope = self._envelopes[key] = Envelope(key=text) if text else PLAIN
        return envelope


ENVELOPES = 4096
"""Keys whose envelopes are kept to be used again."""

_frames: dict[tuple[int, int], Struct] = {}


def _read_header(data: bytes, at: int) -> tuple[int, int]:
    """Return the length that a frame says it has, and the bytes of its header; -1: it is not all there."""
    if data[at] != _LONG:
        return (data[at], 2) if at + 1 < len(data) or not data[at] else (-1, 2)
    if at + 10 > len(data):
        return -1, 10
    return int.from_bytes(data[at + 1 : at + 9], "big"), 10


def _equal_frames(data: bytes, at: int, head: int, size: int) -> list[bytes]:
    """Return the bodies of the frame at ``at`` and of those after it that have the same header; 50 to 80 ns each.

    A frame with the same header has the same size, so the next one is where it is looked for.
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
