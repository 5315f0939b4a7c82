"""ConfirmScheduler: which channels of a connection have something to tell their publishers.

A channel is looked at when it has published, and when the first thing that it waits for has come: with ten
thousand channels waiting, a turn costs as much as with one.
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
        self._asleep: set[_Channel] = set()
        self._pushed = 0

    def __bool__(self) -> bool:
        return bool(self._published or self._for_routes or self._for_store)

    @property
    def needs_store(self) -> bool:
        """Whether somebody waits for the store alone."""
        return bool(self._for_store)

    def add(self, channel: _Channel) -> None:
        """It has published."""
        self._published[channel] = None

    def forget(self, channel: _Channel) -> None:
        """It is over.  What is left of it is dropped when its turn comes."""
        self._published.pop(channel, None)
        self._asleep.discard(channel)

    def take_ready(self, confirmed: int, safe: int) -> list[_Channel]:
        """Return the channels to look at, now that routes and store have come so far, and forget them."""
        ready = self._published
        self._published = {}
        for heap, reached in ((self._for_routes, confirmed), (self._for_store, safe)):
            while heap and heap[0][0] <= reached:
                channel = heappop(heap)[2]
                if channel in self._asleep:
                    self._asleep.remove(channel)
                    ready[channel] = None
        return list(ready)

    def wait(self, channel: _Channel, confirmed: int) -> None:
        """It could not tell everything: look at it again when what it waits for next has come."""
        if channel.confirms is None or channel in self._asleep:
            return
        routes, store = channel.confirms.waits_for(confirmed)
        self._asleep.add(channel)
        self._pushed += 1
        if routes > confirmed:
            heappush(self._for_routes, (routes, self._pushed, channel))
        else:
            heappush(self._for_store, (store, self._pushed, channel))
