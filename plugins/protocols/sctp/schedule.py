"""The stream scheduler: of which message the next fragment is sent (RFC 8260, 3).

One stream is at the head; all other streams with data wait in one heap. The schedulers differ only in the
heap's keys. Without interleaving a message that was begun is finished before another one starts: DATA
fragments of one message need consecutive TSNs (RFC 9260, 6.9).
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
"""Key, turn (which breaks ties) and stream."""


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """How a message is delivered."""

    unordered: bool = False
    immediate: bool = False
    """Ask the peer to acknowledge it without delay (RFC 7053)."""
    expires: float | None = None
    """Time of the host's clock, in seconds, after which the message is abandoned (RFC 3758, 3.4)."""
    retransmissions: int | None = None
    """How often each fragment is retransmitted at most (RFC 7496, 3.1)."""
    priority: int | None = None
    """The message may be abandoned for one with a lower number here when the buffer is full (RFC 7496, 3.2).
    """

    def is_limited(self) -> bool:
        """Whether the message may be abandoned even when the buffer is not full."""
        return self.expires is not None or self.retransmissions is not None


class Outgoing(msgspec.Struct, eq=False):
    """An outbound message, from queueing to acknowledgement."""

    stream: int
    data: bytes
    protocol: int
    terms: Terms
    arrival: int = 0
    number: int = -1
    """SSN or MID, assigned when the first fragment is sent."""
    tsn: int = 0
    """TSN of the first fragment, once it was sent."""
    offset: int = 0
    """Bytes of the message that were sent."""
    fragments: int = 0
    """Fragments that were sent and are not acknowledged."""
    fragments_sent: int = 0
    abandoned: bool = False

    def is_acknowledged(self) -> bool:
        """Whether the peer has acknowledged the whole message."""
        return self.offset == len(self.data) and not self.fragments and not self.abandoned


class Schedule:
    """Messages that are not sent, or not completely."""

    def __init__(self, name: Name) -> None:
        self.interleaved = False
        self.priorities: dict[int, int] = {}
        """Priorities of streams for the scheduler ``priority``: lower goes first, 0 is the default."""
        self.weights: dict[int, float] = {}
        """Weights of streams for the scheduler ``fair``: shares of the bytes, 1 is the default."""
        self.bytes = 0
        """Bytes that are not sent, of messages that may have been begun."""
        self._name = name
        self._is_fair = name == "fair"
        self._queues: dict[int, deque[Outgoing]] = {}
        self._head: deque[Outgoing] = deque()
        """The queue of the stream that sends next; empty: no stream has data."""
        self._entry: _Entry = (0.0, 0.0, 0)
        """The entry of that stream, which is not in the heap."""
        self._heap: list[_Entry] = []
        self._turns = itertools.count()
        self._served: dict[int, float] = {}
        self._virtual = 0.0

    def push(self, messages: Iterable[Outgoing], stream: int) -> None:
        """Append messages to a stream's queue."""
        queue = self._queues.get(stream)
        if queue is None:
            queue = self._queues[stream] = deque()
        was_empty = not queue
        for message in messages:
            message.arrival = next(self._turns)
            self.bytes += len(message.data)
            queue.append(message)
        # A stream that had data is in the heap, or at the head, already.
        if was_empty and queue:
            self._enter(self._entry_of(stream, queue))

    def _enter(self, entry: _Entry) -> None:
        head = self._head
        if not head:
            self._take(entry)
        # A message that was begun keeps the head without interleaving, even against a higher priority: its
        # DATA fragments need consecutive TSNs (RFC 9260, 6.9).
        elif entry < self._entry and (self.interleaved or not head[0].offset):
            heapq.heappush(self._heap, self._entry)
            self._take(entry)
        else:
            heapq.heappush(self._heap, entry)

    def _take(self, entry: _Entry) -> None:
        self._entry = entry
        # The key of the stream that is served is the scheduler's clock: a stream that was idle enters here,
        # and gets no share for the time before.
        self._virtual = entry[0]
        self._head = self._queues[entry[2]]

    def has_unsent(self, stream: int) -> bool:
        """Whether the stream has messages that are not sent completely."""
        return any(not message.abandoned for message in self._queues.get(stream, ()))

    def is_empty(self) -> bool:
        """Whether no stream has a message that is not sent completely."""
        return not self._head

    def waiting(self) -> list[Outgoing]:
        """Return the messages that are not sent completely."""
        return [message for queue in self._queues.values() for message in queue if not message.abandoned]

    def current(self) -> Outgoing | None:
        """Return the message that sends its next fragment now, or None."""
        while self._head:
            message = self._head[0]
            if not message.abandoned:
                return message
            # Abandoned messages stay in their queue until they come to the front: to find them there would
            # cost a search.
            self.bytes -= len(message.data) - message.offset
            self._choose_next(finished=True)
        return None

    def sent(self, message: Outgoing, size: int) -> None:
        """Record that ``size`` bytes of the current message were sent."""
        self.bytes -= size
        if self._is_fair:
            stream = message.stream
            # Weighted fair queueing (RFC 8260, 3.6): a stream's key grows by bytes over weight, and the
            # lowest key is next.
            begun = max(self._virtual, self._served.get(stream, 0.0))
            self._served[stream] = begun + size / self.weights.get(stream, 1.0)
        finished = message.offset >= len(message.data)
        # With interleaving each fragment is a decision of its own (RFC 8260, 2.2.2: several messages at a
        # time, one per stream).
        if finished or self.interleaved:
            self._choose_next(finished=finished)

    def _choose_next(self, *, finished: bool) -> None:
        """Choose the stream that sends next."""
        queue, stream = self._head, self._entry[2]
        if finished:
            queue.popleft()
        if queue:
            if not self._heap and not self._is_fair:
                # The only stream with data stays at the head: no heap operation per message.
                return
            # A new turn number, so that streams of equal keys take turns.
            entry = self._entry_of(stream, queue)
            self._take(heapq.heappushpop(self._heap, entry) if self._heap else entry)
            return
        # An empty queue is removed: there may be 65,535 streams, of which few have data.
        del self._queues[stream]
        if self._heap:
            self._take(heapq.heappop(self._heap))

    def _entry_of(self, stream: int, queue: deque[Outgoing]) -> _Entry:
        turn = next(self._turns)
        if self._name == "round-robin":
            # The turn number alone: whoever was served last is last.
            return (turn, turn, stream)
        if self._name == "first-come":
            return (queue[0].arrival, turn, stream)
        if self._name == "priority":
            return (self.priorities.get(stream, 0), turn, stream)
        return (max(self._virtual, self._served.get(stream, 0.0)), turn, stream)
