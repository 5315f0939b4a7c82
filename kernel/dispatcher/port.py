"""Port: an engine's interface to the dispatcher.  Batches in, batches out.

Sending
-------
``send`` offers each batch to all routes of the port.  A route decides whether the batch is for it, and writes
it to pipes.  Every batch is accepted.  If a pipe that blocks is full afterwards, ``send`` returns False: the
engine stops reading its source until ``on_writable``.  A port with one route to one pipe, without filter or
confirmation, writes to that pipe directly (``_only``).

Taking
------
``take`` reads the incoming pipes in turn, one pipe for each call.  Three counts number a message on its way:

* the sending port numbers it when it is sent (``AckTracker.sent``), if a route of that port confirms;
* the pipe numbers it when it is written (``Pipe.written``);
* the taking port numbers it when it is taken: its *position*.

Owners know positions only.  ``_unconfirmed`` translates a position to the number in the pipe: all messages of
one ``take`` come from one pipe, so the two numbers differ by a constant, which is stored with each entry.
The ack tracker of the sending port translates the number in the pipe to the number at the source.

Invariants
----------
1. Positions only grow, and all messages are numbered, also those that nobody waits for.  So the counts of a
   conversation and the positions differ by a constant.
2. ``_unconfirmed`` is in the order of positions.  It has entries of confirming pipes only, and no position
   twice.  A position that is in no entry needs no confirmation (any more), and is ignored.
3. ``_stopped`` is true from a ``send`` that returned False (or from ``stop``) until ``on_writable`` is
   called, or a later ``send`` finds room.

Threads and failures
--------------------
A port, its routes and its tracker belong to one thread.  What other threads want of it is posted to the
mailbox of that thread (the second half of the class).  Such a call may be processed after the port, the route
or the pipe that it is about has gone, so each one has to be harmless then.  What the owner or a router raises
is passed to ``on_failure``, which ends the engine: the thread that calls hosts other engines, too.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Concatenate, ParamSpec

from kernel.contracts.engine import HOPS, NOTHING_TAKEN, PortOwner, Taken
from kernel.contracts.message import Batch, Envelope
from kernel.contracts.mixed_batch import MIXED, EnvelopesByKey, all_divided, envelope_of
from kernel.dispatcher.ack_tracker import AckTracker
from kernel.dispatcher.dead_letter import dead_letter
from kernel.dispatcher.demand import Demand
from kernel.dispatcher.effect import Effect, PeerAnswers
from kernel.dispatcher.route import Route
from kernel.dispatcher.stall_watch import StallWatch
from kernel.pipes.fair_queue import FairQueue
from kernel.pipes.pipe import Pipe
from kernel.pipes.pipe_fan import PipeFan

EVERYTHING = 1 << 30
_MOST_FANNED = 256
"""Pipes of a fan-out that are written to as one.  A change of one of them costs a step for each."""

P = ParamSpec("P")


def _blamed(method: Callable[Concatenate[Port, P], None]) -> Callable[Concatenate[Port, P], None]:
    """Make what a router raises the failure of the port's engine, not of the thread that both live in."""

    def guarded(self: Port, /, *args: P.args, **kwargs: P.kwargs) -> None:
        try:
            method(self, *args, **kwargs)
        except Exception as error:
            self.on_failure(error)

    return guarded


