"""Stalls: for how long one destination's trouble may be that of the others.

Under ``when_full = "block"`` a source waits for a full destination: a slow one sets the pace.  One that takes
nothing at all while others could go on is *suspended* after ``stall_timeout`` seconds: what meets it full is dropped,
counted and reported, until its pipe is down to the low mark.  Whoever is the only destination is waited for without
limit, since nobody else is held up; and so is whoever has a promise (``confirm``).

The other thing that is waited for is the return of a dead destination, where ``confirm`` promised it what it left
behind and other ports of its engine go on without it.

Nothing here sets a timer: the port's host is told by ``on_change`` that ``deadline`` may have changed, and calls
``handle_timeout``.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from kernel.pipes.pipe import Pipe

if TYPE_CHECKING:
    from kernel.dispatcher.route import Route


class Stalls:
    """What one port waits for.  The port's thread."""

    __slots__ = ("_awaited", "_dropped", "_routes", "_seen", "_until", "now", "on_change", "report")

    def __init__(self, routes: Sequence[Route]) -> None:
        self.now: Callable[[], float] = time.monotonic
        """The clock of the port's host, in seconds."""
        self.on_change: Callable[[], Any] = _nobody
        self.report: Callable[[str, str], Any] = _nobody
        """Called with ``suspended``, ``back`` or ``abandoned``, and a sentence for people."""
        self._routes = routes
        self._until = math.inf
        self._seen: dict[Pipe | Route, tuple[int, float]] = {}
        """What each stalled had taken when it was first looked at, and when that was."""
        self._dropped: dict[Pipe | Route, int] = {}
        """What those suspended had dropped before."""
        self._awaited: dict[tuple[Route, str], float] = {}

    def deadline(self) -> float | None:
        """When ``handle_timeout`` wants to be called.

        It is not taken back when the source goes on: one call for nothing costs less than a timer for each stop.
        """
        when = min(self._until, *self._awaited.values()) if self._awaited else self._until
        return when if when < math.inf else None

    def watch(self) -> None:
        """The source has to wait: keep an eye on those that it waits for."""
        before = self._until
        self._look()
        if self._until != before:
            self.on_change()

    def await_return(self, route: Route, engine: str) -> None:
        """A port of ``engine`` has left something behind that others of its engine cannot take over."""
        stall_timeout = route.spec.marks.stall_timeout
        if stall_timeout < math.inf:
            self._awaited[route, engine] = self.now() + stall_timeout
            self.on_change()

    def handle_timeout(self) -> int | None:
        """Do what is due; return how many messages were abandoned by it, or None when nothing was due."""
        now = self.now()
        due = [key for key, when in self._awaited.items() if when <= now]
        if self._until > now and not due:
            return None
        abandoned = 0
        for route, engine in due:
            del self._awaited[route, engine]
            abandoned += self._give_up(route, engine)
        if self._until <= now:
            for stalled, route in self._look():
                self._suspend(stalled, route)
            self._look()  # those are no longer among the stalled_consumers
        self.on_change()
        return abandoned

    def back(self, stalled: Pipe | Route) -> None:
        """Whoever was suspended takes messages again."""
        missed = _dropped(stalled) - self._dropped.pop(stalled, 0)
        self.report("back", f"{_name(stalled)} takes messages again, having missed {missed}")

    def forget(self, pipe: Pipe) -> None:
        """It has gone."""
        self._seen.pop(pipe, None)
        self._dropped.pop(pipe, None)

    def _look(self) -> list[tuple[Pipe | Route, Route]]:
        """Return those whose stall timeout is over, and plan the next look."""
        self._until = math.inf
        stalled_consumers = [
            (stalled, route) for route in self._routes for stalled in route.stalled_consumers()
        ]
        if len(stalled_consumers) == self._going():  # all there are: none of them holds up another
            self._seen.clear()
            return []
        now = self.now()
        seen: dict[Pipe | Route, tuple[int, float]] = {}
        over = []
        for stalled, route in stalled_consumers:
            taken, since = self._seen.get(stalled, (-1, now))
            if taken != stalled.taken:
                taken, since = stalled.taken, now
            seen[stalled] = taken, since
            until = since + route.spec.marks.stall_timeout
            self._until = min(self._until, until)
            if until <= now:
                over.append((stalled, route))
        self._seen = seen
        return over

    def _going(self) -> int:
        """How many destinations there are that have not been suspended."""
        return sum(
            not route.suspended
            if route.spec.one_of_many or not route.pipes
            else sum(not pipe.suspended for pipe in route.pipes)
            for route in self._routes
        )

    def _suspend(self, stalled: Pipe | Route, route: Route) -> None:
        self._dropped[stalled] = _dropped(stalled)
        route.suspend(stalled)
        text = f"{_name(stalled)} has taken nothing for {route.spec.marks.stall_timeout:g} s and others wait"
        self.report("suspended", f"{text}: what it cannot take is dropped and counted")

    def _give_up(self, route: Route, engine: str) -> int:
        count = route.give_up(engine)
        if count:
            text = f"route {route.spec.name}: {engine} did not come back for {count} unconfirmed messages"
            self.report("abandoned", text)
        return count


def _name(stalled: Pipe | Route) -> str:
    return stalled.name if isinstance(stalled, Pipe) else f"route {stalled.spec.name}"


def _dropped(stalled: Pipe | Route) -> int:
    return stalled.dropped if isinstance(stalled, Pipe) else stalled.unrouted


def _nobody(*_: object) -> None:
    """Stand-in until a host is there."""
