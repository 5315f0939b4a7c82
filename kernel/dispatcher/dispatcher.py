"""Dispatcher: the matrix of pipes between threads, and who is connected to whom.

The matrix
----------
Each thread that takes part has a number: its row and its column.  Cell (i, j) holds the pipes that ports of
thread i write and ports of thread j read.  A pipe has one writing and one reading thread, so its two ends
need no lock.  The matrix is a view (``matrix``, ``pipes``); what is stored is each pipe with its route and
its two ports.

Ports join in *groups*.  The group has the name of the engine: most engines have one port, a listener has one
for each connection.  A route leads from group to group: there is a pipe from every port of the source group
to every port of the target groups, from the time both have joined until one of them leaves.  There are two
exceptions.  A route from an engine to itself has no pipe from a port back to itself, unless it has ``echo``.
Of the ports of one ``PortGroup`` each source port leads to one only.

Who calls what
--------------
Messages do not pass through the dispatcher.  Only changes do, under one lock.  They may come from any thread:

* A port joins (``open_port``, in its own thread): it gets a ``Route`` for each route of its group, and pipes
  in both directions.
* A port leaves (``Port.close``, in its own thread): pipes *to* it are taken out of their routes
  (``Port.detach_out``).  What it did not confirm is then handed over.  Pipes *from* it are ended: their
  readers take the rest first.
* A route is added or removed (any thread): pipes are made, or ended.

An object is only changed by the thread that owns it.  So what has to change at a port of another thread is
posted to the mailbox of that thread: ``attach_out`` and ``detach_out`` to the writer, ``attach_in`` to the
reader.  The mailbox keeps the order: a writer hears of a pipe before it hears that the pipe's reader has
left.  Such a call may come after the port was closed, so it has to be harmless then.

Invariants
----------
1. ``_pipes`` has each pipe whose two ports are both in their groups and whose route is in ``_specs``.
2. ``_pipes_of`` has the same pipes for each port, both directions.
3. A pipe of a removed route that confirms stays in ``_removed`` until its reader has confirmed all of it, or
   one of its ports leaves.  If the reader leaves, the writer still has to hear of it: it waits for the
   confirmations.
4. The sources of a removed route keep its dead-letter route as long as a pipe of the route is in
   ``_removed``: its reader may still refuse something.
"""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from functools import partial
from typing import Any

from kernel.contracts.engine import PortOwner
from kernel.contracts.errors import KernelClosed
from kernel.dispatcher.past_figures import PastFigures, figures_of_port
from kernel.dispatcher.port import Port
from kernel.dispatcher.port_groups import group_of, one_of_each, takes
from kernel.dispatcher.route import Route, RouteSpec
from kernel.pipes.doorbell import Doorbell
from kernel.pipes.mailbox import Mailbox
from kernel.pipes.pipe import Pipe


class ThreadSlot:
    """A thread as the matrix knows it: its number, its name and its mailbox."""

    __slots__ = ("called", "kept", "mailbox", "name", "number")

    def __init__(self, number: int, name: str, mailbox: Mailbox) -> None:
        self.number: int = number
        self.name: str = name
        self.mailbox: Mailbox = mailbox
        self.called: bool = False
        """Whether it is a thread of the application, which processes its mailbox at the beginning of each
        call and at no other time."""
        self.kept: bool = False
        """Whether its thread still waits for its bell, which is closed when it gives the slot back."""


