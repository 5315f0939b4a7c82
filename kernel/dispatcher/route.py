"""Route: one ``[[routes]]`` entry as one source port sees it: a filter, a router and the pipes behind it.

A destination in trouble is meant to trouble nobody else.  What that comes to depends on who gets a message:

* one of many (round robin): the others stand in for it;
* those it is for (by key, reply): what is for a full pipe is *owed* to it, and only then the source waits;
* everybody (fan-out): the source waits for a full pipe.  With ``confirm``, an engine that has no port is owed
  everything until it has one again.

Where the source waits, it waits for the stall timeout at most: see ``kernel.dispatcher.stalls``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import msgspec

from kernel.contracts.message import Batch, Envelope
from kernel.contracts.router import Outlet, Router
from kernel.dispatcher.ack_tracker import Entry
from kernel.dispatcher.hold import Hold
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
    echo: bool = False
    """Whether a route back to its own engine leads from each port to this very port as well."""
    dead_letters: RouteSpec | None = None
    """The route for what destinations of this one refuse; None: that is counted and dropped."""
    takes_refused: bool = False
    """Whether this is such a route: then it takes nothing else."""

    @property
    def to_all(self) -> bool:
        """Whether every pipe gets every message."""
        return not self.one_of_many and not self.by_content


class Route:
    """The pipes of one route out of one port.  Used by the port's thread."""

    __slots__ = (
        "_accepts",
        "_last",
        "_owed",
        "_peek",
        "_router",
        "_vacant",
        "_wanted",
        "filtered",
        "held",
        "pipes",
        "spec",
        "suspended",
        "told_refused",
        "unrouted",
    )

    def __init__(self, spec: RouteSpec) -> None:
        self.spec: RouteSpec = spec
        self.pipes: list[Pipe] = []
        self.held: Hold = Hold()
        """Batches that no pipe at all can take yet (``when_full = "block"`` only)."""
        self.suspended: bool = False
        """Whether the source no longer waits though no pipe can take anything: others would have to wait with it."""
        self.unrouted: int = 0
        """Messages that the router found nobody for, or that met a full route that drops."""
        self.told_refused: bool = False
        """Whether people know that a destination refuses messages."""
        self.filtered: bool = spec.make_filter is not None
        self._router = spec.make_router()
        self._peek: Callable[[Batch], Iterable[Outlet]] = getattr(self._router, "peek", self._look_at_choice)
        self._accepts = spec.make_filter() if spec.make_filter else None
        self._last: Envelope | None = None
        self._wanted = True
        self._owed: dict[Outlet | str, Hold] = {}
        """What waits for one full pipe, or for the next port of one engine."""
        promised = spec.to_all and spec.confirm
        self._vacant = {name for name in spec.targets if name != spec.source} if promised else set[str]()
        """Engines that have no port and are owed what comes until they have."""

    # ------------------------------------------------------------------ messages

    def offer(self, batch: Batch, entry: Entry | None = None) -> bool:
        """Pass a batch on if the route's filter wants it; return whether it does."""
        accepts = self._accepts
        if accepts is not None:
            if batch.envelope is not self._last:  # once a batch, and not even that while it repeats
                self._last = batch.envelope
                self._wanted = accepts(batch.envelope)
            if not self._wanted:
                return False
        if self.suspended:
            self.unrouted += len(batch.bodies)
        elif self.held:
            self.held.append(batch, entry)
        else:
            self._place(batch, entry)
        return True

    def take_refused(self, batch: Batch, entry: Entry | None) -> None:
        """Pass on what a destination of another route has refused."""
        if self.held:
            self.held.append(batch, entry)
        else:
            self._place(batch, entry)

    def wants(self, batch: Batch) -> bool:
        """Whether the route's filter lets a batch pass, and its router would find somebody for it, as far as it can tell."""
        if self._accepts is not None and not self._accepts(batch.envelope):
            return False
        router_wants: Callable[[Batch], bool] | None = getattr(self._router, "wants", None)
        return router_wants is None or router_wants(batch)

    def retry(self) -> None:
        """A pipe came or can take more: pass on what was held."""
        self.suspended = False
        held, self.held = self.held, Hold()
        for batch, entry in held.release():
            self._place(batch, entry)
            if self.held:  # still nobody: keep the order
                held.prepend_all(self.held)
                self.held = held
                return

    def _place(self, batch: Batch, entry: Entry | None) -> None:
        for engine in self._vacant:
            self._owe(engine, batch, entry)
        chosen = self._router.choose(batch)
        if not chosen:
            if self._nobody_has_room():
                self.held.append(batch, entry)
                return
            if self.spec.one_of_many:  # a reader may have made room since the router looked
                chosen = self._router.choose(batch)
        if not chosen:
            if not self._vacant:
                self.unrouted += len(batch.bodies)
            return
        if self.spec.by_content:
            chosen = self._without_the_full(chosen, entry)
        for outlet, part in chosen:
            _write(outlet, part, entry)

    def _without_the_full(
        self, chosen: Sequence[tuple[Outlet, Batch]], entry: Entry | None
    ) -> list[tuple[Outlet, Batch]]:
        """Hold what is for full pipes, for them alone."""
        ready = []
        for outlet, part in chosen:
            if self._waits_for(outlet):
                self._owe(outlet, part, entry)
            else:
                ready.append((outlet, part))
        return ready

    def _waits_for(self, outlet: Outlet) -> bool:
        # What is owed to it goes first, though its reader may have made room in this very moment.
        return outlet in self._owed or (outlet.blocked and not outlet.suspended)

    def _owe(self, to: Outlet | str, batch: Batch, entry: Entry | None) -> None:
        if to not in self._owed:
            self._owed[to] = Hold()
        self._owed[to].append(batch, entry)

    def _pay(self, to: Outlet | str, pipe: Pipe) -> None:
        hold = self._owed.pop(to, None)
        if hold is not None:
            for batch, entry in hold.release():
                _write(pipe, batch, entry)

    def _nobody_has_room(self) -> bool:
        """Whether the reason for finding nobody is that all are full (not: that nobody wants it)."""
        if self.spec.by_content or self._vacant or self.spec.marks.when_full != "block":
            return False
        return all(pipe.blocked and not pipe.suspended for pipe in self.pipes)

    # ------------------------------------------------------------------ pipes

    def attach(self, pipe: Pipe, options: dict[str, Any]) -> None:
        """A destination has joined."""
        self.pipes.append(pipe)
        self._router.attach(pipe, options)
        self._vacant.discard(pipe.engine)
        self._pay(pipe.engine, pipe)
        self.retry()

    def writable(self, pipe: Pipe) -> None:
        """A full pipe can take more."""
        pipe.suspended = False
        self._pay(pipe, pipe)
        self.retry()

    def detach(self, pipe: Pipe, entry: Entry | None) -> int:
        """A destination is gone: hand over what it did not confirm; return how many messages were abandoned.

        With ``one_of_many`` the others take over.  Where every engine was promised every message, the next
        port of the same engine does.  Else only a destination that was the last is waited for.
        """
        self.pipes.remove(pipe)
        self._router.detach(pipe)
        left = Hold()
        left.prepend(pipe.drain(), entry)
        left_owing = self._owed.pop(pipe, None)
        if left_owing is not None:
            left_owing.prepend_all(left)
            left = left_owing
        spec = self.spec
        if spec.to_all and spec.confirm:
            self._promise(pipe.engine, left)
            return 0
        if (spec.one_of_many or not self.pipes) and spec.marks.when_full == "block":
            self.held.prepend_all(left)
            self.retry()
            return 0
        return _abandon(left)

    def _promise(self, engine: str, left: Hold) -> None:
        """Keep what a port left behind for the engine's next, and more if that was its last."""
        if all(pipe.engine != engine for pipe in self.pipes):
            self._vacant.add(engine)
        if left:
            before = self._owed.get(engine)
            if before is not None:
                left.prepend_all(before)
            self._owed[engine] = left

    def owes(self, engine: str) -> bool:
        """Whether a port left something that the other ports of its engine have had, and nobody has taken over yet."""
        return engine in self._owed and engine not in self._vacant

    def give_up(self, engine: str) -> int:
        """No port of this engine has come back for what one of them left; return how many messages that is."""
        return _abandon(self._owed.pop(engine)) if self.owes(engine) else 0

    def end(self) -> int:
        """There is no such route any more: its pipes end; return how many messages were abandoned that wait for one."""
        for pipe in self.pipes:
            self._pay(pipe, pipe)
            pipe.end()
        return _abandon(self.held) + sum(map(_abandon, self._owed.values()))

    def subscribe(self, pipe: Pipe, pattern: str) -> None:
        """The far end wants what matches."""
        self._router.subscribe(pipe, pattern)
        if self.held:
            self.retry()

    def unsubscribe(self, pipe: Pipe, pattern: str) -> None:
        """The far end no longer wants it."""
        self._router.unsubscribe(pipe, pattern)

    # ------------------------------------------------------------------ who waits

    @property
    def starved(self) -> bool:
        """Whether there is nobody to write to yet, and the route waits rather than drops."""
        return not self.pipes and not self.spec.by_content and self.spec.marks.when_full == "block"

    @property
    def stopped(self) -> bool:
        """Whether the source has to wait: nobody is there, or one is full whom no other can stand in for."""
        if self.held or self.starved:
            if self.spec.takes_refused:  # few messages: only many that wait are a reason to stop the source
                return self.held.full(self.spec.marks)
            return not self.suspended
        if self.spec.one_of_many:
            return not self.suspended and all(pipe.blocked for pipe in self.pipes) and bool(self.pipes)
        if self.spec.by_content:
            return bool(self._owed)
        if any(pipe.blocked and not pipe.suspended for pipe in self.pipes):
            return True
        return any(hold.full(self.spec.marks) for hold in self._owed.values()) if self._owed else False

    def has_room_for(self, batch: Batch) -> bool:
        """Whether this batch need not wait, though others may have to: those it would go to can take it."""
        if not self.spec.by_content or self.held:
            return not self.stopped
        if self._accepts is not None and not self._accepts(batch.envelope):
            return True
        return not any(map(self._waits_for, self._peek(batch)))

    def _look_at_choice(self, batch: Batch) -> list[Outlet]:
        return [outlet for outlet, _ in self._router.choose(batch)]

    def stalled_consumers(self) -> Iterator[Pipe | Route]:
        """Those that the source waits for, and for whom it need not wait for ever."""
        if self.spec.confirm or self.spec.marks.when_full != "block":
            return
        if self.starved or self.spec.one_of_many:
            if self.stopped:
                yield self
        else:
            yield from (pipe for pipe in self.pipes if pipe.blocked and not pipe.suspended)

    def suspend(self, stalled: Pipe | Route) -> None:
        """Wait no longer for one of the ``stalled_consumers``: it drops, and counts, until it can take more."""
        stalled.suspended = True
        if isinstance(stalled, Pipe):
            self._pay(stalled, stalled)

    @property
    def taken(self) -> int:
        """Messages that the pipes that are there now have passed on."""
        return sum(pipe.taken for pipe in self.pipes)

    @property
    def waiting(self) -> int:
        """Messages that wait for a pipe.  Any thread; for figures."""
        return self.held.messages + sum(hold.messages for hold in list(self._owed.values()))

    @property
    def plain(self) -> bool:
        """Whether a single pipe gets everything, so that the router need not be asked."""
        return self.spec.to_all or self.spec.one_of_many

    def __repr__(self) -> str:
        return f"<Route {self.spec.name} pipes={len(self.pipes)} waiting={self.waiting} unrouted={self.unrouted}>"


def _write(outlet: Outlet, batch: Batch, entry: Entry | None) -> None:
    outlet.write(batch)  # type: ignore[attr-defined]
    if entry is not None:
        entry.needs[outlet] = outlet.written  # type: ignore[attr-defined, index]


def _abandon(hold: Hold) -> int:
    return sum(len(batch.bodies) for batch, _ in hold.release())
