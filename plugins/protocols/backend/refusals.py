"""Messages that are not sent, because the peer has said that it would hang up on them.

A confirmation counts what was sent.  So that the flow goes on, a message that was refused counts as confirmed as soon as all
before it are: the peer will never have it, and waiting for that would stop everything behind it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

from kernel.contracts.message import Batch, batch_of
from kernel.contracts.protocol import Refusal
from plugins.protocols.backend.frames import MAX_PARTS, header


class Refusals:
    """One direction of one conversation."""

    __slots__ = ("_passed", "_places", "most", "news")

    def __init__(self) -> None:
        self.most = (1 << 56) - 1
        """Bytes that the peer takes in one message."""
        self.news: list[Refusal] = []
        """Messages that were refused; the host takes them out."""
        self._places: deque[int] = deque()  # how many had been sent before each
        self._passed = 0

    def sift(self, batch: Batch, sent: int) -> Batch:
        """Return the batch without what is too large; ``sent`` have been sent before it."""
        sizes = list(map(_size_of_parts if batch.multipart else len, batch.bodies))
        most = self.most
        crowded = batch.multipart and max(map(len, batch.bodies), default=0) > MAX_PARTS
        if max(sizes, default=0) <= most and not crowded:
            return batch
        kept: list[Any] = []
        for body, size in zip(batch.bodies, sizes, strict=True):
            if size > most:
                self._note(sent + len(kept), f"a message of {size} bytes; the peer takes {most} at the most")
            elif crowded and len(body) > MAX_PARTS:
                self._note(
                    sent + len(kept), f"a message of {len(body)} parts; a peer takes {MAX_PARTS} at the most"
                )
            else:
                kept.append(body)
        return batch_of(kept, batch.envelope, multipart=batch.multipart)

    def refuse(self, batch: Batch, sent: int, why: str) -> None:
        """Refuse a whole batch."""
        for _ in batch.bodies:
            self._note(sent, why)

    def _note(self, place: int, why: str) -> None:
        number = place + self._passed + len(self._places) + 1  # those sent, those refused, and this one
        self._places.append(place)
        self.news.append(Refusal(number, why))

    def confirmed(self, count: int) -> int:
        """Return how many messages are dealt with when the peer has confirmed ``count`` of those sent."""
        places = self._places
        while places and places[0] <= count:
            places.popleft()
            self._passed += 1
        return count + self._passed


def _size_of_parts(parts: Sequence[Any]) -> int:
    """Return the payload of the frame that the parts travel in."""
    return sum(len(header(len(part))) + len(part) for part in parts)
