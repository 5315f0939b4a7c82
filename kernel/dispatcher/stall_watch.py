"""Stall watch: how long a source waits for a destination that takes nothing.

With ``when_full = "block"`` a source waits for a full destination, so the slowest destination sets the pace.
If a destination takes nothing at all for ``stall_timeout`` seconds while others could go on, it is
*suspended*: messages that find its pipe full are dropped, counted and reported, until the pipe is down to its
low mark.

Two sorts of destinations are never suspended.  The only destination is waited for without limit, because
nobody else is held up.  A destination on a route with ``confirm`` is, because none of its messages may be
dropped.

The watch also limits the wait for a dead destination to return.  On a fan-out route with ``confirm``, what a
port left unconfirmed is deferred to the next port of its engine.  If other ports of that engine are left, and
no new one joins within the stall timeout, these messages are abandoned.

The watch sets no timer.  It calls ``on_change`` when ``deadline`` may have changed, and the port's host calls
``Port.check_stalls`` at the deadline.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from kernel.contracts.counts import counted
from kernel.pipes.pipe import Pipe

if TYPE_CHECKING:
    from kernel.dispatcher.route import Route


class StallWatch:
    """What one port waits for.  Used by the port's thread only.

    A stalled consumer is a full pipe, or a route without a pipe that can take anything.
    """

    __slots__ = (
        "_dropped_before",
        "_next_look",
        "_return_deadlines",
        "_routes",
        "_seen",
        "active",
        "now",
        "on_change",
        "report",
    )

    def __init__(self, routes: Sequence[Route]) -> None:
        self.now: Callable[[], float] = time.monotonic
        """The clock of the port's host, in seconds."""
        self.on_change: Callable[[], Any] = _ignore
        """Called when ``deadline`` may have changed."""
        self.report: Callable[[str, str], Any] = _ignore
        """Called with ``suspended``, ``back``, ``refused`` or ``abandoned``, and a sentence for the
        operator."""
        self.active: bool = False
        """False: ``handle_timeout`` has nothing to do, now and later, until something is watched."""
        self._routes = routes
        self._next_look = math.inf
        """When the stall timeout of a stalled consumer ends."""
        self._seen: dict[Pipe | Route, tuple[int, float]] = {}
        """Stalled consumers: the messages that each had taken at its last progress, and when that was
        seen."""
        self._dropped_before: dict[Pipe | Route, int] = {}
        """Suspended consumers: their count of dropped messages when they were suspended."""
        self._return_deadlines: dict[tuple[Route, str], float] = {}
        """Until when messages that were left unconfirmed wait for the next port of an engine."""

    def deadline(self) -> float | None:
        """Return when ``handle_timeout`` has to be called; None: not at all.

        The deadline is not taken back when the source goes on: one useless call costs less than a timer for
        each stop.
        """
        when = self._next_look
        if self._return_deadlines:
            # Few at any time: one for each engine whose port has just left.
            when = min(when, *self._return_deadlines.values())
        return when if when < math.inf else None

    def watch(self) -> None:
        """Begin to watch the stalled consumers, or look at them again.

        Called when the source has to wait.
        """
        self.active = True
        before = self._next_look
        self._look()
        # ``on_change`` sets a timer in the host. A source that stops again before the deadline finds the same
        # one.
        if self._next_look != before:
            self.on_change()

    def await_return(self, route: Route, engine: str) -> None:
        """Begin to wait for the next port of ``engine``, for which ``route`` has deferred messages."""
        stall_timeout = route.spec.marks.stall_timeout
        # Without a limit there is no deadline: the messages wait until a port joins or the route is removed.
        if stall_timeout < math.inf:
            self.active = True
            self._return_deadlines[route, engine] = self.now() + stall_timeout
            self.on_change()

    def handle_timeout(self) -> int | None:
        """Do what is due; return how many messages were abandoned, or None if nothing was due."""
        # Nothing is stalled any more.
        if self._next_look == math.inf and not self._return_deadlines:
            self.active = False
            return None
        now = self.now()
        due = [key for key, when in self._return_deadlines.items() if when <= now]
        # A timer that was set for an earlier stall, which has ended since (``deadline``).
        if self._next_look > now and not due:
            return None
        abandoned = 0
        for route, engine in due:
            # Also if the port has come back meanwhile. ``abandon_deferred`` then finds nothing to drop.
            del self._return_deadlines[route, engine]
            abandoned += self._abandon(route, engine)
        if self._next_look <= now:
            # One pass decides about all of them, before any is suspended: two that stall together are
            # suspended together if a third one goes on.
            for stalled, route in self._look():
                self._suspend(stalled, route)
            # Suspended consumers are not stalled consumers any more. If all others are stalled now, nobody
            # holds up another, and the watch ends.
            self._look()
        self.on_change()
        return abandoned

    def back(self, stalled: Pipe | Route, how: str = "takes messages again") -> None:
        """Report that nothing is dropped any more for a suspended consumer, and why."""
        # The counters go on for the life of the pipe, so the count at the suspension is subtracted.
        missed = _dropped(stalled) - self._dropped_before.pop(stalled, 0)
        self.report("back", f"{_name(stalled)} {how}, having missed {missed}")

    def forget(self, pipe: Pipe) -> None:
        """Forget a pipe whose reader has left."""
        # Otherwise the two dicts would keep the pipe, and what is in it, for the life of the port.
        self._seen.pop(pipe, None)
        self._dropped_before.pop(pipe, None)

    def _look(self) -> list[tuple[Pipe | Route, Route]]:
        """Return the consumers whose stall timeout is over, and set the time of the next look."""
        self._next_look = math.inf
        stalled_consumers = [
            (stalled, route) for route in self._routes for stalled in route.stalled_consumers()
        ]
        # All are stalled, or there is only one: none of them holds up another, so none is suspended. When one
        # goes on, the time of the others begins anew.
        if len(stalled_consumers) == self._not_suspended():
            self._seen.clear()
            return []
        now = self.now()
        seen: dict[Pipe | Route, tuple[int, float]] = {}
        over = []
        for stalled, route in stalled_consumers:
            # -1 is no count that a consumer can have: one that is seen for the first time begins its time
            # now.
            taken, since = self._seen.get(stalled, (-1, now))
            # A consumer that takes anything at all is slow, not stalled. Its time begins again.
            if taken != stalled.taken:
                taken, since = stalled.taken, now
            seen[stalled] = taken, since
            until = since + route.spec.marks.stall_timeout
            self._next_look = min(self._next_look, until)
            if until <= now:
                over.append((stalled, route))
        self._seen = seen
        return over

    def _not_suspended(self) -> int:
        """Count the consumers that are not suspended.

        A route counts as one where its pipes replace each other.
        """
        return sum(
            not route.suspended
            if route.spec.one_of_many or not route.pipes
            else sum(not pipe.suspended for pipe in route.pipes)
            for route in self._routes
        )

    def _suspend(self, stalled: Pipe | Route, route: Route) -> None:
        # Before ``suspend``, which may drop messages at once: they count as missed, too.
        self._dropped_before[stalled] = _dropped(stalled)
        route.suspend(stalled)
        text = f"{_name(stalled)} has taken nothing for {route.spec.marks.stall_timeout:g} s and others wait"
        self.report("suspended", f"{text}: what it cannot take is dropped and counted")

    def _abandon(self, route: Route, engine: str) -> int:
        count = route.abandon_deferred(engine)
        if count:
            text = f"route {route.spec.name}: {engine} did not come back for {counted(count, 'unconfirmed message')}"
            self.report("abandoned", text)
        return count


def _name(stalled: Pipe | Route) -> str:
    return stalled.name if isinstance(stalled, Pipe) else f"route {stalled.spec.name}"


def _dropped(stalled: Pipe | Route) -> int:
    return stalled.dropped if isinstance(stalled, Pipe) else stalled.unrouted


def _ignore(*_: object) -> None:
    """Do nothing: what a callback is until the host sets it."""
