"""Reads a content that lies whole in the buffer: a content header and exactly one body frame.

The batch readers use it when the method frame of a message is known but its properties are new.  That is the
case for requests, for example, each of which has its own correlation id.
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from plugins.protocols.amqp091.frames import BODY, END, HEADER, OVERHEAD, frame_header

_content_sizes = Struct(">IQ").unpack_from
_BASIC = 60 << 16
"""Class and weight of a content header, read as one number."""


class WholeContent(NamedTuple):
    """A content that was read."""

    raw: bytes
    """Property flags and property list."""
    body: bytes
    end: int
    """The position behind the body frame."""


def read_whole_content(data: bytes, start: int, channel: int, maximum: int) -> WholeContent | None:
    """Read the content that begins at ``start``.

    Return None if it is incomplete, has several body frames, or is malformed; the caller then reads it frame
    by frame.  ``maximum``: octets of the largest body.  At least seven octets must be there from ``start``
    on.
    """
    kind, number, header_size = frame_header.unpack_from(data, start)
    body_frame = start + OVERHEAD + header_size
    # Fourteen octets: class, weight, body size and the property flags.  The frame limit applies to the header
    # as it does to the body.
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
    # 19: seven octets of frame header and twelve of class, weight and body size.
    return WholeContent(data[start + 19 : body_frame - 1], data[body_frame + 7 : stop], stop + 1)
