"""Peek: look at the first messages of a queue, and leave them as they are.

Nothing is taken, so that the order stays, no message counts as redelivered, and consumers are not affected.
Pages are read from disk and stay pages.
"""

from __future__ import annotations

from collections.abc import Iterator

from kernel.contracts.shown import MOST_BYTES, Row, shown
from plugins.engines.broker.queue import Queue
from plugins.engines.broker.span import Span

MOST_READ = 16 * 1024 * 1024
"""Octets of bodies that are read from disk for one answer: the broker does nothing else meanwhile."""


def peek(queue: Queue, most: int, now: float, most_bytes: int = MOST_BYTES) -> tuple[list[Row], bool]:
    """Return the first ``most`` ready messages in the order of their delivery, and whether that is all.

    It is not, if there are more messages, or if more than ``MOST_READ`` octets would have to be read from
    disk.  ``most_bytes``: how much is shown of each body.
    """
    rows: list[Row] = []
    for span, on_disk in _spans(queue):
        if span is None:
            return rows, False
        # They are dropped as soon as they are at the front and the queue is processed.
        if span.expires_at is not None and span.expires_at <= now:
            continue
        for index in range(span.start, span.stop):
            if len(rows) >= most:
                return rows, False
            rows.append(
                {
                    "position": span.base + index,
                    "redelivered": span.redelivered,
                    "on_disk": on_disk,
                    "expires_in": None if span.expires_at is None else round(span.expires_at - now, 3),
                    **shown(span.envelope, span.batch.bodies[index], most_bytes),
                }
            )
    return rows, True


def _spans(queue: Queue) -> Iterator[tuple[Span | None, bool]]:
    """Yield the ready messages, and whether they are on disk only.

    No span: too much would have to be read.
    """
    read = 0
    for level in reversed(queue.backlog.levels):
        for item in level:
            if item.batch is not None:
                yield item, False
                continue
            # The first page in any case, or a queue of very large messages would show none.
            if read and read + item.size > MOST_READ:
                yield None, True
                return
            read += item.size
            for span in queue.vhost.store.look(item):
                yield span, True
