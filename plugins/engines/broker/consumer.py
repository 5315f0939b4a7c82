"""Consumer: one subscription to a queue, and the credit that says how much it may be handed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from plugins.engines.broker.queue import Queue
    from plugins.engines.broker.receiver import Receiver


class Consumer:
    """One subscription of a receiver to a queue."""

    __slots__ = (
        "arguments",
        "exclusive",
        "outstanding",
        "prefetch",
        "priority",
        "queue",
        "receiver",
        "settled",
        "tag",
    )

    def __init__(
        self,
        tag: str,
        queue: Queue,
        receiver: Receiver,
        *,
        settled: bool,
        exclusive: bool,
        prefetch: int,
        arguments: Mapping[str, Any],
    ) -> None:
        self.tag = tag
        self.queue = queue
        self.receiver = receiver
        self.settled = settled
        """Whether a delivery counts as acknowledged the moment it is made (AMQP no-ack)."""
        self.exclusive = exclusive
        self.prefetch = prefetch
        """How many it may hold unacknowledged; 0: no limit."""
        self.outstanding = 0
        self.arguments = arguments
        priority = arguments.get("x-priority", 0)
        self.priority = priority if isinstance(priority, int) else 0

    def __repr__(self) -> str:
        return f"<Consumer {self.tag!r} of {self.queue.name!r}, {self.outstanding} outstanding>"

    def room(self) -> int:
        """Return how many messages it may be handed now."""
        receiver = self.receiver
        window = receiver.window
        if window.left <= 0:
            window.starved[self.queue] = None
            return 0
        if not receiver.active:
            return 0
        room = window.room()
        if self.settled:
            return room
        if self.prefetch:
            room = min(room, self.prefetch - self.outstanding)
        if receiver.prefetch:
            room = min(room, receiver.prefetch - receiver.outstanding)
        return room
