"""Store: the seam behind which durable definitions and persistent messages are written down.

The broker calls it in the order in which things happened; the store decides how they get to disk.
``EmptyStore`` keeps nothing: a broker whose durable queues last as long as its process.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING
from typing import Protocol as Interface

if TYPE_CHECKING:
    from plugins.engines.broker.binding import Binding
    from plugins.engines.broker.exchange import Exchange
    from plugins.engines.broker.queue import Queue
    from plugins.engines.broker.span import Span


class Store(Interface):
    """What the broker tells a store.  Called by the broker's thread; may neither wait nor raise."""

    def keep_exchange(self, exchange: Exchange) -> None:
        """A durable exchange was declared."""
        ...

    def drop_exchange(self, exchange: Exchange) -> None:
        """A durable exchange was deleted."""
        ...

    def keep_queue(self, queue: Queue) -> None:
        """A durable queue was declared."""
        ...

    def drop_queue(self, queue: Queue) -> None:
        """A durable queue was deleted with all that was in it."""
        ...

    def keep_binding(self, binding: Binding) -> None:
        """A binding between durable ends was made."""
        ...

    def drop_binding(self, binding: Binding) -> None:
        """A binding between durable ends was taken away."""
        ...

    def keep_messages(self, queue: Queue, span: Span) -> None:
        """Persistent messages entered a durable queue; their positions are their names there."""
        ...

    def drop_messages(self, queue: Queue, span: Span) -> None:
        """Persistent messages were acknowledged, dropped, or went elsewhere."""
        ...

    def when_safe(self, callback: Callable[[], None]) -> bool:
        """Whether all so far is safe; if not, call back once it is (a publisher waits for its confirm)."""
        ...


class EmptyStore:
    """Keeps nothing, and so is always done."""

    def keep_exchange(self, exchange: Exchange) -> None:
        """Keep nothing."""

    def drop_exchange(self, exchange: Exchange) -> None:
        """Keep nothing."""

    def keep_queue(self, queue: Queue) -> None:
        """Keep nothing."""

    def drop_queue(self, queue: Queue) -> None:
        """Keep nothing."""

    def keep_binding(self, binding: Binding) -> None:
        """Keep nothing."""

    def drop_binding(self, binding: Binding) -> None:
        """Keep nothing."""

    def keep_messages(self, queue: Queue, span: Span) -> None:
        """Keep nothing."""

    def drop_messages(self, queue: Queue, span: Span) -> None:
        """Keep nothing."""

    def when_safe(self, callback: Callable[[], None]) -> bool:
        """Nothing is waited for."""
        return True
