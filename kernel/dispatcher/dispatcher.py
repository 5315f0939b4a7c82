"""Dispatcher: the matrix of pipes between threads, and who is connected to whom.

Engines join as groups of ports: an engine with one port, or a listener with a port for each connection.  A route
from group to group puts a pipe between every port of the one and every port of the other, when they join
and as long as they stay.  Messages never pass through here; only the management of pipes does, under a lock
that no message path takes.  What has to change in another thread is posted to it.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from functools import partial
from typing import Any

from kernel.contracts.engine import PortOwner
from kernel.dispatcher.past_figures import PastFigures
from kernel.dispatcher.port import Port
from kernel.dispatcher.port_groups import group_of, one_of_each, takes
from kernel.dispatcher.route import Route, RouteSpec
from kernel.pipes.mailbox import Mailbox
from kernel.pipes.pipe import Pipe


class ThreadSlot:
    """A thread's place in the matrix: its number, its name and its mailbox."""

    __slots__ = ("mailbox", "name", "number")

    def __init__(self, number: int, name: str, mailbox: Mailbox) -> None:
        self.number: int = number
        self.name: str = name
        self.mailbox: Mailbox = mailbox


class Dispatcher:
    """The N x N matrix: cell (i, j) holds the pipes from thread i to thread j."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.rendezvous: dict[str, Any] = {}
        """Where engines of this kernel find each other by name (the in-process transport)."""
        self._slots: list[ThreadSlot] = []
        self._spare: list[ThreadSlot] = []
        self._groups: dict[str, list[Port]] = defaultdict(list)
        self._specs: list[RouteSpec] = []
        self._pipes: dict[Pipe, tuple[RouteSpec, Port, Port]] = {}
        self._pipes_of: dict[Port, set[Pipe]] = defaultdict(set)
        self._slot_of: dict[Port, ThreadSlot] = {}
        self._removed: list[tuple[Pipe, Port, Port]] = []
        """Pipes of routes that are no more, with their ends, from whose readers confirmations may still come."""
        self.past: PastFigures = PastFigures()

    # ------------------------------------------------------------------ threads and ports

    def add_thread(self, name: str, mailbox: Mailbox) -> ThreadSlot:
        """Give a thread its row and column."""
        with self._lock:
            slot = ThreadSlot(len(self._slots), name, mailbox)
            self._slots.append(slot)
            return slot

    def borrow_slot(self, name: str) -> ThreadSlot:
        """Give a caller's thread a row and column for as long as it needs them.

        They are used again by a later caller, mailbox and all: whoever still posts to the one before only
        wakes the next for nothing, where a closed descriptor might by then be somebody else's.
        """
        with self._lock:
            if self._spare:
                slot = self._spare.pop()
                slot.name = name
                slot.mailbox.bell.on_ring = None
                return slot
        return self.add_thread(name, Mailbox())

    def give_back_slot(self, slot: ThreadSlot) -> None:
        """The caller is done with it."""
        with self._lock:
            self._spare.append(slot)

    def dispose(self) -> None:
        """Close every bell, when no thread is left to ring one."""
        for slot in self._slots:
            slot.mailbox.bell.close()

    def open_port(
        self, slot: ThreadSlot, name: str, group: str, owner: PortOwner, options: dict[str, Any] | None = None
    ) -> Port:
        """Join a group.  Called by the thread of ``slot``; the routes out are in place when it returns."""
        port = Port(name, group, owner, slot.mailbox.post, options)
        port.leave = self._leave
        try:
            with self._lock:
                self._join(slot, port)
        except BaseException:  # a router of a route from or to here
            port.close()
            raise
        return port

    def _join(self, slot: ThreadSlot, port: Port) -> None:
        group = port.group
        self._slot_of[port] = slot
        self._groups[group].append(port)
        for spec in self._specs:
            if spec.source == group:
                port.attach_route(Route(spec))
                for target in self._targets_of(spec, port):
                    self._connect(spec, port, target, here=True)
        for spec, source in self._sources_of(port):
            self._connect(spec, source, port)

    def _sources_of(self, port: Port) -> list[tuple[RouteSpec, Port]]:
        """Return the routes, and their beginnings, that are to lead to a port that joins."""
        group, port_group = port.group, group_of(port)
        pairs = [
            (spec, source)
            for spec in self._specs
            if group in spec.targets
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
        """Whether a route from there leads to a share of that destination already."""
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
                    pipe.end()  # the port may not even have heard of it
            for pipe, source, target in self._removed:
                if target is port:
                    source.post(partial(source.detach_out, pipe))
            self._removed = [ends for ends in self._removed if port not in ends]
        port.end_outgoing()

    # ------------------------------------------------------------------ routes

    def add_route(self, spec: RouteSpec) -> None:
        """Connect two groups, those that are there and those that will join.  Any thread."""
        with self._lock:
            self._specs.append(spec)
            for source in self._groups[spec.source]:
                source.post(partial(source.attach_route, Route(spec)))
                for target in self._targets_of(spec, source):
                    self._connect(spec, source, target)

    def remove_route(self, spec: RouteSpec) -> None:
        """Disconnect: what is in the pipes is still read; messages on other routes notice nothing."""
        with self._lock:
            self._specs.remove(spec)
            self._removed = [ends for ends in self._removed if not ends[0].settled()]
            for pipe in [pipe for pipe, ends in self._pipes.items() if ends[0] is spec]:
                _, source, target = self._forget(pipe)
                if spec.confirm:
                    self._removed.append((pipe, source, target))
            for source in self._groups[spec.source]:
                source.post(partial(source.detach_route, spec))

    def _targets_of(self, spec: RouteSpec, source: Port) -> list[Port]:
        """Return where a route is to lead that begins at one more port."""
        ports = [
            port
            for target in spec.targets
            for port in self._groups[target]
            if not _is_echo(spec, source, port)
        ]
        return one_of_each(ports, lambda port: len(self._pipes_of[port]))

    def _connect(self, spec: RouteSpec, source: Port, target: Port, *, here: bool = False) -> None:
        """Put a pipe between two ports; ``here``: this is the thread of ``source``."""
        writing, reading = self._slot_of[source].mailbox, self._slot_of[target].mailbox
        pipe = Pipe(
            f"{source.name} > {target.name}",
            spec.marks,
            post_to_reader=writing.poster_to(reading),
            post_to_writer=reading.poster_to(writing),
            confirms=spec.confirm,
        )
        pipe.target = target.name
        pipe.engine = target.group
        pipe.origin = (source.name, spec.name)
        pipe.on_ready = target.ready_callback(pipe)
        self._pipes[pipe] = (spec, source, target)
        self._pipes_of[source].add(pipe)
        self._pipes_of[target].add(pipe)
        subscriptions = tuple(target.options.get("subscriptions", ()))
        attach_out = partial(
            source.attach_out, spec, pipe, {**target.options, "subscriptions": subscriptions}
        )
        if here:
            attach_out()
        else:
            source.post(attach_out)
        target.post(partial(target.attach_in, pipe, subscriptions))  # last: it may ask for more, or for less

    def _forget(self, pipe: Pipe) -> tuple[RouteSpec, Port, Port]:
        ends = self._pipes.pop(pipe)
        self.past.add_pipe(ends[0].name, pipe)
        for port in ends[1:]:
            if port in self._pipes_of:
                self._pipes_of[port].discard(pipe)
        return ends

    # ------------------------------------------------------------------ for people

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

    def routes(self) -> list[RouteSpec]:
        """All routes."""
        with self._lock:
            return list(self._specs)

    def ports(self) -> list[Port]:
        """All ports."""
        with self._lock:
            return [port for group in self._groups.values() for port in group]

    def matrix(self) -> list[list[int]]:
        """How many pipes stand in each cell."""
        size = len(self._slots)
        cells = [[0] * size for _ in range(size)]
        for writer, reader, _, _ in self.pipes():
            cells[writer][reader] += 1
        return cells


def _is_echo(spec: RouteSpec, source: Port, target: Port) -> bool:
    """Whether a pipe between these would bring messages back to the connection that they came from."""
    if spec.echo or source.group != target.group:
        return False
    mine, theirs = group_of(source), group_of(target)
    return source is target or (mine is not None and theirs is not None and mine.whole == theirs.whole)
