"""Confirm scheduler: which channels of a connection may have confirmations to send.

A channel is examined when it has published, and when the first mark that it waits for is reached.  So a turn
with ten thousand waiting channels costs as much as with one.

A channel that has to wait is in exactly one heap, ordered by mark, and in ``_asleep``.  It waits for the
routes first and for the store afterwards: when the first mark is reached it is examined, and goes to sleep
for the next one.  An entry of a heap without its channel in ``_asleep`` is old, and is skipped.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import Generic, TypeVar
from typing import Protocol as Interface

from plugins.engines.broker.host.confirms import Confirms


class Publishing(Interface):
    """A stream of publishes with numbered confirmations: an AMQP channel, a STOMP or MQTT connection."""

    confirms: Confirms | None


_Channel = TypeVar("_Channel", bound=Publishing)


class ConfirmScheduler(Generic[_Channel]):
    """The channels of one session that wait to confirm."""

    def __init__(self) -> None:
        self._published: dict[_Channel, None] = {}
        self._for_routes: list[tuple[int, int, _Channel]] = []
        self._for_store: list[tuple[int, int, _Channel]] = []
        # A dictionary, which takes 64 bytes while it is empty, and a set 216: each client has one.
        self._asleep: dict[_Channel, None] = {}
        self._pushed = 0
        """Breaks ties in the heaps: channels cannot be compared."""

    def __bool__(self) -> bool:
        return bool(self._published or self._for_routes or self._for_store)

    @property
    def needs_store(self) -> bool:
        """Whether a channel waits for the store only."""
        return bool(self._for_store)

    def add(self, channel: _Channel) -> None:
        """The channel has published."""
        self._published[channel] = None

    def forget(self, channel: _Channel) -> None:
        """The channel was closed.  Its entries in the heaps are skipped later."""
        self._published.pop(channel, None)
        self._asleep.pop(channel, None)

    def take_ready(self, confirmed: int, safe: int) -> list[_Channel]:
        """Return the channels to examine, and remove them."""
        # A dictionary, for each channel once and in the order in which they published.
        ready = self._published
        self._published = {}
        for heap, reached in ((self._for_routes, confirmed), (self._for_store, safe)):
            while heap and heap[0][0] <= reached:
                channel = heappop(heap)[2]
                # Not asleep: it was forgotten since.
                if channel in self._asleep:
                    del self._asleep[channel]
                    ready[channel] = None
        return list(ready)

    def wait(self, channel: _Channel, confirmed: int) -> None:
        """Examine the channel again when the mark is reached that its next confirmation waits for."""
        # One that sleeps already waits for the first of its messages, so a later one changes nothing.
        if channel.confirms is None or channel in self._asleep:
            return
        routes, store = channel.confirms.waits_for(confirmed)
        self._asleep[channel] = None
        self._pushed += 1
        # Routes first.  When they have confirmed, the channel is examined, and waits for the store if need
        # be.
        if routes > confirmed:
            heappush(self._for_routes, (routes, self._pushed, channel))
        else:
            heappush(self._for_store, (store, self._pushed, channel))
