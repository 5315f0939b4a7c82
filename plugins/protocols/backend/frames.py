"""Frames of the backend protocol: what the bytes look like.  ``docs/backend_protocol.md`` is the specification.

A message is its size and its body: one size byte below 255, or 0xFF and the size as eight bytes, big-endian (ØMQ
0.1 to 1.0).  No size of the old format has its top bit set, so 0xFF followed by a byte from 0x80 on begins
a *control frame* of the extension: its type in the low seven bits, then seven bytes of payload size, big-endian.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from itertools import chain
from struct import Struct
from typing import Any

from kernel.contracts.message import Buffer

LONG = 0xFF
"""The size byte that announces eight more."""

REFERENCE_FROM = 16 * 1024
"""Bodies of at least this many bytes are handed to the operating system as they are, smaller ones are joined: a
copy costs 0.1 us a KiB, one more buffer in a call 0.25 us and more in the making."""

CONTROL_LIMIT = 1 << 20
"""No control frame but PARTS needs more bytes than this."""

SHORT_HEADERS = tuple(bytes((size,)) for size in range(LONG))


class Control(IntEnum):
    """Types of control frames."""

    GREETING = 1
    ENVELOPE = 2
    USE = 3
    PARTS = 4
    CONFIRM = 5
    PING = 6
    PONG = 7
    SUBSCRIBE = 8
    UNSUBSCRIBE = 9
    CLOSE = 10
    WANT_CONFIRM = 11


def header(size: int) -> bytes:
    """Return what stands before a body of ``size`` bytes."""
    return SHORT_HEADERS[size] if size < LONG else b"\xff" + size.to_bytes(8, "big")


def control_frame(control: Control, payload: Buffer = b"") -> bytes:
    """Return a control frame."""
    return b"\xff%c" % (0x80 | control) + len(payload).to_bytes(7, "big") + payload


def encode_bodies(bodies: Sequence[Any], width: int = 0) -> list[Buffer]:
    """Return the frames of these bodies, in as few buffers as make sense.  ``width``: their size, if all have one.

    The whole batch is then their one header joined between them (11 ns a message); mixed sizes take 60 to 100 ns a message.
    """
    if 0 < width < REFERENCE_FROM:
        head = header(width)
        return [head.join((b"", *bodies))]  # not ``head + head.join(bodies)``, which copies it all twice
    if width < LONG and max(map(len, bodies), default=0) < LONG:
        return [
            b"".join(
                chain.from_iterable(
                    zip(map(SHORT_HEADERS.__getitem__, map(len, bodies)), bodies, strict=True)
                )
            )
        ]
    return _encode_large(bodies)


def _encode_large(bodies: Sequence[Any]) -> list[Buffer]:
    """Join what is small, pass what is large."""
    buffers: list[Buffer] = []
    small: list[Buffer] = []
    for body in bodies:
        size = len(body)
        small.append(header(size))
        if size < REFERENCE_FROM:
            small.append(body)
        else:
            buffers.append(b"".join(small))
            buffers.append(body)
            small.clear()
    if small:
        buffers.append(b"".join(small))
    return buffers


def equal_headers(data: bytes, position: int, stride: int, most: int) -> int:
    """Count the frames from ``position`` on that have the size byte of the first, ``most`` at the most.

    By bytes at a distance of one frame, in C: the size byte of each frame says where the next one stands,
    so equal bytes at equal distances are headers.
    """
    first = data[position : position + 1]
    count, probe = 0, 8
    while count < most:
        probe = min(probe, most - count)
        start = position + count * stride
        heads = data[start : start + (probe - 1) * stride + 1 : stride]
        equal = len(heads) - len(heads.lstrip(first))
        count += equal
        if equal < len(heads):
            break
        probe *= 4
    return count


_BLOCK = 256
_unpackers: dict[int, tuple[Struct, Struct]] = {}


def equal_bodies(data: Buffer, position: int, size: int, count: int) -> list[bytes]:
    """Return the bodies of ``count`` short frames of one size; 30 to 40 ns each."""
    pair = _unpackers.get(size)
    if pair is None:
        pair = _unpackers[size] = (Struct(f"x{size}s"), Struct(f"x{size}s" * _BLOCK))
    one, block = pair
    bodies: list[bytes] = []
    stride = size + 1
    while count >= _BLOCK:
        bodies += block.unpack_from(data, position)
        position += _BLOCK * stride
        count -= _BLOCK
    if count:
        rest = memoryview(data)[position : position + count * stride]
        bodies += chain.from_iterable(one.iter_unpack(rest))
    return bodies


LONG_BATCH_BLOCK = 64
_long_unpackers: dict[int, Struct] = {}


def equal_long_bodies(data: Buffer, position: int, size: int, count: int) -> list[bytes]:
    """Return the bodies of up to ``count`` long frames with the header of the first, as far as they go on being equal.

    A frame that begins with the same nine bytes has the same size, so the next one is where it is looked for.
    """
    one = _long_unpackers.get(size)
    if one is None:
        if len(_long_unpackers) >= 1024:
            _long_unpackers.clear()
        one = _long_unpackers[size] = Struct(f"9s{size}s")
    first = bytes(data[position : position + 9])
    bodies: list[bytes] = []
    rest = memoryview(data)[position : position + count * (size + 9)]
    for head, body in one.iter_unpack(rest):
        if head != first:
            break
        bodies.append(body)
    return bodies


MAX_PARTS = 65_536
"""Parts of one message.  A part costs the reader 76 ns whatever its size, so a frame of empty parts would otherwise hold up its
thread for more than a minute (100 MB took 76 s); this many take 5 ms."""


def split_parts(payload: bytes) -> tuple[bytes, ...] | None:
    """Return the parts that the payload of a PARTS frame is made of; None when it is malformed or has too many."""
    parts: list[bytes] = []
    position, end = 0, len(payload)
    while position < end:
        if len(parts) == MAX_PARTS:
            return None
        size = payload[position]
        position += 1
        if size == LONG:
            size = int.from_bytes(payload[position : position + 8], "big")
            position += 8
        if position + size > end:
            return None
        parts.append(payload[position : position + size])
        position += size
    return tuple(parts)
