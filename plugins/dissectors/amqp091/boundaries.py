"""Where frames of AMQP begin: in step, and in the middle of a stream of which something was missed."""

from __future__ import annotations

import re

from kernel.contracts.errors import RemoteProtocolError
from plugins.protocols.amqp091 import frames

_TYPES = (frames.METHOD, frames.HEADER, frames.BODY, frames.HEARTBEAT)
_HEAD = frames.frame_header.size
_CANDIDATE = re.compile(rb"[\x01\x02\x03\x08]")
_BASIC = b"\x00\x3c"
_PLAUSIBLE_SIZE = 1 << 20
"""Of a frame that is looked for; whoever allows larger ones is not found back into step by them."""


def measure(data: bytes, at: int) -> int:
    """Return the size of the frame, or protocol header, at ``at``; 0 if more of it has to be seen."""
    if data[at] == frames.PROTOCOL_HEADER[0] and frames.PROTOCOL_HEADER.startswith(data[at : at + 4]):
        return len(frames.PROTOCOL_HEADER)
    if data[at] not in _TYPES:
        raise RemoteProtocolError(f"unknown frame type {data[at]}")
    if len(data) < at + _HEAD:
        return 0
    size: int = frames.OVERHEAD + int.from_bytes(data[at + 3 : at + _HEAD], "big")
    if at + size <= len(data) and data[at + size - 1] != frames.END:
        raise RemoteProtocolError(f"frame end is {data[at + size - 1]:#04x}, not 0xce")
    return size


def find(data: bytes) -> int:
    """Return where a frame begins beyond reasonable doubt; -1: nowhere."""
    if data.startswith(frames.PROTOCOL_HEADER[:5]):
        return 0
    for match in _CANDIDATE.finditer(data):
        if _begins(data, match.start()):
            return match.start()
    return -1


def _begins(data: bytes, at: int) -> bool:
    kind, channel, size = (
        (*frames.frame_header.unpack_from(data, at),) if len(data) >= at + _HEAD else (0, 0, 0)
    )
    end = at + frames.OVERHEAD + size
    if not kind or size > _PLAUSIBLE_SIZE or end > len(data) or data[end - 1] != frames.END:
        return False
    if kind == frames.METHOD:
        return data[at + _HEAD : at + _HEAD + 4] in frames.METHODS
    if kind == frames.HEADER:
        return data[at + _HEAD : at + _HEAD + 4] == _BASIC + b"\0\0"
    if kind == frames.HEARTBEAT:
        return not channel and not size
    return end == len(data) or _begins(data, end)
