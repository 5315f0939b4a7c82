"""Store: the interface through which the broker stores durable definitions and persistent messages.

The broker calls it in the order in which things happen; the store decides when and how they are written.
``EmptyStore`` stores nothing: durable queues then end with the process.

The store counts groups of writes.  ``mark`` is the number of the group that has everything the store was told
so far, and ``safe`` the last group that is durable on disk.  So a caller keeps ``mark``, and answers its
client when ``safe`` has reached it; ``when_safe`` says when to look again.

    store.keep_messages(queue, span)        mark = 7, safe = 5: group 6 is being written
    waits_for = store.mark                  7
    store.flush()                           the turn ends
    ...                                     safe = 6, then safe = 7: answer the client

Numbers are compared instead of callbacks being kept, because a publisher may have thousands of messages that
wait: it remembers one number for all messages of a group.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any
from typing import Protocol as Interface

if TYPE_CHECKING:
    from kernel.contracts.message import Envelope
    from plugins.engines.broker.arguments import QueuePolicy
    from plugins.engines.broker.backlog import Item
    from plugins.engines.broker.binding import Binding
    from plugins.engines.broker.exchange import Exchange
    from plugins.engines.broker.paged import Paged
    from plugins.engines.broker.queue import Queue
    from plugins.engines.broker.span import Span
    from plugins.engines.broker.stored_set import KeptMessage, StoredSet

UNLIMITED = 1 << 62


class Store(Interface):
    """Called by the broker's thread.

    Only ``read`` and ``look`` wait for the disk, and only the ``check_*`` methods raise.
    """

    definition_version: int
    """Counts the definitions that were written or dropped.

    A session compares it before and after a request.  If it differs, the answer waits until the store is
    durable up to ``demand()``.
    """

    clock_ahead: float
    """What to add to a time of the broker for one that still means something after a restart."""

    @property
    def mark(self) -> int:
        """The value of ``safe`` from which on everything up to now is durable."""
        ...

    @property
    def safe(self) -> int:
        """The last group that is durable on disk."""
        ...

    def demand(self) -> int:
        """Return ``mark``, and have everything up to now synced because a client waits for it.

        Acknowledgements that no client waits for are written at once, too, but are not synced at once.
        """
        ...

    @property
    def full(self) -> bool:
        """Whether so much waits for the disk that publishers have to wait."""
        ...

    def when_safe(self, callback: Callable[[], None]) -> None:
        """Call ``callback`` once, when ``safe`` has changed next."""
        ...

    def flush(self) -> None:
        """The turn ends: start to write, unless a write is under way."""
        ...

    def check_envelope(self, envelope: Envelope) -> None:
        """Raise ``PreconditionFailed`` for an envelope that cannot be written.

        Called before its messages are accepted.
        """
        ...

    def check_arguments(self, arguments: Mapping[str, Any]) -> None:
        """Raise ``PreconditionFailed`` for arguments that cannot be written.

        Called before a durable thing is created.
        """
        ...

    def keep_exchange(self, vhost: str, exchange: Exchange) -> None:
        """A durable exchange was declared."""
        ...

    def drop_exchange(self, exchange: Exchange) -> None:
        """A durable exchange was deleted."""
        ...

    def keep_queue(self, queue: Queue) -> None:
        """A durable queue was declared."""
        ...

    def drop_queue(self, queue: Queue) -> None:
        """A queue, durable or not, was deleted with its messages."""
        ...

    def number_of(self, queue: Queue) -> int:
        """Return the number of a queue, which it has after a restart as well; 0: its messages are not stored.

        Another queue of the same name has another number.
        """
        ...

    def keep_binding(self, vhost: str, binding: Binding) -> None:
        """A durable binding was added."""
        ...

    def drop_binding(self, binding: Binding) -> None:
        """A durable binding was removed."""
        ...

    def keep_messages(self, queue: Queue, span: Span) -> None:
        """Persistent messages were published to a durable queue.

        Queue and position identify each of them.
        """
        ...

    def drop_messages(self, queue: Queue, item: Item) -> None:
        """Stored messages were acknowledged, dropped or dead-lettered."""
        ...

    def keep_set(self, stored_set: StoredSet) -> None:
        """A stored set was created."""
        ...

    def drop_set(self, stored_set: StoredSet) -> None:
        """A stored set was deleted with its messages."""
        ...

    def keep_in_set(self, stored_set: StoredSet, span: Span) -> None:
        """Messages were put into a set.

        If queues have kept messages of the same batch in this turn, all of it becomes one record.
        """
        ...

    def drop_from_set(self, stored_set: StoredSet, first: int, stop: int) -> None:
        """Numbers of a set, some of which may have no message, are not needed any more."""
        ...

    def numbers_of_set(self, stored_set: StoredSet) -> list[tuple[int, int]]:
        """Return the numbers of the messages of a set, as ranges."""
        ...

    def read_set(self, page: Paged) -> list[KeptMessage]:
        """Return those messages of a page of a set that were not dropped."""
        ...

    def most_resident(self, policy: QueuePolicy) -> int:
        """Return how many octets of ready bodies a queue with this policy may have in memory."""
        ...

    def weigh(self, queue: Queue) -> None:
        """A queue has a limit of octets from now on: replace what is estimated of its size by what it is."""
        ...

    def page_out(self, queue: Queue) -> None:
        """A queue has more bodies in memory than ``Queue.most_resident``.

        Write its tail to disk, and replace it in the backlog by pages.
        """
        ...

    def share_memory(self, queues: Collection[Queue]) -> None:
        """Divide the memory among all queues again; called from time to time."""
        ...

    def read(self, page: Paged, following: Item | None) -> list[Span]:
        """Return the messages of a page; ``following`` is the item that will be read next."""
        ...

    def look(self, page: Paged) -> list[Span]:
        """Return the messages of a page, which stays as it is.  What cannot be read is missing."""
        ...


class EmptyStore:
    """Stores nothing, so everything is always as durable as it will be."""

    definition_version = 0
    clock_ahead = 0.0
    mark = 0
    safe = 0
    full = False

    def demand(self) -> int:
        """There is nothing to wait for."""
        return 0

    def when_safe(self, callback: Callable[[], None]) -> None:
        """Never called: no mark is ahead of ``safe``."""

    def flush(self) -> None:
        """Write nothing."""

    def check_envelope(self, envelope: Envelope) -> None:
        """Nothing is written."""

    def check_arguments(self, arguments: Mapping[str, Any]) -> None:
        """Nothing is written."""

    def keep_exchange(self, vhost: str, exchange: Exchange) -> None:
        """Store nothing."""

    def drop_exchange(self, exchange: Exchange) -> None:
        """Store nothing."""

    def keep_queue(self, queue: Queue) -> None:
        """Store nothing."""

    def drop_queue(self, queue: Queue) -> None:
        """Store nothing."""

    def number_of(self, queue: Queue) -> int:
        """Nothing was stored."""
        return 0

    def keep_binding(self, vhost: str, binding: Binding) -> None:
        """Store nothing."""

    def drop_binding(self, binding: Binding) -> None:
        """Store nothing."""

    def keep_messages(self, queue: Queue, span: Span) -> None:
        """Store nothing."""

    def drop_messages(self, queue: Queue, item: Item) -> None:
        """Store nothing."""

    def keep_set(self, stored_set: StoredSet) -> None:
        """Store nothing."""

    def drop_set(self, stored_set: StoredSet) -> None:
        """Store nothing."""

    def keep_in_set(self, stored_set: StoredSet, span: Span) -> None:
        """Store nothing."""

    def drop_from_set(self, stored_set: StoredSet, first: int, stop: int) -> None:
        """Store nothing."""

    def numbers_of_set(self, stored_set: StoredSet) -> list[tuple[int, int]]:
        """Nothing was stored."""
        return []

    def read_set(self, page: Paged) -> list[KeptMessage]:
        """Nothing was stored."""
        return []

    def most_resident(self, policy: QueuePolicy) -> int:
        """There is no limit, because there is no disk."""
        return UNLIMITED

    def weigh(self, queue: Queue) -> None:
        """Everything is in memory, and its size is known."""

    def page_out(self, queue: Queue) -> None:
        """There is no disk."""

    def share_memory(self, queues: Collection[Queue]) -> None:
        """There is no limit to divide."""

    def read(self, page: Paged, following: Item | None) -> list[Span]:
        """Nothing was paged out."""
        return []

    def look(self, page: Paged) -> list[Span]:
        """Nothing was paged out."""
        return []
