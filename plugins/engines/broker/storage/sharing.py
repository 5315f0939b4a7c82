"""Sharing: divides ``all_queues_bytes`` of memory among the queues.

The longest queues give memory up first: there is one limit for all queues, and shorter queues are not
affected.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

from plugins.engines.broker.backlog import PER_MESSAGE

if TYPE_CHECKING:
    from plugins.engines.broker.queue import Queue
    from plugins.engines.broker.store import Store

LEAST = 512 << 10
"""Octets of bodies that a queue with consumers may always have in memory: two pages.

With less, a page that was read would be written out before it is delivered.
"""


def share_memory(queues: Collection[Queue], most: int, store: Store) -> None:
    """Set how many octets of bodies each queue may have in memory, so that all queues together take ``most``.

    The calculation uses what each queue would have with its own limit only, so that the result is stable
    while queues stay long.
    """
    height = cut(map(_wanted, queues, (store.most_resident(queue.policy) for queue in queues)), most)
    for queue in queues:
        own = store.most_resident(queue.policy)
        queue.most_resident = own if height is None else min(own, _share(queue, height))
        if queue.backlog.size - queue.backlog.paged > queue.most_resident:
            store.page_out(queue)


def cut(sizes: Iterable[int], most: int) -> int | None:
    """Return the limit for each size so that the sum is ``most``; None: the sum is not more than that."""
    ascending = sorted(sizes)
    left = most
    for index, size in enumerate(ascending):
        # All sizes from this one on are at least as large, so if this one exceeds an equal share of what is
        # left, they all do, and the share is the limit.
        share = left // (len(ascending) - index)
        if size > share:
            return max(0, share)
        left -= size
    return None


def _wanted(queue: Queue, own: int) -> int:
    """Return the octets of memory that a queue takes with the limit ``own``."""
    backlog = queue.backlog
    if backlog.size <= own:
        return backlog.size + PER_MESSAGE * backlog.count
    # Pages take no memory worth counting, so only the messages that stay in memory count, with bodies of
    # average size.
    return own + PER_MESSAGE * (backlog.count * own // backlog.size)


def _share(queue: Queue, height: int) -> int:
    """Return the octets of bodies that take ``height`` octets of memory.

    The memory includes the overhead of each message.
    """
    backlog = queue.backlog
    takes = backlog.size + PER_MESSAGE * backlog.count
    bodies = height * backlog.size // takes if takes else height
    # Without a consumer nobody reads the queue soon, and it may give up everything.
    return max(LEAST, bodies) if queue.consumer_count else bodies
