"""Route: one ``[[routes]]`` entry as one source port sees it: a filter, a router and the pipes behind it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import msgspec

from kernel.contracts.message import Envelope, Run
from kernel.contracts.router import Router
from kernel.dispatcher.ledger import Page
from kernel.pipes.pipe import Pipe
from kernel.pipes.water_marks import WaterMarks


class RouteSpec(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """A route for the dispatcher: from one engine to one or more, with everything looked up."""

    name: str
    source: str
    targets: tuple[str, ...]
    make_router: Callable[[], Router]
    one_of_many: bool = False
    """Whether the router gives each message to one pipe: then another may take over from a dead one."""
    by_content: bool = False
    """Whether the router looks at messages: then even a single pipe does not get everything."""
    make_filter: Callable[[], Callable[[Envelope], bool]] | None = None
    marks: WaterMarks = WaterMarks()
    confirm: bool = False


class Route:
    """The pipes of one route out of one port.  Used by the port's thread."""

    __slots__ = ("_accepts", "_last", "_router", "_wanted", "filtered", "held", "pipes", "spec", "unrouted")

    def __init__(self, spec: RouteSpec) -> None:
        self.spec = spec
        self.pipes: list[Pipe] = []
        self.held: deque[tuple[Run, Page | None]] = deque()
        """Runs that no pipe can take yet, in order (``when_full = "block"`` only)."""
        self.unrouted = 0
        """Messages that the router found nobody for, or that met a full route that drops."""
        self.filtered = spec.make_filter is not None
        self._router = spec.make_router()
        self._accepts = spec.make_filter() if spec.make_filter else None
        self._last: Envelope | None = None
        self._wanted = True

    # ------------------------------------------------------------------ messages

    def offer(self, run: Run, page: Page | None = None) -> bool:
        """Pass a run on if the route's filter wants it; return whether it does."""
        accepts = self._accepts
        if accepts is not None:
            if run.envelope is not self._last:  # once a run, and not even that while it repeats
                self._last = run.envelope
                self._wanted = accepts(run.envelope)
            if not self._wanted:
                return False
        if self.held:
            self._hold(run, page)
        else:
            self._place(run, page)
        return True

    def retry(self) -> None:
        """A pipe came or can take more: pass on what was held."""
        held, self.held = self.held, deque()
        while held:
            run, page = held.popleft()
            if page is not None:
                page = page.current()
                page.held -= 1
            self._place(run, page)
            if self.held:  # still nobody: keep the order
                self.held.extend(held)
                return

    def _place(self, run: Run, page: Page | None) -> None:
        chosen = self._router.choose(run)
        if not chosen:
            if not self.spec.by_content and self._all_blocked():
                self._hold(run, page)
            else:
                self.unrouted += len(run.bodies)
            return
        for outlet, part in chosen:
            outlet.write(part)  # type: ignore[attr-defined]
            if page is not None:
                page.needs[outlet] = outlet.written  # type: ignore[attr-defined, index]

    def _all_blocked(self) -> bool:
        """Whether the reason for finding nobody is that there is nobody with room (not: nobody who wants it)."""
        if self.spec.marks.when_full != "block":
            return False
        return all(pipe.blocked for pipe in self.pipes)

    def _hold(self, run: Run, page: Page | None) -> None:
        if page is not None:
            page.held += 1
        self.held.append((run, page))

    # ------------------------------------------------------------------ pipes

    def attach(self, pipe: Pipe, options: dict[str, Any]) -> None:
        """A destination has joined."""
        self.pipes.append(pipe)
        self._router.attach(pipe, options)
        if self.held:
            self.retry()

    def detach(self, pipe: Pipe, page: Page | None) -> int:
        """A destination is gone: hand over what it did not confirm; return how many were abandoned.

        With ``one_of_many`` the others take over; in a fan-out they have had their own copies, so only a
        destination that was the last is waited for.
        """
        self.pipes.remove(pipe)
        self._router.detach(pipe)
        runs = pipe.drain()
        if not runs:
            return 0
        if (self.spec.one_of_many or not self.pipes) and self.spec.marks.when_full == "block":
            self.held.extendleft((run, page) for run in reversed(runs))  # older than what is held already
            if page is not None:
                page.held += len(runs)
            self.retry()
            return 0
        return sum(map(len, runs))

    def subscribe(self, pipe: Pipe, pattern: str) -> None:
        """The far end wants what matches."""
        self._router.subscribe(pipe, pattern)
        if self.held:
            self.retry()

    def unsubscribe(self, pipe: Pipe, pattern: str) -> None:
        """The far end no longer wants it."""
        self._router.unsubscribe(pipe, pattern)

    @property
    def starved(self) -> bool:
        """Whether there is nobody to write to yet, and the route waits rather than drops."""
        return not self.pipes and not self.spec.by_content and self.spec.marks.when_full == "block"

    @property
    def stopped(self) -> bool:
        """Whether the source has to wait: nobody is there, or one is full whom no other can stand in for."""
        if self.held or self.starved:
            return True
        if self.spec.one_of_many:
            return bool(self.pipes) and all(pipe.blocked for pipe in self.pipes)
        return any(pipe.blocked for pipe in self.pipes)

    def has_room_for(self, run: Run) -> bool:
        """Whether this run need not wait, though others may have to: those it would go to can take it."""
        if not self.spec.by_content or self.held:
            return not self.stopped
        if self._accepts is not None and not self._accepts(run.envelope):
            return True
        return not any(outlet.blocked for outlet, _ in self._router.choose(run))

    @property
    def plain(self) -> bool:
        """Whether a single pipe gets everything, so that the router need not be asked."""
        return not self.spec.by_content

    def __repr__(self) -> str:
        return (
            f"<Route {self.spec.name} pipes={len(self.pipes)} held={len(self.held)} unrouted={self.unrouted}>"
        )
