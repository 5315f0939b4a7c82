"""Route: one ``[[routes]]`` entry as one source port sees it: a filter, a router and the pipes behind it.

The dispatcher makes one ``Route`` for each port of the source engine, and one pipe from it to each port of
the target engines.  The port offers each batch to its routes (``offer``).  The filter decides whether the
route takes the batch, the router chooses pipes, and the route writes to them.  Everything here belongs to the
thread of the source port.

Where a batch is
----------------
A batch that a route has accepted is in one of these states, for each destination that is to get it:

* *written*: it is in a pipe.
* *pending*: no pipe of the route can take it yet (``pending``).
* *deferred*: the router chose a destination that cannot take it now, and no other one may have it (``_deferred``).
  It waits for that pipe to have room, or for the next port of that engine.
* dropped: it is counted in ``unrouted``, in the pipe's ``dropped``, or in what ``detach`` and ``end`` return.

What happens to a full destination
----------------------------------
A destination in trouble must not stop the others.  What that means depends on the router:

* One of many (round robin): other pipes take the messages.  If all are full, batches are pending, and the source stops.
* By content (by key, reply): batches for a full pipe are deferred, and the source stops.
* To all (fan-out): the source stops as soon as one pipe is full.  A batch that comes all the same is written: a pipe
  with ``when_full = "block"`` takes more than its marks, and says that it is full.

A source that stops waits no longer than the stall timeout if others could go on
(``kernel.dispatcher.stall_watch``). After that the pipe, or the route, is *suspended*: it drops what it
cannot take until it has room again.

What happens when a destination leaves
--------------------------------------
``detach`` drains its pipe: what the reader took and did not confirm, and what it never took.

* To all, with ``confirm``: the batches are deferred to the next port of the same engine.  If the engine has no other
  port it becomes *absent*: everything that is offered from then on is deferred as well, until a port joins.  Target
  engines are absent from the beginning, until their first port joins.
* One of many, or no other pipe is left, both with ``when_full = "block"``: the batches are pending.  They go to the
  pipes that are left, or to the next one that joins.
* Otherwise they are abandoned: other readers have had them, or nobody else subscribed to them.

Invariants
----------
1. Order: while batches are pending, new ones are appended behind them.  While batches are deferred to a pipe, new ones
   for it are deferred, too, even if it has room by now (``_must_defer``).
2. On a route that confirms, each batch that is pending or deferred is counted in one entry of the ack tracker.  So a
   source is never told that such a batch is confirmed.
3. An engine is absent only while no pipe of this route leads to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import msgspec

from kernel.contracts.message import Batch, Envelope
from kernel.contracts.router import Outlet, Router
from kernel.dispatcher.ack_tracker import Entry
from kernel.dispatcher.pending import PendingBatches
from kernel.pipes.pipe import Pipe
from kernel.pipes.water_marks import WaterMarks


class RouteSpec(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """A route for the dispatcher: from one engine to one or more, with all names of the plan looked up."""

    name: str
    source: str
    targets: tuple[str, ...]
    make_router: Callable[[], Router]
    one_of_many: bool = False
    """Whether the router gives each message to one pipe, so that another pipe may take over from a dead
    one."""
    by_content: bool = False
    """Whether the router looks at messages, so that even a single pipe does not get everything."""
    make_filter: Callable[[], Callable[[Envelope], bool]] | None = None
    marks: WaterMarks = WaterMarks()
    confirm: bool = False
    echo: bool = False
    """Whether a route from an engine to itself also leads from each port back to the same port.

    Not to a port whose option ``echo`` is False.
    """
    dead_letters: RouteSpec | None = None
    """The route for messages that destinations of this one refuse; None: they are counted and dropped."""
    takes_refused: bool = False
    """Whether this route is the ``dead_letters`` of others.  Then it takes only refused messages."""

    @property
    def to_all(self) -> bool:
        """Whether every pipe gets every message."""
        return not self.one_of_many and not self.by_content


class Route:
    """The pipes of one route out of one port.  Used by the port's thread."""

    __slots__ = (
        "_absent",
        "_accepts",
        "_deferred",
        "_last_envelope",
        "_last_wanted",
        "_peek",
        "_router",
        "filtered",
        "pending",
        "pipes",
        "spec",
        "suspended",
        "told_refused",
        "unrouted",
    )

    def __init__(self, spec: RouteSpec) -> None:
        self.spec: RouteSpec = spec
        self.pipes: list[Pipe] = []
        self.pending: PendingBatches = PendingBatches()
        """Batches that no pipe of this route can take yet (``when_full = "block"`` only)."""
        self.suspended: bool = False
        """Whether the source goes on although no pipe can take anything.  Messages are dropped and
        counted."""
        self.unrouted: int = 0
        """Messages that were dropped: the router found no pipe for them, or the route was suspended."""
        self.told_refused: bool = False
        """Whether it was reported already that a destination refuses messages."""
        self.filtered: bool = spec.make_filter is not None
        self._router = spec.make_router()
        self._peek: Callable[[Batch], Iterable[Outlet]] = getattr(self._router, "peek", self._look_at_choice)
        self._accepts = spec.make_filter() if spec.make_filter else None
        self._last_envelope: Envelope | None = None
        self._last_wanted = True
        """The filter's answer for the last envelope."""
        self._deferred: dict[Outlet | str, PendingBatches] = {}
        """Batches that wait for one full pipe, or for the next port of an engine (by its name)."""
        every_engine = spec.to_all and spec.confirm
        self._absent = {name for name in spec.targets if name != spec.source} if every_engine else set[str]()
        """Engines without a port that get what is offered now when they have one."""

    # ------------------------------------------------------------------ messages

    def offer(self, batch: Batch, entry: Entry | None = None) -> bool:
        """Pass a batch on if the route's filter accepts it; return whether it does.

        ``entry`` is the batch's entry in the port's ack tracker; None on a route that does not confirm.
        """
        accepts = self._accepts
        if accepts is not None:
            if batch.envelope is not self._last_envelope:  # a flow repeats its envelope: do not ask again
                self._last_envelope = batch.envelope
                self._last_wanted = accepts(batch.envelope)
            if not self._last_wanted:
                return False
        if self.suspended:
            self.unrouted += len(batch.bodies)
        elif self.pending:
            self.pending.append(batch, entry)
        else:
            self._write(batch, entry)
        return True

    def take_refused(self, batch: Batch, entry: Entry | None) -> None:
        """Pass on messages that a destination of another route has refused."""
        if self.pending:
            self.pending.append(batch, entry)
        else:
            self._write(batch, entry)

    def wants(self, batch: Batch) -> bool:
        """Whether the filter accepts a batch and the router would find a pipe for it, as far as it can tell."""
        if self._accepts is not None and not self._accepts(batch.envelope):
            return False
        router_wants: Callable[[Batch], bool] | None = getattr(self._router, "wants", None)
        return router_wants is None or router_wants(batch)

    def retry(self) -> None:
        """Pass on what is pending, as far as pipes can take it.

        Called when a pipe has joined or has room.
        """
        self.suspended = False
        pending, self.pending = self.pending, PendingBatches()
        for batch, entry in pending.release():
            self._write(batch, entry)
            if self.pending:  # no pipe could take this batch: put it back in front of the rest
                pending.prepend_all(self.pending)
                self.pending = pending
                return

    def _write(self, batch: Batch, entry: Entry | None) -> None:
        for engine in self._absent:
            self._defer(engine, batch, entry)
        chosen = self._router.choose(batch)
        if not chosen:
            if self._all_full():
                self.pending.append(batch, entry)
                return
            if self.spec.one_of_many:  # a reader may have made room since the router looked
                chosen = self._router.choose(batch)
        if not chosen:
            if not self._absent:
                self.unrouted += len(batch.bodies)
            return
        if self.spec.by_content:
            chosen = self._defer_for_full_pipes(chosen, entry)
        for outlet, part in chosen:
            _write_to(outlet, part, entry)

    def _defer_for_full_pipes(
        self, chosen: Sequence[tuple[Outlet, Batch]], entry: Entry | None
    ) -> list[tuple[Outlet, Batch]]:
        """Defer what is for full pipes; return the rest of the choice."""
        ready = []
        for outlet, part in chosen:
            if self._must_defer(outlet):
                self._defer(outlet, part, entry)
            else:
                ready.append((outlet, part))
        return ready

    def _must_defer(self, outlet: Outlet) -> bool:
        # Batches that are deferred already go first, even if the reader has made room in the meantime.
        return outlet in self._deferred or (outlet.blocked and not outlet.suspended)

    def _defer(self, to: Outlet | str, batch: Batch, entry: Entry | None) -> None:
        if to not in self._deferred:
            self._deferred[to] = PendingBatches()
        self._deferred[to].append(batch, entry)

    def _write_deferred(self, to: Outlet | str, pipe: Pipe) -> None:
        """Write to ``pipe`` what is deferred to a pipe or to an engine."""
        deferred = self._deferred.pop(to, None)
        if deferred is not None:
            for batch, entry in deferred.release():
                _write_to(pipe, batch, entry)

    def _all_full(self) -> bool:
        """Whether the router chose no pipe because all are full, and not because nobody wants the batch."""
        if self.spec.by_content or self._absent or self.spec.marks.when_full != "block":
            return False
        return all(pipe.blocked and not pipe.suspended for pipe in self.pipes)

    # ------------------------------------------------------------------ pipes

    def attach(self, pipe: Pipe, options: dict[str, Any]) -> None:
        """Add the pipe of a destination that has joined.  ``options`` are what its port asked for."""
        self.pipes.append(pipe)
        self._router.attach(pipe, options)
        self._absent.discard(pipe.engine)
        self._write_deferred(pipe.engine, pipe)  # first: it is older than what is pending
        self.retry()

    def writable(self, pipe: Pipe) -> None:
        """Go on with a pipe that was full and has room again."""
        pipe.suspended = False
        self._write_deferred(pipe, pipe)
        self.retry()

    def detach(self, pipe: Pipe, entry: Entry | None) -> int:
        """Remove the pipe of a destination that has left, and hand over what it did not confirm.

        Returns how many messages were abandoned.  ``entry`` is the entry of the ack tracker that stands for
        them.  Who gets them is said at the head of this file.
        """
        self.pipes.remove(pipe)
        self._router.detach(pipe)
        left = PendingBatches()
        left.prepend(pipe.drain(), entry)
        deferred = self._deferred.pop(pipe, None)
        if deferred is not None:
            deferred.prepend_all(left)  # what was in the pipe is older
            left = deferred
        spec = self.spec
        if spec.to_all and spec.confirm:
            self._defer_to_successor(pipe.engine, left)
            return 0
        if (spec.one_of_many or not self.pipes) and spec.marks.when_full == "block":
            self.pending.prepend_all(left)
            self.retry()
            return 0
        return _abandon(left)

    def _defer_to_successor(self, engine: str, left: PendingBatches) -> None:
        """Defer what a port left behind to the next port of its engine, and what follows if that was the last."""
        if all(pipe.engine != engine for pipe in self.pipes):
            self._absent.add(engine)
        if left:
            before = self._deferred.get(engine)
            if before is not None:
                left.prepend_all(before)
            self._deferred[engine] = left

    def defers_for(self, engine: str) -> bool:
        """Whether messages of a port that left wait for the next port of ``engine``, which has other ports."""
        return engine in self._deferred and engine not in self._absent

    def abandon_deferred(self, engine: str) -> int:
        """Drop what ``defers_for`` speaks of, because no port has joined.

        Return how many messages that is.
        """
        return _abandon(self._deferred.pop(engine)) if self.defers_for(engine) else 0

    def end(self) -> int:
        """End all pipes, because the route was removed; return how many messages that wait are abandoned."""
        for pipe in self.pipes:
            self._write_deferred(pipe, pipe)
            pipe.end()
        return _abandon(self.pending) + sum(map(_abandon, self._deferred.values()))

    def subscribe(self, pipe: Pipe, pattern: str) -> None:
        """Tell the router that the reader of ``pipe`` wants messages whose key matches."""
        self._router.subscribe(pipe, pattern)
        if self.pending:
            self.retry()

    def unsubscribe(self, pipe: Pipe, pattern: str) -> None:
        """Take back a ``subscribe``."""
        self._router.unsubscribe(pipe, pattern)

    # ------------------------------------------------------------------ when the source has to wait

    @property
    def starved(self) -> bool:
        """Whether the route has no pipe, and messages wait for one instead of being dropped."""
        return not self.pipes and not self.spec.by_content and self.spec.marks.when_full == "block"

    @property
    def stopped(self) -> bool:
        """Whether the source has to wait: no pipe is there, or a pipe is full that no other can replace."""
        if self.pending or self.starved:
            if self.spec.takes_refused:  # refused messages are few: stop the source only if many wait
                return self.pending.full(self.spec.marks)
            return not self.suspended
        if self.spec.one_of_many:
            return not self.suspended and all(pipe.blocked for pipe in self.pipes) and bool(self.pipes)
        if self.spec.by_content:
            return bool(self._deferred)
        if any(pipe.blocked and not pipe.suspended for pipe in self.pipes):
            return True
        if not self._deferred:
            return False
        return any(deferred.full(self.spec.marks) for deferred in self._deferred.values())

    def has_room_for(self, batch: Batch) -> bool:
        """Whether this batch would be written at once: the pipes that the router would choose can take it.

        This may be so while ``stopped`` is true because of other batches.
        """
        if not self.spec.by_content or self.pending:
            return not self.stopped
        if self._accepts is not None and not self._accepts(batch.envelope):
            return True
        return not any(map(self._must_defer, self._peek(batch)))

    def _look_at_choice(self, batch: Batch) -> list[Outlet]:
        return [outlet for outlet, _ in self._router.choose(batch)]

    def stalled_consumers(self) -> Iterator[Pipe | Route]:
        """Yield those that the source waits for and that may be suspended: full pipes, or this route as a whole."""
        if self.spec.confirm or self.spec.marks.when_full != "block":
            return
        if self.starved or self.spec.one_of_many:
            if self.stopped:
                yield self
        else:
            yield from (pipe for pipe in self.pipes if pipe.blocked and not pipe.suspended)

    def suspend(self, stalled: Pipe | Route) -> None:
        """Stop waiting for one of the ``stalled_consumers``: it drops and counts messages until it has room."""
        stalled.suspended = True
        if isinstance(stalled, Pipe):
            self._write_deferred(stalled, stalled)

    @property
    def taken(self) -> int:
        """Messages that the readers of the present pipes have taken."""
        return sum(pipe.taken for pipe in self.pipes)

    @property
    def waiting(self) -> int:
        """Messages that are pending or deferred.  Any thread; for statistics."""
        return self.pending.messages + sum(deferred.messages for deferred in list(self._deferred.values()))

    @property
    def plain(self) -> bool:
        """Whether a pipe that is the only one gets everything, so that the router need not be asked."""
        return self.spec.to_all or self.spec.one_of_many

    def __repr__(self) -> str:
        return f"<Route {self.spec.name} pipes={len(self.pipes)} waiting={self.waiting} unrouted={self.unrouted}>"


def _write_to(outlet: Outlet, batch: Batch, entry: Entry | None) -> None:
    outlet.write(batch)  # type: ignore[attr-defined]
    if entry is not None:
        entry.needs[outlet] = outlet.written  # type: ignore[attr-defined, index]


def _abandon(pending: PendingBatches) -> int:
    """Drop all batches; return how many messages they are.  Their entries no longer wait for them."""
    return sum(len(batch.bodies) for batch, _ in pending.release())
