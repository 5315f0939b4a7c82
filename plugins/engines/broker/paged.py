"""Paged: an item of a backlog whose messages are on disk only.

The store creates it, and reads it when it is at the front of the queue.  The queue knows the number of
messages, their size and when the first of them expires.  Only the store knows where they are on disk.
"""

from __future__ import annotations

from typing import Protocol as Interface


class Paged(Interface):
    """Consecutive messages, possibly with gaps."""

    @property
    def batch(self) -> None:
        """None.  A span has a batch here, so this distinguishes a page from a span."""
        ...

    @property
    def count(self) -> int:
        """How many messages."""
        ...

    @property
    def size(self) -> int:
        """Octets of their bodies together; may be an estimate."""
        ...

    @property
    def first(self) -> int:
        """The position of the first message."""
        ...

    @property
    def stop(self) -> int:
        """The position behind the last message."""
        ...

    @property
    def expires_at(self) -> float | None:
        """When the first message expires; None: none does; 0: not known until it is read."""
        ...

    @property
    def may_expire(self) -> bool:
        """Whether any of the messages has an expiry."""
        ...

    @property
    def redelivered(self) -> bool:
        """Whether the messages may have been delivered before."""
        ...

    def detach(self) -> None:
        """The page is not needed any more: its queue was deleted."""
        ...
