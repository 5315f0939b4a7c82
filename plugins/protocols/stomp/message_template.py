"""MessageTemplate: the header block of the MESSAGE frames of one subscription and envelope, encoded once.

Only the delivery tag and the length of the body differ between these frames.  The tag is the last part of
``message-id``, and of ``ack``, which has the same value.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kernel.contracts.message import Buffer
from plugins.protocols.stomp.escapes import header_line
from plugins.protocols.stomp.frames import END_TO_CLIENTS
from plugins.protocols.stomp.versions import Version

COPY_LIMIT = 4096
"""Octets of a body up to which frames are joined into one buffer.  To write large ones one by one is cheaper
than to copy them."""


class MessageTemplate:
    """Encodes messages of one envelope for one subscription."""

    __slots__ = ("_ack", "_fixed", "_frame", "_rest", "_width", "octets")

    def __init__(
        self,
        first: Iterable[tuple[str, str]],
        message_id: str,
        rest: Iterable[tuple[str, str]],
        version: Version,
        *,
        ack: bool,
    ) -> None:
        """``message_id``: what comes before the delivery tag.  Raises ``CannotCarry``."""
        names = ("message-id", "ack") if ack else ("message-id",)
        tagged = [header_line(name, message_id, version)[:-1] for name in names]
        lines = b"".join([header_line(name, value, version) for name, value in first])
        # Formats of bytes: they are filled in C.
        fixed = b"MESSAGE\n" + lines
        self._fixed = _escaped(fixed) + b"".join([_escaped(line) + b"%d\n" for line in tagged])
        self._rest = b"".join([header_line(name, value, version) for name, value in rest])
        self._ack = ack
        self._frame = b""
        self._width = -1
        self.octets = len(self._fixed) + len(self._rest)
        """What it takes in memory, about."""

    def encode(self, first_tag: int, bodies: Sequence[Buffer], size: int) -> list[Buffer]:
        """Encode messages with consecutive tags; ``size`` is that of all bodies."""
        parts: list[Buffer] = []
        ack = self._ack
        for tag, body in enumerate(bodies, first_tag):
            if len(body) != self._width:
                self._set_width(len(body))
            parts += (self._frame % ((tag, tag) if ack else tag), body, END_TO_CLIENTS)
        if size <= COPY_LIMIT * len(bodies):
            return [b"".join(parts)]
        return parts

    def _set_width(self, width: int) -> None:
        self._width = width
        self._frame = self._fixed + _escaped(b"%bcontent-length:%d\n\n" % (self._rest, width))


def _escaped(octets: bytes) -> bytes:
    return octets.replace(b"%", b"%%")
