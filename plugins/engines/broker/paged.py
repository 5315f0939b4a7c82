"""Paged: messages of a queue that are not in memory, in their place among those that are.

The store makes them, and turns them into spans when the front of the queue gets there.  The queue knows how many
they are, how large, and when the first of them expires; where they lie is the store's affair.
"""

from __future__ import annotations

from typing import Protocol as Interface


class Paged(Interface):
    """Consecutive messages, possibly with gaps."""

    @property
    def batch(self) -> None:
        """None: what tells it from a span."""
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
        """When the first of them expires; 0: not known, read it and see."""
        ...

    @property
    def mortal(self) -> bool:
        """Whether any of them expires."""
        ...

    @property
    def redelivered(self) -> bool:
        """Whether they were handed out before."""
        ...

    def detach(self) -> None:
        """They are not wanted any more."""
        ...
