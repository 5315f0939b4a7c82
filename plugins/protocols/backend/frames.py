"""Frames of the backend protocol.  ``docs/backend_protocol.md`` is the specification.

A message is a size and a body.  The size is one byte below 255, or 0xFF and eight bytes, big-endian (ØMQ 0.1
to 1.0).  The top bit of an eight-byte size is never set.  So 0xFF followed by a byte of 0x80 or more begins a
*control frame* of the extension: the type is in the low seven bits of that byte; then come seven bytes of
payload size, big-endian.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from itertools import chain
from typing import Any

from kernel.contracts.message import Buffer

LONG = 0xFF
"""The size byte that announces a size of eight bytes."""

REFERENCE_FROM = 16 * 1024
"""Bytes.  Larger bodies are passed to the operating system by reference; smaller ones are joined.  A copy
costs 0.1 us a KiB; one more buffer in a system call costs 0.25 us, and more to prepare."""

CONTROL_LIMIT = 1 << 20
"""Bytes of the largest payload of a control frame, except for PARTS."""

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
    SYNC = 12
    SYNCED = 13
    MIXED = 14


def header(size: int) -> bytes:
    """Return the header of a body of ``size`` bytes."""
    return SHORT_HEADERS[size] if size < LONG else b"\xff" + size.to_bytes(8, "big")


def control_frame(control: Control, payload: Buffer = b"") -> bytes:
    """Return a control frame."""
    return b"\xff%c" % (0x80 | control) + len(payload).to_bytes(7, "big") + payload


def encode_bodies(bodies: Sequence[Any], width: int = 0) -> list[Buffer]:
    """Return the frames of these bodies, in few buffers.

    ``width``: the size of the bodies if it is the same for all, else 0.  With a common size the batch is
    encoded by one join with the header as separator (11 ns a message).  Mixed sizes take 60 to 100 ns a
    message.
    """
    if 0 < width < REFERENCE_FROM:
        head = header(width)
        # The empty first item puts a header in front of the first body, too.  ``head + head.join(bodies)``
        # would copy everything twice.
        return [head.join((b"", *bodies))]
    # A width of 0 means mixed sizes.  If all are short, headers come from a table and one join makes the
    # batch.
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
    """Join small bodies; pass large ones by reference."""
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
    """Count the consecutive frames from ``position`` on that have one size byte; at most ``most``.

    It compares bytes at distances of one frame, in C.  The size byte of a frame tells where the next frame
    begins, so if the bytes at these distances are equal, each of them is a header.
    """
    first = data[position : position + 1]
    count, probe = 0, 8
    while count < most:
        # Four times as many frames in each step: a flow that changes soon costs little, a long one few steps.
        probe = min(probe, most - count)
        start = position + count * stride
        heads = data[start : start + (probe - 1) * stride + 1 : stride]
        equal = len(heads) - len(heads.lstrip(first))
        count += equal
        if equal < len(heads):
            break
        probe *= 4
    return count


LONG_HEADER = 9
"""Octets: 0xFF and the size."""


def equal_long_headers(data: bytes, position: int, stride: int, most: int) -> int:
    """Count the consecutive frames from ``position`` on that have one header of nine octets.

    At most ``most``.  As ``equal_headers``, an octet of the header after the other.
    """
    count = most
    for at in range(position, position + LONG_HEADER):
        column = data[at : at + (count - 1) * stride + 1 : stride]
        count = len(column) - len(column.lstrip(data[at : at + 1]))
    return count


MAX_PARTS = 65_536
"""Parts of one message at most.  A part costs the receiver 76 ns, whatever its size.  So a frame of empty
parts could block its thread for more than a minute (100 MB took 76 s); this number takes 5 ms."""


def split_parts(payload: bytes) -> tuple[bytes, ...] | None:
    """Split the payload of a PARTS frame; None if it is malformed or has more than ``MAX_PARTS``."""
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
        # This also finds a size that is cut off by the end: ``position`` then lies behind it.
        if position + size > end:
            return None
        parts.append(payload[position : position + size])
        position += size
    return tuple(parts)
