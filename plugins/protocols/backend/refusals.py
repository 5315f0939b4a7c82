"""Refusals: messages that are not sent, because the peer would end the connection when it gets them.

The limits are those that the peer has announced in its greeting.  A confirmation of the peer counts only what
was sent.  The owner counts all its messages.  A refused message therefore counts as confirmed as soon as all
messages before it are: the peer will never get it, and waiting for it would stop everything behind it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

from kernel.contracts.message import Batch, batch_of
from kernel.contracts.protocol import Refusal
from plugins.protocols.backend.frames import MAX_PARTS, header


class Refusals:
    """The refused messages of one conversation."""

    __slots__ = ("_passed", "_positions", "most", "news")

    def __init__(self) -> None:
        self.most = (1 << 56) - 1
        """Bytes of the largest message that the peer accepts."""
        self.news: list[Refusal] = []
        """Messages that were refused.  The host reads and removes the entries."""
        self._positions: deque[int] = deque()
        """How many messages had been sent before each refused one that does not count as confirmed yet."""
        self._passed = 0
        """Refused messages that count as confirmed."""

    def sift(self, batch: Batch, sent: int) -> Batch:
        """Return the batch without messages that are too large.  ``sent``: messages sent before it."""
        sizes = list(map(_size_of_parts if batch.multipart else len, batch.bodies))
        most = self.most
        has_many_parts = batch.multipart and max(map(len, batch.bodies), default=0) > MAX_PARTS
        # ``send_batches`` asks for every batch that is too large as a whole.  Usually no single message is.
        if max(sizes, default=0) <= most and not has_many_parts:
            return batch
        accepted: list[Any] = []
        for body, size in zip(batch.bodies, sizes, strict=True):
            if size > most:
                self._note(
                    sent + len(accepted), f"a message of {size} bytes; the peer takes {most} at the most"
                )
            elif has_many_parts and len(body) > MAX_PARTS:
                self._note(
                    sent + len(accepted),
                    f"a message of {len(body)} parts; a peer takes {MAX_PARTS} at the most",
                )
            else:
                accepted.append(body)
        return batch_of(accepted, batch.envelope, multipart=batch.multipart)

    def refuse(self, batch: Batch, sent: int, why: str) -> None:
        """Refuse all messages of a batch.  ``sent``: messages sent before it."""
        for _ in batch.bodies:
            self._note(sent, why)

    def _note(self, position: int, why: str) -> None:
        # The number in the owner's count: messages sent, messages refused, and this one.
        number = position + self._passed + len(self._positions) + 1
        self._positions.append(position)
        self.news.append(Refusal(number, why))

    def confirmed(self, count: int) -> int:
        """Return how many messages count as confirmed when the peer has confirmed ``count`` of those sent."""
        positions = self._positions
        # A refused message counts as soon as all that were sent before it are confirmed.
        while positions and positions[0] <= count:
            positions.popleft()
            self._passed += 1
        return count + self._passed


def _size_of_parts(parts: Sequence[Any]) -> int:
    """Return the payload size of the PARTS frame."""
    return sum(len(header(len(part))) + len(part) for part in parts)
