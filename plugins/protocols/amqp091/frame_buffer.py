"""FrameBuffer: turns chunks, as the transport has cut them, into data that begins at a frame.

A chunk may end anywhere in a frame.  Its rest waits here, in a list, until enough octets have come for the
frame that begins there.  Only then the list is joined.  So each octet is copied a bounded number of times,
even if the peer sends single octets: to join at every chunk would cost time quadratic in the frame's size,
and a peer could ask for that with one large frame in small pieces.

The buffer knows neither states nor methods.  ``Conversation`` owns one, and decides what is read from the
data.
"""

from __future__ import annotations

from plugins.protocols.amqp091 import frames
from plugins.protocols.amqp091.errors import BoundariesLost


class FrameBuffer:
    """The octets that were received and not read yet."""

    __slots__ = ("_needed", "_size", "chunks")

    def __init__(self) -> None:
        self.chunks: list[bytes] = []
        """What waits for the rest of a frame; empty: the next chunk begins with a frame."""
        self._size = 0
        self._needed = 0

    def add(self, chunk: bytes) -> bytes:
        """Return all octets that are to be read now; empty while the first frame is still incomplete.

        Called while ``chunks`` is not empty: else ``chunk`` itself is what is to be read.
        """
        self.chunks.append(chunk)
        self._size += len(chunk)
        if self._size < self._needed:
            return b""
        whole = b"".join(self.chunks)
        self.chunks.clear()
        return whole

    def keep(self, rest: bytes, needed: int) -> None:
        """Keep octets that ``add`` has returned and that could not be read, until there are ``needed``."""
        self.chunks.append(rest)
        self._size = len(rest)
        self._needed = needed


def frame_end(data: bytes, position: int, frame_max: int) -> int:
    """Return the position behind the frame at ``position``, which may lie beyond the data.

    At least ``frames.OVERHEAD`` octets have to be there.  Raises ``BoundariesLost``.
    """
    kind, _, size = frames.frame_header.unpack_from(data, position)
    # Type and size are checked before the frame is complete.  Otherwise a wrong size of up to 4 GiB would
    # have us collect octets of a peer that has lost its own frame boundaries.
    if kind not in (frames.METHOD, frames.HEADER, frames.BODY, frames.HEARTBEAT):
        raise BoundariesLost(f"unknown frame type {kind}")
    # The specification counts the overhead of a frame into frame_max.  RabbitMQ compares only the payload,
    # because clients forget the overhead, and so do we.
    if frame_max and size > frame_max:
        raise BoundariesLost(
            f"a frame with {size} octets of payload is larger than frame_max {frame_max} allows"
        )
    following: int = position + frames.OVERHEAD + size
    # Section 4.2.3: the end octet is there to detect a wrong size.
    if following <= len(data) and data[following - 1] != frames.END:
        raise BoundariesLost(f"frame end is {data[following - 1]:#04x}, not 0xce")
    return following
