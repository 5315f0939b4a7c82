"""Sharing: how much of the memory each queue may have, so that all together have no more than there is for them.

The longest give way first: all queues are cut at one height, and what is below it stays as it is.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

from plugins.engines.broker.backlog import PER_MESSAGE

if TYPE_CHECKING:
    from plugins.engines.broker.queue import Queue
    from plugins.engines.broker.store import Store

LEAST = 512 << 10
"""Octets of bodies that a queue with consumers may hold in any case: two pages, or each would be read again and again."""


def share_memory(queues: Collection[Queue], most: int, store: Store) -> None:
    """Say how many octets of bodies each queue may hold, so that all of them together take ``most``.

    What counts is what they would hold if each had its own limit alone, so that the answer does not
    change while they stay long.
    """
    height = cut(map(_wanted, queues, (store.most_resident(queue.policy) for queue in queues)), most)
    for queue in queues:
        own = store.most_resident(queue.policy)
        queue.most_resident = own if height is None else min(own, _share(queue, height))
        if queue.backlog.size - queue.backlog.paged > queue.most_resident:
            store.page_out(queue)


def cut(sizes: Iterable[int], most: int) -> int | None:
    """Return the height at which sizes have to be cut, so that their sum is ``most``; None: it is no more than that."""
    ascending = sorted(sizes)
    left = most
    for index, size in enumerate(ascending):
        share = left // (len(ascending) - index)
        if size > share:
            return max(0, share)
        left -= size
    return None


def _wanted(queue: Queue, own: int) -> int:
    """Octets of memory that a queue would take by itself."""
    backlog = queue.backlog
    if backlog.size <= own:
        return backlog.size + PER_MESSAGE * backlog.count
    return own + PER_MESSAGE * (backlog.count * own // backlog.size)


def _share(queue: Queue, height: int) -> int:
    """Octets of bodies that take, with what each message costs besides, ``height`` octets of memory."""
    backlog = queue.backlog
    takes = backlog.size + PER_MESSAGE * backlog.count
    bodies = height * backlog.size // takes if takes else height
    return max(LEAST, bodies) if queue.consumer_count else bodies
