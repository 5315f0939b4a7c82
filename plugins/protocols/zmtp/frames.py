"""Frames of ZMTP: flags, size and body.

Version 1.0 has the size first, and counts the flags in it; versions 2.0 to 3.1 have the flags first.  Both
have headers of two bytes for small bodies, so runs of small frames are cut in the same way.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import chain, repeat
from typing import Any

from kernel.contracts.message import Buffer

MODERN = 3
"""A version whose headers are those of 2.0 and later."""
MORE, LONG, COMMAND = 1, 2, 4
RESERVED = 0xF8
SHORT_HEADER, LONG_HEADER, LONG_HEADER_1 = 2, 9, 10
LONG_1 = 0xFF
"""The first byte of a long frame of version 1.0."""

_NO_ADDRESSES = (b"",)

REFERENCE_FROM = 16 * 1024
"""Bytes.  Larger bodies are passed to the operating system by reference; smaller ones are joined."""


def measure(data: bytes, at: int) -> tuple[int, int, int]:
    """Return flags, size of the header and size of the body of a frame of 2.0 or later.

    The header has size 0 if it is not complete.
    """
    flags = data[at]
    if not flags & LONG:
        return (flags, SHORT_HEADER, data[at + 1]) if len(data) > at + 1 else (flags, 0, 0)
    if len(data) < at + LONG_HEADER:
        return flags, 0, 0
    return flags, LONG_HEADER, int.from_bytes(data[at + 1 : at + LONG_HEADER], "big")


def measure_1(data: bytes, at: int) -> tuple[int, int, int]:
    """Return the same of a frame of 1.0.

    Its length counts the flags.  The size is -1 if the length is 0, which is wrong.
    """
    length, head = data[at], SHORT_HEADER
    # 13/ZMTP: 0xFF is no length, but says that eight octets with the length follow.
    if length == LONG_1:
        if len(data) < at + LONG_HEADER_1 - 1:
            return 0, 0, 0
        length, head = int.from_bytes(data[at + 1 : at + 9], "big"), LONG_HEADER_1
    if not length:
        return 0, head, -1
    # 13/ZMTP reserves the other flags, and not all peers clear them.
    return (data[at + head - 1] & MORE, head, length - 1) if len(data) >= at + head else (0, 0, 0)


def _short_header(version: int, size: int, flags: int) -> bytes:
    return bytes((size + 1, flags)) if version == 1 else bytes((flags, size))


@cache
def _short_headers(version: int) -> tuple[bytes, ...]:
    """Return the headers of last parts by size."""
    # The size is that of a body. In 1.0 the length counts the flags as well, and 255 stands for a long frame.
    most = LONG_1 - 1 if version == 1 else LONG_1 + 1
    return tuple(_short_header(version, size, 0) for size in range(most))


class Framing:
    """Writes the frames of one version."""

    def __init__(self, version: int) -> None:
        self.version = version
        self.measure = measure_1 if version == 1 else measure
        self._short = _short_headers(version)
        self._empty_part = _short_header(version, 0, MORE)

    def header(self, size: int, flags: int = 0) -> bytes:
        """Return the header of a body of ``size`` bytes; ``flags``: MORE, COMMAND or nothing."""
        if size < len(self._short):
            return _short_header(self.version, size, flags) if flags else self._short[size]
        if self.version == 1:
            return bytes((LONG_1,)) + (size + 1).to_bytes(8, "big") + bytes((flags,))
        return bytes((flags | LONG,)) + size.to_bytes(8, "big")

    def frame(self, body: bytes, flags: int = 0) -> bytes:
        """Return one whole frame."""
        return self.header(len(body), flags) + body

    def _before(self, parts: Sequence[bytes]) -> bytes:
        """Return frames of parts that others follow."""
        # What stands before a question or an answer without addresses.
        if parts == _NO_ADDRESSES:
            return self._empty_part
        return b"".join([self.frame(part, MORE) for part in parts])

    def encode(self, bodies: Sequence[Any], width: int = 0, before: Sequence[bytes] = ()) -> list[Buffer]:
        """Return messages of one part each, each behind the parts ``before``, in few buffers.

        ``width``: the size of the bodies if it is the same for all, else 0.
        """
        first = self._before(before) if before else b""
        short = self._short
        if 0 < width < REFERENCE_FROM:
            head = first + (short[width] if width < len(short) else self.header(width))
            # The empty first item puts a header in front of the first body, too.
            return [head.join((b"", *bodies))]
        # All have headers of two octets, which are looked up and not made.
        if max(map(len, bodies), default=0) < len(short):
            heads = map(short.__getitem__, map(len, bodies))
            if first:
                rows = zip(repeat(first, len(bodies)), heads, bodies, strict=True)
                return [b"".join(chain.from_iterable(rows))]
            return [b"".join(chain.from_iterable(zip(heads, bodies, strict=True)))]
        return self.encode_parts([(body,) for body in bodies], before)

    def encode_parts(
        self, messages: Sequence[tuple[Buffer, ...]], before: Sequence[bytes] = ()
    ) -> list[Buffer]:
        """Return messages of several parts each, each behind the parts ``before``."""
        first = self._before(before) if before else b""
        buffers: list[Buffer] = []
        small: list[Buffer] = []
        for parts in messages:
            small.append(first)
            last = len(parts) - 1
            for index, part in enumerate(parts):
                size = len(part)
                small.append(self.header(size, MORE if index < last else 0))
                if size < REFERENCE_FROM:
                    small.append(part)
                else:
                    buffers += (b"".join(small), part)
                    small = []
        if small:
            buffers.append(b"".join(small))
        return buffers


@cache
def short_heads(before: bytes) -> tuple[bytes, ...]:
    """Return ``before`` and the header of a last part behind it, by the size of that part; from 2.0 on."""
    return tuple(before + header for header in _short_headers(MODERN))


FRAMINGS = {version: Framing(version) for version in (1, 2, 3)}


def run_length(data: bytes, position: int, stride: int, heads: Sequence[int], most: int) -> int:
    """Count the messages from ``position`` on that have the same headers as the first; at most ``most``.

    ``heads``: where in the first message the bytes of its headers are.  The headers of a message say where
    the next message begins.  So if the bytes at distances of one message are equal, each of them is a header.
    They are compared in C.
    """
    count, probe = 1, 8
    while count < most:
        # Four times as many in each step: a flow that changes soon costs little, a long one few steps.
        equal = min(probe, most - count)
        asked = equal
        start = position + count * stride
        for head in heads:
            column = data[start + head : start + head + (equal - 1) * stride + 1 : stride]
            # What is left begins with the first octet that differs, so the count falls to that of the equal
            # ones before it.
            equal -= len(column.lstrip(data[position + head : position + head + 1]))
            if not equal:
                return count
        count += equal
        if equal < asked:
            break
        probe *= 4
    return count
