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
* *deferred*: the router chose a destination that cannot take it now, and no other one may have it
  (``_deferred``).  It waits for that pipe to have room, or for the next port of that engine.
* dropped: it is counted in ``unrouted``, in the pipe's ``dropped``, or in what ``detach`` and ``end`` return.

What happens to a full destination
----------------------------------
A destination in trouble must not stop the others.  What that means depends on the router:

* One of many (round robin): other pipes take the messages.  If all are full, batches are pending, and the
  source stops.
* By content (by key, reply): batches for a full pipe are deferred, and the source stops.
* To all (fan-out): the source stops as soon as one pipe is full.  A batch that comes all the same is written:
  a pipe with ``when_full = "block"`` takes more than its marks, and says that it is full.

A source that stops waits no longer than the stall timeout if others could go on
(``kernel.dispatcher.stall_watch``).  After that the pipe, or the route, is *suspended*: it drops what it
cannot take until it has room again.

What happens when a destination leaves
--------------------------------------
``detach`` drains its pipe: what the reader took and did not confirm, and what it never took.

* To all, with ``confirm``: the batches are deferred to the next port of the same engine.  If the engine has
  no other port it becomes *absent*: everything that is offered from then on is deferred as well, until a
  port joins.  Target engines are absent from the beginning, until their first port joins.
* One of many, or no other pipe is left, both with ``when_full = "block"``: the batches are pending.  They go
  to the pipes that are left, or to the next one that joins.
* Otherwise they are abandoned: other readers have had them, or nobody else subscribed to them.

Invariants
----------
1. Order: while batches are pending, new ones are appended behind them.  While batches are deferred to a pipe,
   new ones for it are deferred, too, even if it has room by now (``_must_defer``).
2. On a route that confirms, each batch that is pending or deferred is counted in one entry of the ack
   tracker.  So a source is never told that such a batch is confirmed.
3. An engine is absent only while no pipe of this route leads to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import attrgetter
from typing import Any

import msgspec

from kernel.contracts.message import Batch, Envelope
from kernel.contracts.router import Outlet, Router
from kernel.dispatcher.ack_tracker import Entry
from kernel.dispatcher.pending import PendingBatches
from kernel.pipes.pipe import Pipe
from kernel.pipes.water_marks import WaterMarks

