"""Span: consecutive messages of a queue, as a range of the batch in which they were published.

To split a span changes two numbers and copies no body.  Queues that got the same batch share it, so a batch
is never changed.  A body is freed when no span of any queue has its batch any more: one message that stays
unacknowledged keeps the bodies of all messages of its batch.
"""

from __future__ import annotations

from typing import Any

import msgspec

from kernel.contracts.message import Batch, Envelope


class Span(msgspec.Struct, gc=False):
    """Messages ``start`` up to ``stop`` (exclusive) of ``batch``.

    Message ``i`` has position ``base + i`` in its queue.
    """

    base: int
    batch: Batch
    start: int
    stop: int
    expires_at: float | None = None
    redelivered: bool = False
    location: Any = None
    """The store's object for where the messages are on disk; None: they are not stored.  Opaque here."""

    def __len__(self) -> int:
        return self.stop - self.start

    @property
    def envelope(self) -> Envelope:
        """The envelope of all messages."""
        return self.batch.envelope

    @property
    def first(self) -> int:
        """The position of the first message in its queue."""
        return self.base + self.start

    def size(self) -> int:
        """Return the sum of the body sizes."""
        # The size of a whole batch is known.  For a part, the bodies have to be looked at if they differ.
        batch = self.batch
        if batch.width:
            return (self.stop - self.start) * batch.width
        if self.stop - self.start == len(batch.bodies):
            return batch.size
        return self.as_batch().size

    def as_batch(self) -> Batch:
        """Return the messages as a batch.

        It is the shared batch if the span has all of its messages, otherwise a slice.
        """
        batch = self.batch
        if self.stop - self.start == len(batch.bodies):
            return batch
        return batch.slice(self.start, self.stop)

    def under(self, envelope: Envelope) -> Batch:
        """Return the messages as a batch under another envelope."""
        batch, start, stop = self.batch, self.start, self.stop
        if batch.width and stop - start != len(batch.bodies):
            # The batch of ``slice`` would only be there to be copied.
            size = (stop - start) * batch.width
            return Batch(batch.bodies[start:stop], size, envelope, False, batch.width, batch.group)
        return self.as_batch().under(envelope)

    def divided(self) -> list[Span]:
        """Return the messages of a keyed batch as spans of batches.  They are not stored."""
        spans: list[Span] = []
        position = self.first
        for batch in self.as_batch().divided():  # type: ignore[attr-defined]  # of keyed batches only
            spans.append(Span(position, batch, 0, len(batch.bodies), self.expires_at, self.redelivered))
            position += len(batch.bodies)
        return spans

    def split(self, count: int) -> Span:
        """Remove the first ``count`` messages from this span and return them as another span."""
        cut = self.start + count
        # ``base`` stays: a position is computed from the index in the batch, which does not change.
        front = Span(self.base, self.batch, self.start, cut, self.expires_at, self.redelivered, self.location)
        self.start = cut
        return front

    def continues(self, before: Span) -> bool:
        """Whether this span directly follows ``before``, and both can be joined into one span."""
        return (
            self.batch is before.batch
            and self.start == before.stop
            and self.base == before.base
            and self.redelivered == before.redelivered
            and self.expires_at == before.expires_at
            # The store may have written one of them and not the other, or may have written one again.
            and self.location is before.location
        )
