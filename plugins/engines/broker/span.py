"""Span: consecutive messages of a queue, as a window on the batch they came in.

Splitting a span moves two numbers and copies no body; bodies are sliced where they are encoded.
"""

from __future__ import annotations

from typing import Any

import msgspec

from kernel.contracts.message import Batch, Envelope


class Span(msgspec.Struct, gc=False):
    """Messages ``start`` up to ``stop`` of ``batch``; message ``i`` has the position ``base + i`` in its queue."""

    base: int
    batch: Batch
    start: int
    stop: int
    expires_at: float | None = None
    redelivered: bool = False
    location: Any = None
    """The store's note of where it is written down; None: it is not.  Nobody else looks into it."""

    def __len__(self) -> int:
        return self.stop - self.start

    @property
    def envelope(self) -> Envelope:
        """What the messages have in common."""
        return self.batch.envelope

    @property
    def first(self) -> int:
        """The position of the first message in its queue."""
        return self.base + self.start

    def size(self) -> int:
        """Return the sum of the body sizes."""
        batch = self.batch
        if self.stop - self.start == len(batch.bodies):
            return batch.size
        return self.as_batch().size

    def as_batch(self) -> Batch:
        """Return the messages as a batch: the shared one where the span covers it whole."""
        batch = self.batch
        if self.stop - self.start == len(batch.bodies):
            return batch
        return batch.slice(self.start, self.stop)

    def split(self, count: int) -> Span:
        """Cut the first ``count`` messages off and return them as a span of their own."""
        cut = self.start + count
        front = Span(self.base, self.batch, self.start, cut, self.expires_at, self.redelivered, self.location)
        self.start = cut
        return front

    def continues(self, before: Span) -> bool:
        """Whether this span follows ``before`` so exactly that the two can be one."""
        return (
            self.batch is before.batch
            and self.start == before.stop
            and self.base == before.base
            and self.redelivered == before.redelivered
            and self.expires_at == before.expires_at
            and self.location
            is before.location  # one may have been written, or written again, without the other
        )