class Dispatcher:
    """The N x N matrix: cell (i, j) holds the pipes from thread i to thread j."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.rendezvous: dict[str, Any] = {}
        """Objects that engines of this kernel share by name, as the in-process transport does."""
        # Only appended to: the position of a slot is its number, and statistics read the list without the
        # lock.
        self._slots: list[ThreadSlot] = []
        self._spare: list[ThreadSlot] = []
        self._disposed = False
        self._groups: dict[str, list[Port]] = defaultdict(list)
        # Also by their ends: a port that joins costs no more where many routes connect others.
        self._specs: dict[RouteSpec, None] = {}
        self._from: defaultdict[str, list[RouteSpec]] = defaultdict(list)
        self._to: defaultdict[str, list[RouteSpec]] = defaultdict(list)
        self._pipes: dict[Pipe, tuple[RouteSpec, Port, Port]] = {}
        self._pipes_of: dict[Port, set[Pipe]] = defaultdict(set)
        self._slot_of: dict[Port, ThreadSlot] = {}
        self._removed: list[tuple[Pipe, Port, Port]] = []
        """Pipes of removed routes, with their two ports, whose readers may still confirm something."""
        self._refusable: list[tuple[RouteSpec, list[Pipe]]] = []
        """Dead-letter routes of removed routes, with the pipes whose readers may still refuse something."""
        self.past: PastFigures = PastFigures()

    # ------------------------------------------------------------------ threads and ports

    def add_thread(self, name: str, mailbox: Mailbox) -> ThreadSlot:
        """Add a row and a column for a thread of the kernel.  They are never removed.  Any thread."""
        with self._lock:
            return self._add_slot(name, mailbox)

    def _add_slot(self, name: str, mailbox: Mailbox) -> ThreadSlot:
        slot = ThreadSlot(len(self._slots), name, mailbox)
        self._slots.append(slot)
        return slot

    def borrow_slot(self, name: str) -> ThreadSlot:
        """Give an application thread a row and a column until ``give_back_slot``.  Any thread.

        ``KernelClosed`` behind ``dispose``.

        A later caller gets the same slot with the same bell.  A thread that still posts to the earlier caller
        then wakes the later one for nothing.  If the bell were closed, the number of its descriptor could by
        then belong to another file, and the late post would write there.

        Its mailbox is a new one.  If the earlier caller still calls something, in another thread, it takes
        nothing of what was posted to the later one, who would never be told of it.
        """
        with self._lock:
            if self._disposed:
                # Nobody would close its bell.
                raise KernelClosed("the kernel was closed")
            if self._spare:
                slot = self._spare.pop()
                slot.name = name
                bell = slot.mailbox.bell
                # The callback of the thread that had the slot before must not be called for this one.
                bell.on_ring = bell.instead = None
                slot.mailbox = Mailbox(bell)
                return slot
            slot = self._add_slot(name, Mailbox(Doorbell()))
            slot.called = True
            return slot

    def give_back_slot(self, slot: ThreadSlot) -> None:
        """Make a borrowed slot available to the next caller.  Any thread."""
        slot.mailbox.leave()
        with self._lock:
            slot.kept = False
            self._spare.append(slot)
            disposed = self._disposed
        if disposed:
            slot.mailbox.bell.close()

    def dispose(self) -> None:
        """Close the doorbells of all threads.  Call it when no thread is left that could ring one."""
        with self._lock:
            self._disposed = True
            slots = [slot for slot in self._slots if not slot.kept]
        for slot in slots:
            slot.mailbox.bell.close()

    def forked(self, refusal: str) -> None:
        """This process is a child that was forked (``kernel/hosting/forking.py``): each call is refused."""
        # A thread of the parent may have held it, and be in the middle of a change.
        self._lock = threading.Lock()
        for port in self._slot_of:
            port.leave = _stay
        for slot in self._slots:
            slot.mailbox.bell.forked()
            if slot.called:
                # Whoever uses a port processes its mailbox first.
                _refuse(slot.mailbox, refusal)

    def open_port(
        self, slot: ThreadSlot, name: str, group: str, owner: PortOwner, options: dict[str, Any] | None = None
    ) -> Port:
        """Return a new port of ``group``.  Called by the thread of ``slot``.

        The port's routes out, and their pipes, are in place when this returns.  Pipes to the port are
        attached by its mailbox.  Raises what the router of a route raises; the port has left again then.
        """
        port = Port(name, group, owner, slot.mailbox.post, options)
        port.leave = self._leave
        try:
            with self._lock:
                self._join(slot, port)
        except BaseException:
            # The router of a route has raised while a pipe was attached. The port takes itself out of the
            # tables again; ``close`` takes the lock, so it is called outside.
            port.close()
            raise
        return port

    def _join(self, slot: ThreadSlot, port: Port) -> None:
        group = port.group
        self._slot_of[port] = slot
        self._groups[group].append(port)
        # First the ways to the port. Who gets its first message may answer at once, also between two of the
        # posts made here, and the answer would have nowhere to go.
        for spec, source in self._sources_of(port):
            self._connect(spec, source, port)
        for spec in self._from.get(group, ()):
            # Called directly, since this is the thread of ``port``. So its routes are in place when
            # ``open_port`` returns, and the first message it sends has somewhere to go.
            port.attach_route(Route(spec))
            for target in self._targets_of(spec, port):
                self._connect(spec, port, target, here=True)

    def _sources_of(self, port: Port) -> list[tuple[RouteSpec, Port]]:
        """Return the routes that have to lead to a port that joins, each with a source port."""
        group, port_group = port.group, group_of(port)
        pairs = [
            (spec, source)
            for spec in self._to.get(group, ())
            for source in self._groups[spec.source]
            if source is not port and not _is_echo(spec, source, port)
        ]
        if port_group is None:
            return pairs
        return [
            pair
            for number, pair in enumerate(pairs)
            if takes(port_group, number) and not self._leads_to(*pair, port_group.whole)
        ]

    def _leads_to(self, spec: RouteSpec, source: Port, whole: str) -> bool:
        """Whether a route from ``source`` leads to another port of that port group already."""
        ends = [self._pipes[pipe] for pipe in self._pipes_of[source]]
        port_groups = [group_of(target) for leads, begin, target in ends if leads is spec and begin is source]
        return any(port_group is not None and port_group.whole == whole for port_group in port_groups)

    def _leave(self, port: Port) -> None:
        with self._lock:
            self._groups[port.group].remove(port)
            self.past.add_port(port)
            self._slot_of.pop(port, None)
            for pipe in self._pipes_of.pop(port, ()):
                _, source, target = self._forget(pipe)
                if target is port:
                    source.post(partial(source.detach_out, pipe))
                else:
                    # ``end_outgoing`` below does not reach this pipe if ``attach_out`` still waits in the
                    # mailbox of the port. To end a pipe twice is harmless.
                    pipe.end()
            # Pipes of removed routes are in no route of the source any more. Its ack tracker still waits for
            # them.
            for pipe, source, target in self._removed:
                if target is port:
                    source.post(partial(source.detach_out, pipe))
            self._removed = [ends for ends in self._removed if port not in ends]
            self._prune()
        # Outside the lock: it only touches what belongs to this port's thread.
        port.end_outgoing()

    # ------------------------------------------------------------------ routes

    def add_route(self, spec: RouteSpec) -> None:
        """Connect the ports of two groups: those that have joined, and those that will join.  Any thread."""
        with self._lock:
            self._prune()
            self._specs[spec] = None
            self._from[spec.source].append(spec)
            # Each target once, also one that is named twice.
            for name in dict.fromkeys(spec.targets):
                self._to[name].append(spec)
            for source in self._groups[spec.source]:
                # Before the ``attach_out`` of its pipes, in the same mailbox: a pipe needs the route that it
                # belongs to.
                source.post(partial(source.attach_route, Route(spec)))
                for target in self._targets_of(spec, source):
                    self._connect(spec, source, target)

    def remove_route(self, spec: RouteSpec) -> None:
        """Disconnect two groups.

        Readers still take what is in the pipes, and may refuse it: the sources go on to send that to the
        ports that the route's dead letters have now.  Other routes are not affected.  Any thread.
        """
        with self._lock:
            pipes = self._disconnect(spec)
            self._detach(spec)
            if spec.dead_letters is not None:
                self._disconnect(spec.dead_letters)
                self._refusable.append((spec.dead_letters, pipes))
            self._prune()

    def _disconnect(self, spec: RouteSpec) -> list[Pipe]:
        """Forget a route; return its pipes."""
        del self._specs[spec]
        _remove(self._from, spec.source, spec)
        for name in dict.fromkeys(spec.targets):
            _remove(self._to, name, spec)
        # A list: ``_forget`` removes from the set.
        pipes = [
            pipe
            for source in self._groups[spec.source]
            for pipe in self._pipes_of[source]
            if self._pipes[pipe][0] is spec and self._pipes[pipe][1] is source
        ]
        for pipe in pipes:
            _, source, target = self._forget(pipe)
            if spec.confirm:
                self._removed.append((pipe, source, target))
        return pipes

    def _detach(self, spec: RouteSpec) -> None:
        for source in self._groups[spec.source]:
            source.post(partial(source.detach_route, spec))

    def _prune(self) -> None:
        """Drop what removed routes have left and is not needed any more.

        Nothing tells the dispatcher when the last message of a pipe was confirmed. So it looks at each
        change, and the lists do not grow without limit.
        """
        self._removed = [ends for ends in self._removed if not ends[0].all_confirmed()]
        refusable, self._refusable = self._refusable, []
        waited_for = {ends[0] for ends in self._removed} if refusable else set()
        for letters, pipes in refusable:
            if waited_for.isdisjoint(pipes):
                self._detach(letters)
            else:
                self._refusable.append((letters, pipes))

    def _targets_of(self, spec: RouteSpec, source: Port) -> list[Port]:
        """Return the ports that a route has to lead to from one more source port."""
        ports = [
            port
            for target in spec.targets
            for port in self._groups[target]
            if not _is_echo(spec, source, port)
        ]
        # Of a port group the member with the fewest pipes, so that sources are spread over its members.
        return one_of_each(ports, lambda port: len(self._pipes_of[port]))

    def _connect(self, spec: RouteSpec, source: Port, target: Port, *, here: bool = False) -> None:
        """Put a pipe between two ports; ``here``: this is the thread of ``source``."""
        writing, reading = self._slot_of[source].mailbox, self._slot_of[target].mailbox
        pipe = Pipe(
            f"{source.name} > {target.name}",
            spec.marks,
            # Within one thread this is a plain post. To another thread, a thread that hosts engines rings
            # the bell at the end of its turn (``Mailbox.poster_to``).
            post_to_reader=writing.poster_to(reading),
            post_to_writer=reading.poster_to(writing),
            confirms=spec.confirm,
        )
        pipe.target = target.name
        pipe.engine = target.group
        pipe.origin = (source.name, spec.name)
        pipe.called = self._slot_of[source].called
        pipe.reader_bell = reading.bell
        pipe.on_ready = target.ready_callback(pipe)
        self._pipes[pipe] = (spec, source, target)
        self._pipes_of[source].add(pipe)
        self._pipes_of[target].add(pipe)
        # A copy of this moment. The port may change its list while the call is on its way; ``attach_in`` gets
        # the same copy and tells the writer of the difference.
        subscriptions = tuple(target.options.get("subscriptions", ()))
        attach_out = partial(
            source.attach_out, spec, pipe, {**target.options, "subscriptions": subscriptions}
        )
        # Posting is needed for any other thread: routes belong to the thread of the source.
        if here:
            attach_out()
        else:
            source.post(attach_out)
        # Last: the reader may answer with subscriptions, which have to reach the writer after ``attach_out``.
        target.post(partial(target.attach_in, pipe, subscriptions))

    def _forget(self, pipe: Pipe) -> tuple[RouteSpec, Port, Port]:
        ends = self._pipes.pop(pipe)
        self.past.add_pipe(ends[0].name, pipe)
        for port in ends[1:]:
            # ``_leave`` has taken the leaving port out already.
            if port in self._pipes_of:
                self._pipes_of[port].discard(pipe)
        return ends

    def reader_of(self, pipe: Pipe) -> Port | None:
        """Return the port that a pipe leads to; None if one of its ports has left.  Any thread."""
        with self._lock:
            ends = self._pipes.get(pipe)
            return None if ends is None else ends[2]

    def writer_of(self, pipe: Pipe) -> Port | None:
        """Return the port that writes to a pipe; None if one of its ports has left.  Any thread."""
        with self._lock:
            ends = self._pipes.get(pipe)
            return None if ends is None else ends[1]

    # ------------------------------------------------------------------ for operators

    @property
    def threads(self) -> tuple[ThreadSlot, ...]:
        """All threads, in the order of their numbers."""
        return tuple(self._slots)

    def pipes(self) -> list[tuple[int, int, RouteSpec, Pipe]]:
        """All pipes with the numbers of their writing and reading threads."""
        with self._lock:
            return [
                (self._slot_of[source].number, self._slot_of[target].number, spec, pipe)
                for pipe, (spec, source, target) in self._pipes.items()
                if source in self._slot_of and target in self._slot_of
            ]

    def waits_for(self, group: str) -> bool:
        """Whether something waits in a pipe to a port of this group.  Any thread."""
        with self._lock:
            return any(
                pipe.engine == group and pipe.more()
                for port in self._groups.get(group, ())
                for pipe in self._pipes_of.get(port, ())
            )

    def routes(self) -> list[RouteSpec]:
        """All routes."""
        with self._lock:
            return list(self._specs)

    def ports(self) -> list[Port]:
        """All ports."""
        with self._lock:
            return [port for group in self._groups.values() for port in group]

    def port_figures(self) -> dict[str, Counter[str]]:
        """Return for each engine the sums of all its ports, closed ones included, and how many are open."""
        sums = {}
        # One hold of the lock for both: a port that leaves in between would be counted twice, or not at all.
        with self._lock:
            for group, ports in self._groups.items():
                figures = self.past.of_group(group)
                for port in ports:
                    figures.update({"ports": 1, **figures_of_port(port)})
                # A group without ports and without past is the target of a route where nobody has joined yet.
                if figures:
                    sums[group] = figures
        return sums

    def matrix(self) -> list[list[int]]:
        """Return the number of pipes in each cell, by row (writing thread) and column (reading thread)."""
        size = len(self._slots)
        cells = [[0] * size for _ in range(size)]
        for writer, reader, _, _ in self.pipes():
            cells[writer][reader] += 1
        return cells


def _refuse(mailbox: Mailbox, refusal: str) -> None:
    """Have each call that processes a mailbox raise ``KernelClosed``."""

    def refuse() -> None:
        mailbox.posted.append(refuse)
        raise KernelClosed(refusal)

    mailbox.posted.append(refuse)


def _stay(_: Port) -> None:
    """Leave what belongs to the parent of this process as it is."""


def _remove(index: dict[str, list[RouteSpec]], name: str, spec: RouteSpec) -> None:
    """Remove a route from an index, and a name that has none any more."""
    index[name].remove(spec)
    if not index[name]:
        del index[name]


def _is_echo(spec: RouteSpec, source: Port, target: Port) -> bool:
    """Whether a pipe between these two ports would return messages to the connection that they came from."""
    if source.group != target.group or (spec.echo and target.options.get("echo", True)):
        return False
    # The ports of one port group are one destination, and so one connection: a message of one member must not
    # come back through another.
    mine, theirs = group_of(source), group_of(target)
    return source is target or (mine is not None and theirs is not None and mine.whole == theirs.whole)
