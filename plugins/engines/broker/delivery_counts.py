"""Delivery counts: how often each message of a quorum queue came back, as RabbitMQ's quorum queues count it.

A message that consumers return more often than ``x-delivery-limit`` allows is dropped, or dead-lettered with
the reason ``delivery_limit``.  Consumers see the count in the header ``x-delivery-count``.

Only messages that came back have an entry, so a queue whose messages are acknowledged has none.  The counts
are not stored: after a restart they begin again.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from kernel.contracts.message import Envelope
from kernel.contracts.properties import changed
from plugins.engines.broker.dead_letters import headers_of
from plugins.engines.broker.span import Span

HEADER = "x-delivery-count"
_MOST_ENVELOPES = 64
"""Clients choose headers, so that an envelope may be large."""


class DeliveryCounts:
    """The counts of one queue, by the positions of its messages."""

    __slots__ = ("_counts", "_limit", "_marked")

    def __init__(self, limit: int | None) -> None:
        """``limit``: how often a message may come back; None: any number of times."""
        self._limit = limit
        self._counts: dict[int, int] = {}
        # An envelope for each count, so that messages of one flow share it.
        self._marked: dict[tuple[Envelope, int], Envelope] = {}

    def take_limit(self, limit: int | None) -> None:
        """The limit has changed; it counts for messages that come back from now on."""
        self._limit = limit

    def __bool__(self) -> bool:
        return bool(self._counts)

    def returned(self, span: Span) -> tuple[list[Span], list[Span]]:
        """Count messages that came back; return those to keep, and those that came back too often."""
        counts = self._counts
        for position in range(span.first, span.first + len(span)):
            counts[position] = counts.get(position, 0) + 1
        if self._limit is None:
            return [span], []
        kept: list[Span] = []
        dead: list[Span] = []
        for part, count in self._parts(span):
            (dead if count > self._limit else kept).append(part)
        return kept, dead

    def marked(self, span: Span, *, always: bool = False) -> list[Span]:
        """Return the same messages with their counts in a header.

        ``always``: also those that never came back.
        """
        parts: list[Span] = []
        for part, count in self._parts(span):
            if count or always:
                part.batch = part.batch.under(self._envelope(part.envelope, count))
            parts.append(part)
        return parts

    def unmarked(self, span: Span) -> Span:
        """Return the same messages without that header: dead letters do not have it."""
        envelope = span.envelope
        if HEADER not in headers_of(envelope):
            return span
        envelope = msgspec.structs.replace(
            envelope, properties=changed(envelope.properties, without=(HEADER,))
        )
        return msgspec.structs.replace(span, batch=span.batch.under(envelope))

    def forget(self, first: int, stop: int) -> None:
        """Messages are gone."""
        for position in range(first, stop):
            self._counts.pop(position, None)

    def _parts(self, span: Span) -> Iterator[tuple[Span, int]]:
        """Split a span into parts of one count each."""
        counts = self._counts
        while True:
            first, most = span.first, len(span)
            count = counts.get(first, 0)
            same = next((n for n in range(1, most) if counts.get(first + n, 0) != count), most)
            if same == most:
                yield span, count
                return
            yield span.split(same), count

    def _envelope(self, envelope: Envelope, count: int) -> Envelope:
        marked = self._marked.get((envelope, count))
        if marked is None:
            if len(self._marked) >= _MOST_ENVELOPES:
                self._marked.clear()
            properties = changed(envelope.properties, headers={HEADER: count})
            marked = self._marked[envelope, count] = msgspec.structs.replace(envelope, properties=properties)
        return marked
