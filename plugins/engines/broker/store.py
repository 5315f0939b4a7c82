"""Store: the seam behind which durable definitions and persistent messages are written down.

The broker calls it in the order in which things happened; the store decides how they get to disk.
``EmptyStore`` keeps nothing: a broker whose durable queues last as long as its process.
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

UNLIMITED = 1 << 62


class Store(Interface):
    """What the broker tells a store.  Called by the broker's thread; only reading waits, only checks raise."""

    definition_version: int
    """Counts the definitions that were written or dropped.

    A session compares it before and after a request.  If it differs, the answer waits until the store is durable up
    to ``demand()``.
    """

    @property
    def mark(self) -> int:
        """What ``safe`` reaches when all that was told so far is safe."""
        ...

    @property
    def safe(self) -> int:
        """How far what was told is safe."""
        ...

    def demand(self) -> int:
        """Return ``mark``; a client is told when it is reached, also if all that was told are acknowledgements.

        Those that nobody waits for are written at once, too, but need not outlive a power cut.
        """
        ...

    @property
    def full(self) -> bool:
        """Whether so much waits for the disk that publishers have to."""
        ...

    def when_safe(self, callback: Callable[[], None]) -> None:
        """Call back once, when ``safe`` has moved."""
        ...

    def flush(self) -> None:
        """The end of a turn: what was told may be on its way."""
        ...

    def check_envelope(self, envelope: Envelope) -> None:
        """Refuse (``PreconditionFailed``) an envelope that could not be written; asked before messages are taken."""
        ...

    def check_arguments(self, arguments: Mapping[str, Any]) -> None:
        """Refuse arguments of a durable thing that could not be written; asked before it is made."""
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
        """A queue, durable or not, was deleted with all that was in it."""
        ...

    def keep_binding(self, vhost: str, binding: Binding) -> None:
        """A binding between durable ends was made."""
        ...

    def drop_binding(self, binding: Binding) -> None:
        """A binding between durable ends was taken away."""
        ...

    def keep_messages(self, queue: Queue, span: Span) -> None:
        """Persistent messages entered a durable queue; their positions are their names there."""
        ...

    def drop_messages(self, queue: Queue, held: Item) -> None:
        """Messages that are written down were acknowledged, dropped, or went elsewhere."""
        ...

    def most_resident(self, policy: QueuePolicy) -> int:
        """Return how many octets of waiting bodies a queue may have in memory."""
        ...

    def page_out(self, queue: Queue) -> None:
        """A queue has more than that."""
        ...

    def share_memory(self, queues: Collection[Queue]) -> None:
        """Divide anew among all queues what they may have in memory together; to be called now and then."""
        ...

    def read(self, page: Paged, following: Item | None) -> list[Span]:
        """Return a page's messages; ``following`` is what will be wanted next."""
        ...


class EmptyStore:
    """Keeps nothing, and so is always done."""

    definition_version = 0
    mark = 0
    safe = 0
    full = False

    def demand(self) -> int:
        """Nothing is waited for."""
        return 0

    def when_safe(self, callback: Callable[[], None]) -> None:
        """All is as safe as it will ever be: nobody asks."""

    def flush(self) -> None:
        """Write nothing."""

    def check_envelope(self, envelope: Envelope) -> None:
        """Nothing is written."""

    def check_arguments(self, arguments: Mapping[str, Any]) -> None:
        """Nothing is written."""

    def keep_exchange(self, vhost: str, exchange: Exchange) -> None:
        """Keep nothing."""

    def drop_exchange(self, exchange: Exchange) -> None:
        """Keep nothing."""

    def keep_queue(self, queue: Queue) -> None:
        """Keep nothing."""

    def drop_queue(self, queue: Queue) -> None:
        """Keep nothing."""

    def keep_binding(self, vhost: str, binding: Binding) -> None:
        """Keep nothing."""

    def drop_binding(self, binding: Binding) -> None:
        """Keep nothing."""

    def keep_messages(self, queue: Queue, span: Span) -> None:
        """Keep nothing."""

    def drop_messages(self, queue: Queue, held: Item) -> None:
        """Keep nothing."""

    def most_resident(self, policy: QueuePolicy) -> int:
        """All: there is no other place for them."""
        return UNLIMITED

    def page_out(self, queue: Queue) -> None:
        """There is nowhere to go."""

    def share_memory(self, queues: Collection[Queue]) -> None:
        """There is nothing to divide."""

    def read(self, page: Paged, following: Item | None) -> list[Span]:
        """Nothing was paged out."""
        return []
