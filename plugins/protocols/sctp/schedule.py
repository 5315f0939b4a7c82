"""Which message's piece goes next (RFC 8260, 3).

Every stream that has something waits in one heap; the schedules differ in the keys only.  Without interleaving a message is
finished once it was begun.
"""

from __future__ import annotations

import heapq
import itertools
from collections import deque
from typing import Literal

import msgspec

Name = Literal["first-come", "round-robin", "priority", "fair"]


class Outgoing:
    """A message on its way to the peer."""

    __slots__ = (
        "abandoned",
        "arrival",
        "data",
        "expires",
        "immediate",
        "number",
        "offset",
        "pieces",
        "pieces_sent",
        "priority",
        "protocol",
        "retransmissions",
        "stream",
        "unordered",
    )  # fmt: skip

    def __init__(self, stream: int, data: bytes, protocol: int, terms: Terms) -> None:
        self.stream = stream
        self.data = data
        self.protocol = protocol
        self.unordered = terms.unordered
        self.immediate = terms.immediate
        self.expires = terms.expires
        self.retransmissions = terms.retransmissions
        self.priority = terms.priority
        self.arrival = 0
        self.number = -1
        """In its stream; given when the first piece is sent."""
        self.offset = 0
        self.pieces = 0
        """Sent and not acknowledged."""
        self.pieces_sent = 0
        self.abandoned = False

    def is_acknowledged(self) -> bool:
        """Whether the peer has all of it."""
        return self.offset == len(self.data) and not self.pieces and not self.abandoned


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """How a message is to be delivered."""

    unordered: bool = False
    immediate: bool = False
    """Ask the peer to acknowledge it without delay (RFC 7053)."""
    expires: float | None = None
    """The time after which it is not worth sending any more (RFC 3758)."""
    retransmissions: int | None = None
    """How often each piece is repeated at the most (RFC 7496, 3.1)."""
    priority: int | None = None
    """Give it up for messages with a lower number here when the buffer is full (RFC 7496, 3.2)."""


class Schedule:
    """What waits to be sent for the first time."""

    def __init__(self, name: Name) -> None:
        self.interleaved = False
        self.priorities: dict[int, int] = {}
        """Of streams, for ``priority``: lower goes first; 0 unless set."""
        self.weights: dict[int, float] = {}
        """Of streams, for ``fair``: shares of the bytes; 1 unless set."""
        self.bytes = 0
        """Not sent yet, of messages that may have been begun."""
        self._name = name
        self._queues: dict[int, deque[Outgoing]] = {}
        self._heap: list[tuple[float, float, int]] = []
        self._count = itertools.count()
        self._served: dict[int, float] = {}
        self._virtual = 0.0
        self._current: int | None = None

    def push(self, message: Outgoing) -> None:
        """Put a message behind those of its stream."""
        message.arrival = next(self._count)
        queue = self._queues.setdefault(message.stream, deque())
        queue.append(message)
        self.bytes += len(message.data)
        if len(queue) == 1 and self._current != message.stream:
            self._enter(message.stream)

    def holds(self, stream: int) -> bool:
        """Whether anything of that stream has not been sent."""
        return any(not message.abandoned for message in self._queues.get(stream, ()))

    def waiting(self) -> list[Outgoing]:
        """Return all that has not been sent completely."""
        return [message for queue in self._queues.values() for message in queue if not message.abandoned]

    def current(self) -> Outgoing | None:
        """Return the message of which a piece goes next."""
        while self._current is not None or self._heap:
            if self._current is None:
                self._virtual, _, self._current = heapq.heappop(self._heap)
            queue = self._queues[self._current]
            if not queue[0].abandoned:
                return queue[0]
            self.bytes -= len(queue[0].data) - queue[0].offset
            self._leave(finished=True)
        return None

    def sent(self, size: int) -> None:
        """Take note that ``size`` bytes of the current message were sent."""
        stream = self._current
        assert stream is not None
        message = self._queues[stream][0]
        begun = max(self._virtual, self._served.get(stream, 0.0))
        self._served[stream] = begun + size / self.weights.get(stream, 1.0)
        self.bytes -= size
        finished = message.offset >= len(message.data)
        if finished or self.interleaved:
            self._leave(finished=finished)

    def _leave(self, *, finished: bool) -> None:
        stream = self._current
        assert stream is not None
        self._current = None
        queue = self._queues[stream]
        if finished:
            queue.popleft()
        if queue:
            self._enter(stream)
        else:
            del self._queues[stream]

    def _enter(self, stream: int) -> None:
        turn = next(self._count)
        if self._name == "first-come":
            key: tuple[float, float] = (self._queues[stream][0].arrival, turn)
        elif self._name == "priority":
            key = (self.priorities.get(stream, 0), turn)
        elif self._name == "fair":
            key = (max(self._virtual, self._served.get(stream, 0.0)), turn)
        else:
            key = (turn, turn)
        heapq.heappush(self._heap, (*key, stream))
