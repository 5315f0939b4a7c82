"""Consumer: one subscription to a queue, and its credit: how many messages it may be delivered."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from plugins.engines.broker.arguments import read_consumer_priority
from plugins.engines.broker.receiver import LEAST_PER_MESSAGE

if TYPE_CHECKING:
    from plugins.engines.broker.queue import Queue
    from plugins.engines.broker.receiver import Receiver


class Consumer:
    """One subscription of a receiver to a queue."""

    __slots__ = (
        "arguments",
        "auto_ack",
        "exclusive",
        "outstanding",
        "prefetch",
        "priority",
        "queue",
        "receiver",
        "tag",
        "waits_for_room",
    )

    def __init__(
        self,
        tag: str,
        queue: Queue,
        receiver: Receiver,
        *,
        auto_ack: bool,
        exclusive: bool,
        prefetch: int,
        arguments: Mapping[str, Any],
    ) -> None:
        """Raises ``PreconditionFailed`` for a priority that is no integer."""
        self.tag = tag
        self.queue = queue
        self.receiver = receiver
        self.auto_ack = auto_ack
        """Whether a delivery is acknowledged as soon as it is made (AMQP no-ack)."""
        self.exclusive = exclusive
        self.prefetch = prefetch
        """How many messages it may have unacknowledged; 0: no limit."""
        self.outstanding = 0
        self.waits_for_room = False
        """Whether its queue leaves it out until it has acknowledged something
        (``Queue.take_turns_again``)."""
        self.arguments = arguments
        self.priority = read_consumer_priority(arguments, queue.name, queue.vhost.name)

    def __repr__(self) -> str:
        return f"<Consumer {self.tag!r} of {self.queue.name!r}, {self.outstanding} outstanding>"

    def room(self) -> int:
        """Return how many messages it may be delivered now.

        With a closed window, its queue waits for the window.
        """
        receiver = self.receiver
        window = receiver.window
        # The queue is remembered, since nothing else would process it when the window opens.  The other
        # limits need no memory: an acknowledgement touches the queue itself (``Receiver._release``).
        if window.left <= 0:
            window.starved[self.queue] = None
            return 0
        if not receiver.active:
            return 0
        # As many as fit into the window at most.  One always does while it is open, however large.
        room = window.left // LEAST_PER_MESSAGE + 1
        if self.auto_ack:
            # It adds nothing to what the receiver has unacknowledged, but is stopped by it (RabbitMQ).
            return 0 if receiver.prefetch and receiver.outstanding >= receiver.prefetch else room
        # From here on the result may be negative: a client may lower a prefetch below what is outstanding.
        if self.prefetch:
            room = min(room, self.prefetch - self.outstanding)
        if receiver.prefetch:
            room = min(room, receiver.prefetch - receiver.outstanding)
        return room

    def row(
        self, connection: str, *, channel: int = 1, tag: str | None = None, prefetch: int | None = None
    ) -> dict[str, Any]:
        """Return the row of ``kernel consumers``.

        ``tag`` and ``prefetch``: what its client knows, if that is not what the consumer has.
        """
        return {
            "vhost": self.queue.vhost.name,
            "queue_name": self.queue.name,
            "consumer_tag": self.tag if tag is None else tag,
            "connection": connection,
            "channel": channel,
            "ack_required": not self.auto_ack,
            "prefetch_count": self.prefetch if prefetch is None else prefetch,
            "messages_unacknowledged": self.outstanding,
            "exclusive": self.exclusive,
            "activity": self.queue.activity_of(self),
            "arguments": dict(self.arguments),
        }

    def is_full(self) -> bool:
        """Whether its own prefetch is used up, so that it has no room before it acknowledges something."""
        return not self.auto_ack and 0 < self.prefetch <= self.outstanding

    def has_room(self) -> bool:
        """Return whether it may be delivered a message now, for observers: its queue does not wait."""
        # While the window is open, ``room`` remembers nothing.
        return self.receiver.window.left > 0 and self.room() > 0
