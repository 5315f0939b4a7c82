"""Work: what publisher and consumer of one measurement are to do."""

from __future__ import annotations

from dataclasses import dataclass

BATCH = 1000
"""Messages in one batch call, where a client has such calls."""


@dataclass(frozen=True)
class Work:
    """Messages from a publisher through a queue of their own, which goes with its consumer."""

    queue: str
    count: int
    size: int = 100
    acks: bool = False
    """Whether the consumer acknowledges, with ``prefetch``; otherwise the broker forgets what it has sent."""
    confirms: bool = False
    """Whether the publisher waits for the broker's word."""
    persistent: bool = False
    """Whether the messages, in a durable queue, are to survive."""
    prefetch: int = 1000
