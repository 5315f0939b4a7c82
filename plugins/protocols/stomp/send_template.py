"""SendTemplate: the header block of the SEND frames of one envelope, encoded once.

Only the receipt and the length of the body differ between these frames.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kernel.contracts.message import Buffer
from plugins.protocols.stomp.escapes import header_line
from plugins.protocols.stomp.message_template import COPY_LIMIT
from plugins.protocols.stomp.versions import Version


class SendTemplate:
    """Encodes messages of one envelope.  A receipt is a number, the same as that of its message."""

    __slots__ = ("_fixed",)

    def __init__(self, headers: Iterable[tuple[str, str]], version: Version) -> None:
        """Raises ``CannotCarry``."""
        self._fixed = b"SEND\n" + b"".join([header_line(name, value, version) for name, value in headers])

    def encode(self, first: int, bodies: Sequence[Buffer], size: int, *, each: bool) -> list[Buffer]:
        """Encode messages with consecutive numbers; ``size`` is that of all bodies.

        ``each``: every frame asks for a receipt; otherwise the last one does.
        """
        fixed = self._fixed
        parts: list[Buffer] = []
        last = first + len(bodies) - 1
        for number, body in enumerate(bodies, first):
            if each or number == last:
                head = b"%breceipt:%d\ncontent-length:%d\n\n" % (fixed, number, len(body))
            else:
                head = b"%bcontent-length:%d\n\n" % (fixed, len(body))
            parts += (head, body, b"\0")
        if size <= COPY_LIMIT * len(bodies):
            return [b"".join(parts)]
        return parts
