"""Which message's fragment goes next (RFC 8260, 3).

Of the streams that have something, one is at the head, and the others wait in one heap; the schedules differ in the keys only.
Without interleaving a message is finished once it was begun.
"""

from __future__ import annotations

import heapq
import itertools
from collections import deque
from collections.abc import Iterable
from typing import Literal

import msgspec

Name = Literal["first-come", "round-robin", "priority", "fair"]

_Entry = tuple[float, float, int]
"""Key, turn and stream."""


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """How a message is to be delivered."""

    unordered: bool = False
    immediate: bool = False
    """Ask the peer to acknowledge it without delay (RFC 7053)."""
    expires: float | None = None
    """The time after which it is not worth sending any more (RFC 3758)."""
    retransmissions: int | None = None
    """How often each fragment is repeated at the most (RFC 7496, 3.1)."""
    priority: int | None = None
    """Give it up for messages with a lower number here when the buffer is full (RFC 7496, 3.2)."""

    def is_limited(self) -> bool:
        """Whether the message may be given up although nobody needs its room."""
        return self.expires is not None or self.retransmissions is not None


class Outgoing(msgspec.Struct, eq=False):
    """A message on its way to the peer."""

    stream: int
    data: bytes
    protocol: int
    terms: Terms
    arrival: int = 0
    number: int = -1
    """In its stream; given when the first fragment is sent."""
    tsn: int = 0
    """Of the first fragment, when that was sent."""
    offset: int = 0
    """Bytes that were sent."""
    fragments: int = 0
    """Sent and not acknowledged."""
    fragments_sent: int = 0
    abandoned: bool = False

    def is_acknowledged(self) -> bool:
        """Whether the peer has all of it."""
        return self.offset == len(self.data) and not self.fragments and not self.abandoned


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
        self._is_fair = name == "fair"
        self._queues: dict[int, deque[Outgoing]] = {}
        self._head: deque[Outgoing] = deque()
        """The queue of the stream that goes next; empty: there is none."""
        self._entry: _Entry = (0.0, 0.0, 0)
        """Of that stream; it is not in the heap."""
        self._heap: list[_Entry] = []
        self._turns = itertools.count()
        self._served: dict[int, float] = {}
        self._virtual = 0.0

    def push(self, messages: Iterable[Outgoing], stream: int) -> None:
        """Put messages of a stream behind those that it has."""
        queue = self._queues.get(stream)
        if queue is None:
            queue = self._queues[stream] = deque()
        was_empty = not queue
        for message in messages:
            message.arrival = next(self._turns)
            self.bytes += len(message.data)
            queue.append(message)
        if was_empty and queue:
            self._enter(self._entry_of(stream, queue))

    def _enter(self, entry: _Entry) -> None:
        head = self._head
        if not head:
            self._take(entry)
        elif entry < self._entry and (self.interleaved or not head[0].offset):
            heapq.heappush(self._heap, self._entry)
            self._take(entry)
        else:
            heapq.heappush(self._heap, entry)

    def _take(self, entry: _Entry) -> None:
        self._entry = entry
        self._virtual = entry[0]
        self._head = self._queues[entry[2]]

    def has_unsent(self, stream: int) -> bool:
        """Whether anything of that stream has not been sent."""
        return any(not message.abandoned for message in self._queues.get(stream, ()))

    def waiting(self) -> list[Outgoing]:
        """Return all that has not been sent completely."""
        return [message for queue in self._queues.values() for message in queue if not message.abandoned]

    def current(self) -> Outgoing | None:
        """Return the message of which a fragment goes next."""
        while self._head:
            message = self._head[0]
            if not message.abandoned:
                return message
            self.bytes -= len(message.data) - message.offset
            self._choose_next(finished=True)
        return None

    def sent(self, message: Outgoing, size: int) -> None:
        """Take note that ``size`` bytes of the current message were sent."""
        self.bytes -= size
        if self._is_fair:
            stream = message.stream
            begun = max(self._virtual, self._served.get(stream, 0.0))
            self._served[stream] = begun + size / self.weights.get(stream, 1.0)
        finished = message.offset >= len(message.data)
        if finished or self.interleaved:
            self._choose_next(finished=finished)

    def _choose_next(self, *, finished: bool) -> None:
        """Choose the next stream."""
        queue, stream = self._head, self._entry[2]
        if finished:
            queue.popleft()
        if queue:
            if not self._heap and not self._is_fair:
                return  # alone, and so next again
            entry = self._entry_of(stream, queue)
            self._take(heapq.heappushpop(self._heap, entry) if self._heap else entry)
            return
        del self._queues[stream]
        if self._heap:
            self._take(heapq.heappop(self._heap))

    def _entry_of(self, stream: int, queue: deque[Outgoing]) -> _Entry:
        turn = next(self._turns)
        if self._name == "round-robin":
            return (turn, turn, stream)
        if self._name == "first-come":
            return (queue[0].arrival, turn, stream)
        if self._name == "priority":
            return (self.priorities.get(stream, 0), turn, stream)
        return (max(self._virtual, self._served.get(stream, 0.0)), turn, stream)