class Port:
    """The pipes that lead to one engine (or one connection of it), and its routes out."""

    def __init__(
        self,
        name: str,
        group: str,
        owner: PortOwner,
        post: Callable[[Callable[[], Any]], Any],
        options: dict[str, Any] | None = None,
    ) -> None:
        self.name = name
        self.group = group
        self.options: dict[str, Any] = options or {}
        self.post = post
        self.closed: bool = False
        self.unrouted: int = 0
        """Messages sent here that no route accepted: there was no route, or no filter let them pass."""
        self.abandoned: int = 0
        """Messages that a destination left behind and nobody took over, or that waited for a destination when
        the port closed."""
        self.origin: tuple[str, str] = ("", "")
        """The names of the port and of the route from which the last messages taken came."""
        self.routes: list[Route] = []
        self.stall_watch: StallWatch = StallWatch(self.routes)
        self.on_topology: Callable[[], Any] = _ignore
        """Called after routes or pipes have changed: time to look for a short cut."""
        self.on_failure: Callable[[Exception], Any] = _raise
        """Gets what the owner raises."""
        self.leave: Callable[[Port], Any] = _ignore
        """Set by the dispatcher."""
        self._owner = owner
        self._demand = Demand(owner)
        self._peer_answers = PeerAnswers(owner)
        self._queue = FairQueue()
        queue = self._queue
        self._effect = Effect(lambda: queue.pipes)
        self._asking = False
        """Whether a question of this port itself is under way (``subscribed``)."""
        self._unasked = False
        """Whether there are subscriptions, or sources, that this port itself has not asked about yet."""
        self._queue.on_ended = self._forget_when_confirmed
        self._confirming: set[Pipe] = set()
        self._position = 0
        """The position of the last message taken."""
        self._unconfirmed: deque[tuple[Pipe, int, int, int]] = deque()
        """What was taken from confirming pipes, in order.

        The pipe, the first and the last position, and what has to be added for the number in the pipe.
        """
        self._tracker: AckTracker | None = None
        self._stopped = False
        self._only: Pipe | None = None
        self._takes_mixed = False
        self._by_key = EnvelopesByKey()

    # ------------------------------------------------------------------ sending

    def send(self, batches: Sequence[Batch]) -> bool:
        """Route batches; False: stop until ``on_writable``."""
        only = self._only
        if only is not None:
            # No tracker, no filter and no choice: nothing to ask for each batch.
            going = True
            for batch in batches:
                going = only.write(batch)
            self._stopped = not going
            return going
        # Routes decide for each envelope.
        if MIXED in map(envelope_of, batches):
            batches = all_divided(batches, self._by_key)
        tracker = self._tracker
        for batch in batches:
            # Also for a batch that no confirming route takes. Its entry has nothing to wait for, but it keeps
            # the numbers of this port and of its owner the same.
            entry = tracker.add(len(batch.bodies)) if tracker is not None else None
            wanted = False
            for route in self.routes:
                if route.offer(batch, entry if route.spec.confirm else None):
                    wanted = True
            if not wanted:
                self.unrouted += len(batch.bodies)
        if tracker is not None and tracker.advance():
            # Posted, not called: the owner is in the middle of its own call of ``send``, and does not expect
            # to be called inside it.
            self.post(self._tell_confirmed)
        if self.writable():
            self._stopped = False
            return True
        self.stop()
        return False

    def wants(self, what: Envelope | Batch) -> bool:
        """Whether a route from here lets these messages pass, and its router would find somebody for them."""
        batch = what if isinstance(what, Batch) else Batch((), 0, what)
        routes = self.routes
        # Mostly there is one route, and a generator costs two calls more.
        return routes[0].wants(batch) if len(routes) == 1 else any(route.wants(batch) for route in routes)

    def writable(self) -> bool:
        """Whether nothing holds the source back."""
        routes = self.routes
        return not (routes[0].stopped if len(routes) == 1 else any(route.stopped for route in routes))

    def has_room_for(self, batch: Batch) -> bool:
        """Whether this batch need not wait.

        A route that looks at messages makes only those wait that are for a full pipe.
        """
        only = self._only
        if only is not None:
            # What the route would answer: it has nothing pending and no other pipe.
            return not only.blocked or only.suspended
        routes = self.routes
        if len(routes) == 1:
            return routes[0].has_room_for(batch)
        return bool(routes) and all(route.has_room_for(batch) for route in routes)

    def check_stalls(self) -> bool:
        """Stop waiting for destinations whose stall timeout is over; return whether there were any.

        Called by the port's host at the ``deadline``.
        """
        abandoned = self.stall_watch.handle_timeout()
        if abandoned is None:
            return False
        # What was abandoned may have been the last that an entry of the tracker waited for, and the last that
        # made the source wait.
        self.abandoned += abandoned
        self._on_pipe_confirmed()
        self._writable_again()
        return True

    def stop(self) -> None:
        """The source waits until ``on_writable``."""
        if not self._stopped:
            self._stopped = True
            self.stall_watch.watch()

    def short_cut(self) -> Pipe | None:
        """The pipe to write to directly; None if there is none.

        There is one while one route without filter leads to one pipe, and no route has confirmed so far.
        """
        return self._only

    def fast_pipe(self) -> Pipe | PipeFan | None:
        """The short cut, or all pipes of the only route, which gives every message to each of them.

        None: messages have to be looked at.
        """
        if self._only is not None or len(self.routes) != 1 or self._tracker is not None:
            return self._only
        route = self.routes[0]
        if route.filtered or not route.gives_all_to_all or not 1 < len(route.pipes) <= _MOST_FANNED:
            return None
        return PipeFan(route.pipes)

    def only_target(self) -> Pipe | None:
        """The only pipe that leads from here, whatever the router chooses by.

        None: there is none, or another one.
        """
        if self._only is None and len(self.routes) == 1 and self._tracker is None:
            route = self.routes[0]
            if not (route.filtered or route.pending or route.spec.confirm) and len(route.pipes) == 1:
                return route.pipes[0]
        return self._only

    @property
    def confirms(self) -> bool:
        """Whether ``on_confirmed`` will be called: a route out confirms."""
        return self._tracker is not None

    def confirmed(self) -> int:
        """The position up to which every destination has confirmed."""
        return self._tracker.confirmed if self._tracker else 0

    def sent(self) -> int:
        """The position of the last message sent, which ``confirmed`` will reach."""
        return self._tracker.sent if self._tracker else 0

    # ------------------------------------------------------------------ receiving

    def take(self, most: int = EVERYTHING) -> Taken:
        """Take about ``most`` messages from the incoming pipes in turn."""
        # The usual answer to a thread of the application that is about to wait.
        if not self._queue.active:
            return NOTHING_TAKEN
        got = self._queue.take(most)
        if got is None:
            return NOTHING_TAKEN
        pipe, batches, count = got
        self.origin = pipe.origin
        before = self._position
        position = self._position = before + count
        if pipe.confirms:
            # ``pipe.taken`` is the number of the last message in the pipe, ``position`` that of the same
            # message here.
            self._unconfirmed.append((pipe, before + 1, position, pipe.taken - position))
        elif not self._confirming:
            # No pipe of this port confirms, so nobody will ask for any position.
            return Taken(batches, count, None)
        # A pipe that does not confirm beside one that does: its messages have positions, too. Without them
        # the owner would see gaps, and could not confirm cumulatively (docs/decisions/0019-positions.md).
        return Taken(batches, count, position)

    def take_alone(self, posted: deque[Callable[[], Any]], into: deque[Batch], most: int) -> bool | None:
        """Take from the only pipe, if nothing else is to do; see the contract."""
        queue = self._queue
        pipe = queue.only()
        if pipe is None or pipe.confirms or pipe.ended or self._confirming:
            return None
        told = bool(posted)
        if told and (len(posted) > 1 or posted[0] is not pipe.on_ready):
            return None
        if pipe.blocked:
            # It may have room since a call in which a handler raised.
            pipe.unblock()
        items = pipe.queue
        before = pipe.taken
        batches = pipe.take_quietly(most)
        # No call from here on: what was taken is counted.
        into += batches
        self._position += pipe.taken - before
        self.origin = pipe.origin
        # What ``FairQueue.activate`` and ``take`` do. The writer has posted again if it has written since.
        queue.active = 1 if items else 0
        if told:
            del posted[0]
        if batches:
            pipe.look_at_writer()
            return True
        return False

    def accept_mixed(self, *, accepts: bool = True) -> None:
        """Say whether ``take`` may return mixed batches; see the contract."""
        self._takes_mixed = accepts
        for pipe in self._queue.pipes:
            pipe.takes_mixed = accepts and not pipe.confirms

    def has_input(self) -> bool:
        """Whether ``take`` would find something."""
        return self._queue.active > 0

    def sources(self) -> tuple[Pipe, ...]:
        """The pipes that lead here."""
        return self._queue.pipes

    @property
    def wants_confirm(self) -> bool:
        """Whether a route in confirms, so that ``take`` gives positions."""
        return bool(self._confirming)

    def confirm_through(self, position: int | None) -> None:
        """Take the responsibility for all messages taken up to ``position``; see the contract."""
        if position is None:
            return
        unconfirmed = self._unconfirmed
        while unconfirmed and unconfirmed[0][1] <= position:
            pipe, _, last, shift = unconfirmed.popleft()
            # The confirmation ends inside this entry. The rest keeps its shift, since it is still in the same
            # pipe.
            if last > position:
                unconfirmed.appendleft((pipe, position + 1, last, shift))
                last = position
            pipe.confirm_through(last + shift)
            # Its source has gone, and this may have been the last that was unconfirmed.
            if pipe.ended:
                self._forget_when_confirmed(pipe)

    def confirm_only(self, first: int, last: int) -> None:
        """Take the responsibility for messages ``first`` to ``last`` only; see the contract."""
        for pipe, start, stop in self._numbers(first, last):
            pipe.confirm_only(start, stop)
            self._on_answered(pipe)

    def refuse(self, first: int, last: int, reason: str) -> None:
        """Send back messages ``first`` to ``last``; see the contract."""
        for pipe, start, stop in self._numbers(first, last):
            pipe.refuse(start, stop, reason)

    def _numbers(self, first: int, last: int) -> list[tuple[Pipe, int, int]]:
        """Return which messages of which pipes these positions are."""
        unconfirmed = self._unconfirmed
        # ``confirm_only`` and ``refuse`` remove nothing from ``_unconfirmed``; the pipe knows what was
        # answered. Entries that the pipe has confirmed as a whole are removed here, so that the list does not
        # grow.
        while unconfirmed and unconfirmed[0][2] + unconfirmed[0][3] <= unconfirmed[0][0].confirmed:
            unconfirmed.popleft()
        found = []
        for pipe, begin, end, shift in unconfirmed:
            if begin > last:
                break
            if end >= first:
                found.append((pipe, max(first, begin) + shift, min(last, end) + shift))
        return found

    def take_again(self) -> Taken:
        """Take once more, under new positions, what was taken and never answered for."""
        # The pipes know which messages are unconfirmed, ``_unconfirmed`` knows in which order they were taken
        # from several pipes. Both are in ascending order, so one pass over each is enough.
        left = {pipe: deque(pipe.numbered()) for pipe in self._confirming}
        before = self._position
        batches: list[Batch] = []
        again: deque[tuple[Pipe, int, int, int]] = deque()
        for pipe, _, last, shift in self._unconfirmed:
            numbered = left.get(pipe)
            while numbered and numbered[0][0] <= last + shift:
                number, batch = numbered.popleft()
                start = self._position + 1
                self._position += len(batch)
                # An entry for each batch, not for each ``take``: between two batches there may be a gap of
                # messages that were answered out of order, and behind it the shift is another one.
                again.append((pipe, start, self._position, number - start))
                batches.append(batch)
        # From here on the old positions are in no entry. A late confirmation of the former conversation is
        # therefore ignored.
        self._unconfirmed = again
        if not batches:
            return NOTHING_TAKEN
        return Taken(batches, self._position - before, self._position)

    def subscribe(self, pattern: str) -> None:
        """Ask the routes that lead here for messages whose key matches ``pattern``."""
        self.options.setdefault("subscriptions", []).append(pattern)
        # Pipes that are attached later get it from ``options`` (``attach_in``).
        for pipe in self._queue.pipes:
            pipe.ask_writer("subscribe", pattern)
        self._unasked = True
        self._effect.subscribed()

    def unsubscribe(self, pattern: str) -> None:
        """Take a subscription back."""
        subscriptions = self.options.get("subscriptions", [])
        if pattern in subscriptions:
            subscriptions.remove(pattern)
            for pipe in self._queue.pipes:
                pipe.ask_writer("unsubscribe", pattern)

    def subscribed(self) -> bool:
        """Whether all that was subscribed to is in effect at the sources that are there; see the contract."""
        # The sources are asked here and not in ``subscribe``: most ports never want to know, and each answer
        # of a peer costs two frames.
        if self._asking:
            self._effect.look(HOPS)
        elif self._unasked:
            self._ask_effect()
        return not self._asking and not self._unasked

    def _ask_effect(self) -> bool:
        """Ask whether the subscriptions are in effect; return True if they are."""
        self._unasked = False
        self._asking = not self._effect.ask(HOPS, self._on_effect)
        return not self._asking

    def _on_effect(self) -> None:
        self._asking = False
        # The port has subscribed since it asked.  One question is enough for all that came meanwhile.
        if self._unasked and not self._ask_effect():
            return
        on_subscribed = getattr(self._owner, "on_subscribed", None)
        if on_subscribed is not None and not self.closed:
            try:
                on_subscribed()
            except Exception as error:
                self.on_failure(error)

    def when_subscribed(self, hops: int, then: Callable[[], Any]) -> None:
        """Call ``then`` when the subscriptions are in effect; see the contract."""
        # Questions of peers never join that of this port itself, which also waits for the application.
        if self._effect.ask(min(hops, HOPS - 1), then):
            then()

    def forget_when_subscribed(self) -> None:
        """Forget all calls of ``when_subscribed``."""
        self._effect.cancel(keep=self._on_effect)

    def unsynced(self) -> list[int]:
        """Return the numbers of hops for which the owner's peer has not answered."""
        return self._peer_answers.open()

    def synced(self, hops: int) -> None:
        """Take notice that the owner's peer has answered, or cannot answer."""
        self._peer_answers.answered(hops)

    @property
    def asked(self) -> Mapping[str, int]:
        """What the readers of what is sent here have subscribed to, and how often.

        For owners with ``on_asked``.
        """
        return self._demand.counts

    def close(self) -> None:
        """Leave the dispatcher."""
        if not self.closed:
            self.closed = True
            # What waits in a route that confirms is not counted: its source was never told that it is safe,
            # and has to send it again.
            self.abandoned += sum(route.waiting for route in self.routes if not route.spec.confirm)
            self.leave(self)
            # Nobody is told anything any more.  Without these references the port and its owner are freed
            # now, and not by a collection of garbage.
            self._owner = _NOBODY
            self._demand.forget_owner()
            self._peer_answers.forget_owner()
            self._queue.on_ended = None
            self.stall_watch.on_change = _ignore

    # ------------------------------------------------------------------ called through the mailbox

    def attach_in(self, pipe: Pipe, subscribed: Sequence[str] = ()) -> None:
        """A pipe from somewhere leads here; its writer knows of the subscriptions ``subscribed``."""
        self._queue.attach(pipe)
        # What is taken from a pipe that confirms is kept there, as batches.
        pipe.takes_mixed = self._takes_mixed and not pipe.confirms
        wanted, known = Counter(self.options.get("subscriptions", ())), Counter(subscribed)
        # The writer was told what this port had subscribed to when the pipe was made. This call was posted,
        # so the port may have changed its subscriptions since then. The writer is told the difference.
        for pattern in (wanted - known).elements():
            pipe.ask_writer("subscribe", pattern)
        # ``attach_out`` may not have run yet.  It was posted before any question of this port can be.
        if wanted:
            self._unasked = True
        for pattern in (known - wanted).elements():
            pipe.ask_writer("unsubscribe", pattern)
        if pipe.confirms:
            self._confirming.add(pipe)
            pipe.on_answered = partial(self._on_answered, pipe)
        # The writer may have written before this call. Its post came when the pipe was not attached, and was
        # ignored; while ``signalled`` is set, it does not post again.
        if pipe.more():
            self._ready(pipe)

    def _forget_when_confirmed(self, pipe: Pipe) -> None:
        """A source has gone: nobody waits for confirmations of what was read to its end and is confirmed."""
        # Posted: this may be in the middle of ``take``, and the owner may close the port when it is told.
        if self._effect.asking():
            self.post(partial(self._effect.forget, pipe))
        # While something was taken and is not confirmed, the pipe stays: the writer's tracker waits for it.
        if pipe.ended and not pipe.more() and not pipe.awaits():
            self._confirming.discard(pipe)

    def _on_answered(self, pipe: Pipe) -> None:
        """Single messages of a pipe were answered for, perhaps the last of one that has ended."""
        if pipe.ended:
            self._forget_when_confirmed(pipe)

    def ready_callback(self, pipe: Pipe) -> Callable[[], None]:
        """What the writer of ``pipe`` posts when it has written."""
        return partial(self._ready, pipe)

    @_blamed
    def lend(self, lease: Any) -> None:
        """The thread of an application, which writes here, asks for a lease (``kernel.hosting.lease``)."""
        on_lease_asked = getattr(self._owner, "on_lease_asked", None)
        if on_lease_asked is not None and not self.closed:
            on_lease_asked(lease)

    def suggest_lease(self) -> None:
        """Tell the only source that its messages come one by one, so that it may ask for a lease."""
        pipes = self._queue.pipes
        if len(pipes) == 1:
            pipes[0].suggest_lease()

    def _on_lone(self) -> None:
        on_lone = getattr(self._owner, "on_lone", None)
        if on_lone is not None and not self.closed:
            on_lone()

    def _ready(self, pipe: Pipe) -> None:
        if self.closed or not self._queue.activate(pipe):
            return
        try:
            self._owner.on_output()
        except Exception as error:
            self.on_failure(error)

    def attach_route(self, route: Route) -> None:
        """A route begins here."""
        self.routes.append(route)
        if route.spec.confirm and self._tracker is None:
            # It stays when the route is removed: the owner counts what it sends, and goes on with the same
            # numbers.
            self._tracker = AckTracker()
        self._topology_changed()

    @_blamed
    def detach_route(self, spec: object) -> None:
        """A route was removed: its pipes end when their readers have taken what is in them."""
        for route in [route for route in self.routes if route.spec is spec]:
            self.routes.remove(route)
            for pipe in route.pipes:
                self._demand.leave(pipe)
                self._peer_answers.forget(pipe)
            # The pipes are not drained: readers still take, and confirm, what is in them.
            self.abandoned += route.end()
        self._topology_changed()
        self._on_pipe_confirmed()
        self._writable_again()

    @_blamed
    def attach_out(self, spec: object, pipe: Pipe, options: dict[str, Any]) -> None:
        """A destination has joined one of our routes."""
        # Closed before this call was processed. The dispatcher has ended the pipe when the port left.
        if self.closed:
            return
        for route in self.routes:
            if route.spec is spec:
                # All callbacks before ``attach``, which may already write to the pipe what was waiting for
                # it.
                pipe.on_writable = partial(self._on_pipe_writable, route, pipe)
                pipe.on_confirmed = self._on_pipe_confirmed
                pipe.on_asked = partial(self._on_asked, route, pipe)
                pipe.on_effect = partial(self._on_effect_asked, pipe)
                pipe.on_lone = self._on_lone
                pipe.on_refused = partial(self._on_refused, route, pipe)
                if route.suspended:
                    self.stall_watch.back(route)
                route.attach(pipe, options)
                for pattern in options.get("subscriptions", ()):
                    self._on_asked(route, pipe, "subscribe", pattern)
                break
        self._topology_changed()
        self._writable_again()

    @_blamed
    def detach_out(self, pipe: Pipe) -> None:
        """A destination has left: its reader will not touch the pipe again."""
        self._demand.leave(pipe)
        self._peer_answers.forget(pipe)
        for route in self.routes:
            if pipe in route.pipes:
                # First ``release``, then ``detach``: what ``detach`` takes out of the pipe may be written to
                # another one at once, and has to be noted in the entry that stands for it now.
                entry = self._tracker.release(pipe) if self._tracker else None
                self.abandoned += route.detach(pipe, entry)
                self.stall_watch.forget(pipe)
                if route.defers_for(pipe.engine):
                    self.stall_watch.await_return(route, pipe.engine)
                break
        else:
            # The route was removed before its reader left.
            if self._tracker:
                # There is no route to hand the messages over to. They are abandoned, and ``release`` lets the
                # source go on: nobody will ever confirm them.
                self._tracker.release(pipe)
                self.abandoned += sum(map(len, pipe.drain()))
        self._topology_changed()
        self._on_pipe_confirmed()
        self._writable_again()

    def end_outgoing(self) -> None:
        """This port has left: mark the end of its pipes.  The readers see it behind what is in the pipes."""
        for route in self.routes:
            # What waits in the route goes on into the pipes when they have room.  Who has not confirmed yet
            # may still refuse.
            over = not (route.spec.confirm or route.waiting)
            for pipe in route.pipes:
                pipe.end()
                if over:
                    pipe.forget_writer()

    @_blamed
    def _on_asked(self, route: Route, pipe: Pipe, verb: str, pattern: str) -> None:
        # The reader, or the route, has gone since this was posted.
        if pipe not in route.pipes:
            return
        if verb == "subscribe":
            route.subscribe(pipe, pattern)
            before = len(self._demand.counts)
            self._demand.subscribe(pipe, pattern)
            # The owner passes on the first subscription to a pattern only.  A reader that subscribes to what
            # its peer was asked for before may join a question that is under way.
            if len(self._demand.counts) > before:
                self._peer_answers.passed_on()
        else:
            route.unsubscribe(pipe, pattern)
            self._demand.unsubscribe(pipe, pattern)
        # Whether the only reader wants everything may have changed.
        if len(self.routes) == 1 and len(route.pipes) == 1:
            self._look_for_only()

    @_blamed
    def _on_effect_asked(self, pipe: Pipe, hops: int, answer: Callable[[], Any]) -> None:
        # A pipe that has ended is not waited for, but ``detach_out`` may not come for it any more.
        if self.closed or pipe.ended:
            answer()
        else:
            self._peer_answers.ask(pipe, hops, answer)

    @_blamed
    def _on_refused(
        self, route: Route, pipe: Pipe, first: int, last: int, batches: list[tuple[int, Batch]], reason: str
    ) -> None:
        """A destination has refused these messages.

        Send them to the dead letters, if the route names an engine for them.
        """
        letters = None
        if route.spec.dead_letters is not None and not self.closed:
            letters = next((other for other in self.routes if other.spec is route.spec.dead_letters), None)
        if not route.told_refused:
            # Once for each route: a destination may refuse everything. The counter has the number.
            route.told_refused = True
            where = "dropped and counted" if letters is None else f"passed on: {letters.spec.name}"
            self.stall_watch.report(
                "refused", f"route {route.spec.name}: {pipe.name}: {reason}; it is {where}"
            )
        if letters is not None and self._tracker is not None:
            for number, batch in batches:
                envelope = dead_letter(batch.envelope, reason, pipe.engine, pipe.target, route.spec.name)
                # The dead letter belongs to the same entry as the message that was refused. So the source is
                # told when the engine for dead letters has confirmed it.
                entry = self._tracker.entry_of(pipe, number + len(batch) - 1)
                letters.take_refused(batch.under(envelope), entry)
        # Last: up to here the old pipe keeps the entry open, from the line above on the new one does
        # (docs/decisions/0025-refusals.md).
        pipe.refusal_known(first, last)

    @_blamed
    def _on_pipe_writable(self, route: Route, pipe: Pipe) -> None:
        # Before ``writable``, which clears both marks.
        for waited_for in (pipe, route):
            if waited_for.suspended:
                self.stall_watch.back(waited_for)
        route.writable(pipe)
        self._writable_again()

    def _writable_again(self) -> None:
        if not self._stopped or self.closed:
            return
        if not self.writable():
            # Another destination may be full by now, and its time begins with this look.
            self.stall_watch.watch()
            return
        # Before the call: the owner sends in it, and may have to stop again.
        self._stopped = False
        try:
            self._owner.on_writable()
        except Exception as error:
            self.on_failure(error)

    def _on_pipe_confirmed(self) -> None:
        if self._tracker is not None and self._tracker.advance():
            self._tell_confirmed()

    def _tell_confirmed(self) -> None:
        if self._tracker is not None and not self.closed:
            try:
                self._owner.on_confirmed(self._tracker.confirmed)
            except Exception as error:
                self.on_failure(error)

    def _topology_changed(self) -> None:
        self._look_for_only()
        self.on_topology()

    def _look_for_only(self) -> None:
        """Find out whether messages go to one pipe without being looked at."""
        self._only = None
        # With a tracker every message has to be numbered in ``send``, even if no route confirms any more.
        if len(self.routes) == 1 and self._tracker is None:
            route = self.routes[0]
            if (
                not (route.filtered or route.pending or route.spec.confirm)
                and route.plain
                and len(route.pipes) == 1
            ):
                self._only = route.pipes[0]
                # The only destination is waited for without limit, since no other one has to wait for it.
                # Operators were told that it is suspended, so they are told that it is not any more.
                if self._only.suspended:
                    self.stall_watch.back(self._only, "is waited for again, as the only target")
                    self._only.suspended = False

    def __repr__(self) -> str:
        state = "closed" if self.closed else "stopped" if self._stopped else "open"
        return (
            f"<Port {self.name} {state} in={len(self._queue)} out={sum(len(r.pipes) for r in self.routes)}>"
        )


class _Nobody:
    """The owner of a port that has left."""

    def on_output(self) -> None:
        """Take nothing."""

    def on_writable(self) -> None:
        """Send nothing."""

    def on_confirmed(self, position: int) -> None:
        """Forget nothing."""


_NOBODY: PortOwner = _Nobody()


def _raise(error: Exception) -> None:
    raise error


def _ignore(*_: object) -> None:
    """Do nothing: what a callback is until somebody sets it."""
