"""Own contents: a content header that no template knows, and the one body frame behind it.

Requests with a correlation id each, say: the method frame is known, the properties never are.
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from plugins.protocols.amqp091.frames import BODY, END, HEADER, OVERHEAD, frame_header

_content_sizes = Struct(">IQ").unpack_from
_BASIC = 60 << 16
"""Class and weight of a content header, read as one number."""


class OwnContent(NamedTuple):
    """What was read."""

    raw: bytes
    """The property list."""
    body: bytes
    end: int
    """The position after it."""


def read_own_content(data: bytes, start: int, channel: int, maximum: int) -> OwnContent | None:
    """Read a content that begins at ``start``; None if it is not whole, in several frames, or not as it should be.

    ``maximum``: the largest body.  There are seven octets at ``start``, at least.
    """
    kind, number, header_size = frame_header.unpack_from(data, start)
    body_frame = start + OVERHEAD + header_size
    if kind != HEADER or number != channel or not 14 <= header_size <= maximum:
        return None
    if body_frame + 7 > len(data) or data[body_frame - 1] != END:
        return None
    class_and_weight, size = _content_sizes(data, start + 7)
    kind, number, frame_size = frame_header.unpack_from(data, body_frame)
    stop = body_frame + 7 + frame_size
    if class_and_weight != _BASIC or kind != BODY or number != channel or size != frame_size:
        return None
    if stop >= len(data) or data[stop] != END or not 0 < size <= maximum:
        return None
    return OwnContent(data[start + 19 : body_frame - 1], data[body_frame + 7 : stop], stop + 1)