_is_blocked: Callable[[Any], bool] = attrgetter("blocked")


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
        # Not the source's own engine: no port leads to itself, so the only port of an engine would wait for a
        # second one for ever.
        self._absent = {name for name in spec.targets if name != spec.source} if every_engine else set[str]()
        """Engines without a port that get what is offered now when they have one."""

    # ------------------------------------------------------------------ messages

    def offer(self, batch: Batch, entry: Entry | None = None) -> bool:
        """Pass a batch on if the route's filter accepts it; return whether it does.

        ``entry`` is the batch's entry in the port's ack tracker; None on a route that does not confirm.
        """
        accepts = self._accepts
        if accepts is not None:
            # A flow repeats its envelope, and an envelope never changes. So one comparison of pointers is
            # enough.
            if batch.envelope is not self._last_envelope:
                self._last_envelope = batch.envelope
                self._last_wanted = accepts(batch.envelope)
            if not self._last_wanted:
                return False
        if self.suspended:
            # The whole route has taken nothing for the stall timeout. Its entry in the tracker, if any, needs
            # nothing from here: a route that confirms is never suspended.
            self.unrouted += len(batch.bodies)
        # Behind what waits already, even if a pipe has room by now: order.
        elif self.pending.batches:
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
        """Whether the filter accepts a batch, and the router would find a pipe for it.

        A router that cannot tell in advance counts as one that finds a pipe.
        """
        if self._accepts is not None and not self._accepts(batch.envelope):
            return False
        router_wants: Callable[[Batch], bool] | None = getattr(self._router, "wants", None)
        return router_wants is None or router_wants(batch)

    def retry(self) -> None:
        """Pass on what is pending, as far as pipes can take it.

        Called when a pipe has joined or has room.
        """
        self.suspended = False
        # ``_write`` appends to ``self.pending`` what no pipe can take. With an empty one in its place that is
        # easy to see, and ``offer`` is not called meanwhile.
        pending, self.pending = self.pending, PendingBatches()
        for batch, entry in pending.release():
            self._write(batch, entry)
            # No pipe could take this batch: put it back in front of the rest, and wait for room.
            if self.pending:
                pending.prepend_all(self.pending)
                self.pending = pending
                return

    def _write(self, batch: Batch, entry: Entry | None) -> None:
        # An absent engine gets its own copy later. Those that are present do not wait for it.
        for engine in self._absent:
            self._defer(engine, batch, entry)
        chosen = self._router.choose(batch)
        if not chosen:
            if self._all_full():
                self.pending.append(batch, entry)
                return
            # The router looked at ``full``, we look at ``blocked``. A reader in another thread may have made
            # room in between, so a router that found nobody is asked once more before messages are dropped.
            if self.spec.one_of_many:
                chosen = self._router.choose(batch)
        if not chosen:
            # What is deferred to an absent engine is not lost.
            if not self._absent:
                self.unrouted += len(batch.bodies)
            return
        # A pipe that drops is never waited for.
        # Mostly there is one, and nothing has to be deferred.
        if (
            self.spec.by_content
            and (self._deferred or self.spec.marks.when_full == "block")
            and (self._deferred or len(chosen) > 1 or chosen[0][0].blocked)
        ):
            chosen = self._defer_for_full_pipes(chosen, entry)
        _write_to_all(chosen, entry)

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
        # Made when it is needed: most routes never defer anything, and there may be thousands of pipes.
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
        # True without any pipe, too: with ``block`` messages wait for the first destination that joins.
        return all(pipe.blocked and not pipe.suspended for pipe in self.pipes)

    # ------------------------------------------------------------------ pipes

    def attach(self, pipe: Pipe, options: dict[str, Any]) -> None:
        """Add the pipe of a destination that has joined.  ``options`` are what its port asked for."""
        self.pipes.append(pipe)
        self._router.attach(pipe, options)
        # Before anything is written: from here on the router decides about this engine.
        self._absent.discard(pipe.engine)
        # First what is deferred: it is older than what is pending.
        self._write_deferred(pipe.engine, pipe)
        self.retry()

    def writable(self, pipe: Pipe) -> None:
        """Go on with a pipe that was full and has room again."""
        pipe.suspended = False
        # Readers still take what is in their pipes. What only waited for room goes there, too: a pipe that
        # blocks takes more than its marks.
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
        # On a route that confirms, ``entry`` was made by ``AckTracker.release`` just before: it counts each
        # of these batches as pending, so the source is not told too early.
        left.prepend(pipe.drain(), entry)
        deferred = self._deferred.pop(pipe, None)
        if deferred is not None:
            # What was in the pipe is older than what waited for room in it.
            deferred.prepend_all(left)
            left = deferred
        spec = self.spec
        if spec.to_all and spec.confirm:
            self._defer_to_successor(pipe.engine, left)
            return 0
        # Routes that drop do not keep messages for a destination that may never join; the others have
        # promised to.
        if (spec.one_of_many or not self.pipes) and spec.marks.when_full == "block":
            self.pending.prepend_all(left)
            self.retry()
            return 0
        return _abandon(left)

    def _defer_to_successor(self, engine: str, left: PendingBatches) -> None:
        """Defer what a port left behind to the next port of its engine.

        If it was the last port of the engine, everything that follows is deferred, too.
        """
        if all(pipe.engine != engine for pipe in self.pipes):
            self._absent.add(engine)
        if left:
            before = self._deferred.get(engine)
            if before is not None:
                left.prepend_all(before)
            self._deferred[engine] = left

    def defers_for(self, engine: str) -> bool:
        """Whether messages of a port that left wait for the next port of ``engine``.

        False if the engine has no other port: then they wait without limit.
        """
        return engine in self._deferred and engine not in self._absent

    def abandon_deferred(self, engine: str) -> int:
        """Drop what ``defers_for`` speaks of, because no port has joined.

        Return how many messages that is.
        """
        # A port may have joined since the deadline was set. Then it has the messages, and there is nothing to
        # drop.
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
        if self.pending.batches or (not self.pipes and self.starved):
            # Refused messages are few. If the engine for dead letters is away, the source goes on, until as
            # many dead letters wait as fit in one pipe.
            if self.spec.takes_refused:
                return self.pending.full(self.spec.marks)
            return not self.suspended
        if self.spec.one_of_many:
            return not self.suspended and all(pipe.blocked for pipe in self.pipes) and bool(self.pipes)
        if self.spec.by_content:
            # The route cannot know whether the next message is for the full pipe, so the source waits. An
            # owner that knows its batch asks ``has_room_for``.
            return bool(self._deferred)
        # First in C: mostly none is blocked, and this is asked twice for each batch and each pipe.
        if True in map(_is_blocked, self.pipes) and any(
            pipe.blocked and not pipe.suspended for pipe in self.pipes
        ):
            return True
        # To all: batches wait for the next port of an engine. The source does not wait for that port until as
        # much is deferred as one pipe holds.
        if not self._deferred:
            return False
        return any(deferred.full(self.spec.marks) for deferred in self._deferred.values())

    def has_room_for(self, batch: Batch) -> bool:
        """Whether this batch would be written at once: the pipes that the router would choose can take it.

        This may be so while ``stopped`` is true because of other batches.
        """
        if not self.spec.by_content or self.pending.batches:
            return not self.stopped
        if self._accepts is not None and not self._accepts(batch.envelope):
            return True
        return not any(map(self._must_defer, self._peek(batch)))

    def _look_at_choice(self, batch: Batch) -> list[Outlet]:
        return [outlet for outlet, _ in self._router.choose(batch)]

    def stalled_consumers(self) -> Iterator[Pipe | Route]:
        """Yield what the source waits for and what may be suspended: full pipes, or this route as a whole."""
        # Messages of a route that confirms must not be dropped, so it is waited for without limit. A route
        # that drops stops nobody.
        if self.spec.confirm or self.spec.marks.when_full != "block":
            return
        # The pipes replace each other, or there is none: it is the route as a whole that takes nothing.
        if self.starved or self.spec.one_of_many:
            if self.stopped:
                yield self
        else:
            yield from (pipe for pipe in self.pipes if pipe.blocked and not pipe.suspended)

    def suspend(self, stalled: Pipe | Route) -> None:
        """Stop waiting for one of the ``stalled_consumers``.

        It drops and counts messages until it has room.
        """
        stalled.suspended = True
        if isinstance(stalled, Pipe):
            # The pipe is suspended and full, so it drops these batches and counts them. Otherwise they would
            # stop the source (``stopped``).
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
    def gives_all_to_all(self) -> bool:
        """Whether each message goes into every pipe now, and nothing waits in front of it."""
        spec = self.spec
        return spec.to_all and not (spec.confirm or self.suspended or self.pending or self._deferred)

    @property
    def plain(self) -> bool:
        """Whether a pipe that is the only one gets everything, so that the router need not be asked."""
        spec = self.spec
        if not spec.by_content:
            return True
        # What is deferred goes first.
        if self._deferred or spec.marks.when_full == "block":
            return False
        all_to_all: Callable[[], bool] | None = getattr(self._router, "all_to_all", None)
        return all_to_all is not None and all_to_all()

    def __repr__(self) -> str:
        return f"<Route {self.spec.name} pipes={len(self.pipes)} waiting={self.waiting} unrouted={self.unrouted}>"


def _write_to(outlet: Outlet, batch: Batch, entry: Entry | None) -> None:
    outlet.write(batch)  # type: ignore[attr-defined]
    if entry is not None:
        # After the write: this is the number of the batch's last message in the pipe. If the pipe has dropped
        # the batch, the number is that of an earlier message, and the entry does not wait in vain.
        entry.needs[outlet] = outlet.written  # type: ignore[attr-defined, index]


def _write_to_all(chosen: Sequence[tuple[Outlet, Batch]], entry: Entry | None) -> None:
    if entry is None:
        # Not ``_write_to``: a call more for each of many pipes.
        for outlet, part in chosen:
            outlet.write(part)  # type: ignore[attr-defined]
        return
    for outlet, part in chosen:
        _write_to(outlet, part, entry)


def _abandon(pending: PendingBatches) -> int:
    """Drop all batches; return how many messages they are.  Their entries no longer wait for them."""
    return sum(len(batch.bodies) for batch, _ in pending.release())
