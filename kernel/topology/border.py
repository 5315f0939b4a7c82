"""Border: routes between engines in different processes.

An engine is *here*, in the process of the kernel, or in the process of a thread that is ``apart``.  A route
whose ends are in one process is one leg there.  Any other route is divided (``cross``): the *first leg* leads
from the source to the targets in its process, and to a link for each other process; a *second leg* leads from
that link to the targets there.  The filter belongs to the first leg.  The router is that of both, but one
that looks at the names of ports chooses only where the ports are.  Dead letters have legs and links of their
own, since it is the second leg whose targets refuse.

``Border`` makes the links and keeps them connected: when a process has come up, each link that ends there
gets a new pair of sockets.  Two processes are connected directly, and this process only hands them the ends.

At rest
-------
A closing kernel has to know when nothing is left to write anywhere.  What is on its way between two processes
is in neither.  So each process is asked for its state: whether nothing waits there (``Lingering``), how many
messages it has moved, and how many each link end has sent and received.  If two rounds of answers are equal,
nothing waits in any process, and each link has received what was sent, nothing was on its way between the
rounds, and nothing can come any more.
"""

from __future__ import annotations

import itertools
import logging
import socket
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Protocol, cast

import msgspec

from kernel.contracts.errors import KernelError
from kernel.contracts.kinds import EngineSetup, ProtocolKind, RouterKind
from kernel.contracts.thread import EngineThread, ThreadApart
from kernel.plugins import PluginRegistry
from kernel.topology.plan import Plan, RoutePlan

if TYPE_CHECKING:
    from kernel.hosting.link import LinkEnd

HERE = ""
"""The place of engines in the process of the kernel.  The other places are threads that are apart."""

_ROUND = 0.002
"""Seconds between two rounds of questions whether everything is at rest."""
_ANSWER = 1.0
"""Seconds that a process may take for its answer."""
SEND_BUFFER = 512 * 1024
"""Bytes that a link may have on their way.  What a turn writes fits in, so that the sender need not wait in
the middle of it, and both processes work at the same time."""
LET_LINK_LINGER = 1.0
"""Seconds that the link of a removed route may take to pass on what is in its pipe."""

_log = logging.getLogger(__name__)


class Leg(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a route in one process."""

    place: str
    plan: RoutePlan
    label: str


class Link(msgspec.Struct, frozen=True, kw_only=True):
    """From one process to another."""

    name: str
    sender: str
    """The place where messages enter it."""
    receiver: str
    sender_port: str
    """The name of its port there: the engines that it leads to."""
    receiver_port: str
    """The name of its port at the other end: the engine that its messages come from."""

    @property
    def places(self) -> tuple[str, str]:
        """Return both ends."""
        return self.sender, self.receiver


class Crossing(msgspec.Struct, frozen=True, kw_only=True):
    """A route, divided."""

    legs: tuple[Leg, ...]
    links: tuple[Link, ...]


def cross(
    route: RoutePlan, place: Callable[[str], str], *, by_name: bool, name: Callable[[str], str]
) -> Crossing:
    """Divide a route.

    ``place(engine)`` says where an engine is, ``name(wanted)`` makes a name that is free.
    """
    home = place(route.source)
    groups: dict[str, list[str]] = {}
    # By place: one link for each other process, however many targets are there. The router of the second leg
    # chooses among them.
    for target in route.targets:
        groups.setdefault(place(target), []).append(target)
    legs: list[Leg] = []
    links: list[Link] = []
    # One link for all refusals of a process, however many legs of the route are there.
    letters_from: dict[str, str] = {}

    def link(sender: str, receiver: str, source: str, targets: str, what: str = "") -> str:
        # Two routes may have the same ends.
        free = name(f"link {source} -> {targets}{what}")
        links.append(
            Link(name=free, sender=sender, receiver=receiver, sender_port=targets, receiver_port=source)
        )
        return free

    def letters_at(where: str) -> str | None:
        """Return where refused messages of a leg go: to the engine, or to a link that leads there."""
        letters = route.dead_letters
        if letters is None or place(letters) == where:
            return letters
        if where not in letters_from:
            # With confirmation, so that a refused message is not lost with a process.
            free = letters_from[where] = link(where, place(letters), route.source, letters, " (refused)")
            leg = RoutePlan(source=free, targets=(letters,), confirm=True, marks=route.marks)
            legs.append(Leg(place=place(letters), plan=leg, label=f"{route.source} -> {letters}, second leg"))
        return letters_from[where]

    first: list[str] = []
    seconds: list[Leg] = []
    alone: list[str] = []
    for where, targets in groups.items():
        if where == home:
            first += targets
            continue
        free = link(home, where, route.source, ", ".join(targets))
        # A router that chooses by name would take the link for one more port.  So each link gets a leg of its
        # own.
        (alone if by_name else first).append(free)
        # Router, water marks and ``confirm`` are those of the route: so back-pressure and confirmations go on
        # behind the link as if there were one pipe.
        second = msgspec.structs.replace(
            route,
            source=free,
            targets=tuple(targets),
            # Decided before the link: the filter has let it pass, and ``echo`` is about the source.
            match=(),
            exchange=None,
            echo=False,
            dead_letters=letters_at(where),
        )
        seconds.append(Leg(place=where, plan=second, label=f"{route.label}, second leg"))
    own = letters_at(home)
    # With a router that looks at names this leg leads to the targets here only, and there may be none.
    if first:
        plan = msgspec.structs.replace(route, targets=tuple(first), dead_letters=own)
        legs.append(Leg(place=home, plan=plan, label=route.label))
    for free in alone:
        plan = msgspec.structs.replace(
            # Everything goes over: the second leg has the router, and chooses where the ports are.
            route,
            targets=(free,),
            router="fan-out",
            router_options={},
            dead_letters=own,
        )
        legs.append(Leg(place=home, plan=plan, label=route.label))
    return Crossing(legs=(*legs, *seconds), links=tuple(links))


class Here(Protocol):
    """What the border does in the process of the kernel (``Parts``)."""

    threads: dict[str, EngineThread]

    def add_leg(self, name: str, label: str, plan: RoutePlan) -> None:
        """Add a route to the dispatcher."""
        ...

    def remove_leg(self, name: str) -> None:
        """Remove it."""
        ...

    def host_link(self, name: str, make_engine: Callable[[EngineSetup], Any], beside: str) -> EngineThread:
        """Host a link end in the thread of the engine ``beside``, or in another one; return the thread."""
        ...

    def remove_link(self, name: str, linger: float) -> None:
        """Remove a link end."""
        ...


def link_protocol(registry: PluginRegistry) -> tuple[str, dict[str, Any]]:
    """Return the name of a protocol that links processes, and its options."""
    for name, installed in registry.protocols.items():
        kind = cast("ProtocolKind", installed.kind)
        # The kernel names no protocol: a plugin says that its protocol carries all that a route carries.
        if kind.link_options is not None:
            return name, dict(kind.link_options)
    raise KernelError(
        "no installed protocol can link processes; the plugin 'backend' has one: install it, or remove it from "
        "KERNEL_PLUGINS"
    )


class Border:
    """The links of one kernel, and the processes that they lead to.  Any thread."""

    def __init__(self, here: Here, registry: PluginRegistry) -> None:
        self._here = here
        self._registry = registry
        self._lock = threading.RLock()
        self._placed: dict[str, str] = {}
        self._up: set[str] = {HERE}
        self._links: dict[str, Link] = {}
        # Also those of links that were removed: what is on its way may still take them.
        self._names: set[str] = set()
        self._ends: dict[str, tuple[LinkEnd, EngineThread]] = {}
        """The link ends of this process, and the thread of each."""
        self._pairs = itertools.count(1)
        self._given: dict[str, int] = {}
        """The number of the pair of which both ends of a link were given a socket last.  There is none if the
        last pair could not be made."""
        self._crossings: list[tuple[RoutePlan, Crossing]] = []
        self._rest: tuple[Any, dict[str, tuple[int, int]]] | None = None
        """What all processes answered when they were at rest, and the counts of the ends
        here at that time."""

    # ------------------------------------------------------------------ places

    def apart(self) -> dict[str, ThreadApart]:
        """Return the threads in other processes, by name."""
        return {
            name: cast("ThreadApart", thread)
            # A copy: threads may be added and removed while somebody asks.
            for name, thread in list(self._here.threads.items())
            # By the methods of ``ThreadApart``: also a plugin may bring such a kind of thread.
            if hasattr(thread, "add_leg")
        }

    def place(self, engine: str) -> str:
        """Return where an engine is."""
        return self._placed.get(engine, HERE)

    def assign_engines(self, plan: Plan) -> None:
        """Say where the engines of a plan will be, before its routes are added."""
        apart = {thread.name for thread in plan.threads if is_apart(thread.kind, self._registry)}
        with self._lock:
            self._placed = {
                engine.name: engine.thread
                for engine in plan.engines
                if engine.thread in apart and engine.thread
            }

    def move(self, engine: str, where: str) -> bool:
        """Say where one engine will be; return whether that has changed."""
        with self._lock:
            before = self.place(engine)
            self._placed.pop(engine, None)
            if where != HERE:
                self._placed[engine] = where
            return before != where

    # ------------------------------------------------------------------ routes

    def add(self, route: RoutePlan) -> bool:
        """Add a route that concerns another process; False if it does not, and nothing was done."""
        # ``HERE`` is the empty text. A plan without processes gets no further.
        if not any(self.place(end) for end in route.ends):
            return False
        kind: RouterKind = self._registry.kind("routers", route.router)
        with self._lock:
            names = self._names

            def name(wanted: str) -> str:
                number, free = 2, wanted
                while free in names:
                    number, free = number + 1, f"{wanted} ({number})"
                names.add(free)
                return free

            crossing = cross(route, self.place, by_name=kind.by_name, name=name)
            # Found again by the identity of the route (``remove``), since two routes may be equal.
            self._crossings.append((route, crossing))
            for link in crossing.links:
                self._links[link.name] = link
                self._make_ends(link, route)
            # The ends first: a process tells a second leg by the link at which it begins.  The sockets last:
            # what comes finds its leg.
            for number, leg in enumerate(crossing.legs):
                self._side(leg.place).add_leg(_leg_name(crossing, number), leg.label, leg.plan)
            for link in crossing.links:
                self._connect(link)
        return True

    def remove(self, route: RoutePlan) -> bool:
        """Remove a route that ``add`` has added (the same object); False if it has not."""
        with self._lock:
            found = next((pair for pair in self._crossings if pair[0] is route), None)
            if found is None:
                return False
            self._crossings.remove(found)
            crossing = found[1]
            arriving = {link.name: link for link in crossing.links if link.receiver == HERE}
            for number, leg in enumerate(crossing.legs):
                remove = partial(self._side(leg.place).remove_leg, _leg_name(crossing, number))
                # What is on its way still takes it.  Other processes see to that themselves.
                if leg.place == HERE and leg.plan.source in arriving:
                    end, _ = self._ends[leg.plan.source]
                    end.when_over(remove)
                else:
                    remove()
            # The sender first: it passes on what it has, and the receiver sees the end behind it.
            for link in crossing.links:
                del self._links[link.name]
                self._given.pop(link.name, None)
                for where in link.places:
                    if where != HERE:
                        self.apart()[where].remove_link(link.name)
                    else:
                        end, _ = self._ends.pop(link.name)
                        end.close()
                        if link.sender == HERE:
                            self._here.remove_link(link.name, LET_LINK_LINGER)
                        else:
                            # What has come is passed on before the port closes.
                            end.when_over(partial(self._here.remove_link, link.name, 0.0))
        return True

    def _side(self, place: str) -> Here | ThreadApart:
        return self._here if place == HERE else self.apart()[place]

    def _make_ends(self, link: Link, route: RoutePlan) -> None:
        # Imported here: it brings trio, which takes twice as long as all else that a kernel needs at first.
        from kernel.hosting.link import LinkEnd, LinkEngine

        for where, port, other, side in (
            (link.sender, link.sender_port, link.receiver, "client"),
            (link.receiver, link.receiver_port, link.sender, "server"),
        ):
            peer = f"process {other}" if other else "the main process"
            if where != HERE:
                self.apart()[where].add_link(
                    link.name, port, peer, "client" if side == "client" else "server"
                )
                continue
            end = LinkEnd(
                link.name,
                port,
                peer,
                "client" if side == "client" else "server",
                # Only the end that sends asks for new sockets: when its conversation ends, so does that of
                # the other.
                partial(self.renew, link.name) if side == "client" else None,
            )
            protocol, options = link_protocol(self._registry)
            # Beside an engine of the route, so that its messages cross no further thread.
            beside = next((name for name in route.ends if self.place(name) == HERE), "")
            thread = self._here.host_link(
                link.name, partial(LinkEngine, end=end, protocol=protocol, options=options), beside
            )
            self._ends[link.name] = (end, thread)

    def hosted_by(self, number: int) -> list[RoutePlan]:
        """Return the routes with a link end in a thread here.  They have to be made again if it goes."""
        with self._lock:
            ends = {name for name, (_, thread) in self._ends.items() if thread.number == number}
            return [
                route
                for route, crossing in self._crossings
                if not ends.isdisjoint(link.name for link in crossing.links)
            ]

    # ------------------------------------------------------------------ sockets

    def changed(self, place: str, what: str) -> None:
        """A process has come up, or gone down."""
        with self._lock:
            if what == "down":
                self._up.discard(place)
                return
            self._up.add(place)
            # ``_connect`` does nothing while the other process of a link is not up.  That one comes here
            # later.
            for each in self._links.values():
                # Also if they had sockets: the process is a new one, and each of its links begins anew.
                if place in each.places:
                    self._connect(each)

    def renew(self, link: str, pair: int) -> None:
        """Give both ends of a link new sockets, if both processes are up.

        ``pair``: the last one that the end which asks was given.  A newer one is on its way to it otherwise,
        and the conversation over it may have begun at the other end.
        """
        with self._lock:
            found = self._links.get(link)
            if found is not None and self._given.get(link, pair) == pair:
                self._connect(found)

    def _connect(self, link: Link) -> None:
        if not self._up.issuperset(link.places):
            return
        try:
            sockets = socket.socketpair()
            for connected in sockets:
                # No error if it is more than the system allows (``net.core.wmem_max``): then it
                # is what it allows.
                connected.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)
        except OSError as error:
            # No descriptors are left, for example.  The sender asks again, whatever it was given last.
            _log.warning("%s: no sockets: %s", link.name, error)
            self._given.pop(link.name, None)
            return
        # Both ends in one hold of the lock: they get the sockets of all pairs in the same order.
        pair = self._given[link.name] = next(self._pairs)
        for place, connected in zip(link.places, sockets, strict=True):
            if place == HERE:
                self._ends[link.name][0].give(connected, pair)
            else:
                self.apart()[place].give(link.name, pair, connected)

    def close(self) -> None:
        """Close the sockets that no engine has taken, after all threads have ended."""
        # The ends here only. What was given to a process was sent away, and ends with its control wire.
        with self._lock:
            for end, _ in self._ends.values():
                end.close()

    # ------------------------------------------------------------------ at rest

    def moved(self, number: int) -> Mapping[Any, int]:
        """Return how many messages each link end of a thread here has moved."""
        return {end: end.moved for end, thread in list(self._ends.values()) if thread.number == number}

    def at_rest(self) -> bool:
        """Whether all other processes were at rest, and nothing has passed a link end here since."""
        rest = self._rest
        return rest is not None and rest[1] == self._counts()

    def linger(self, seconds: float, may_stop: Callable[[int], bool]) -> None:
        """Find out when everything is at rest, and stop the other processes; returns at once."""
        # A thread of its own, since ``Kernel.close`` returns at once and the questions wait for answers.
        # Without other processes there is none.
        if self.apart():
            threading.Thread(
                target=self._linger, args=(seconds, may_stop), name="kernel border", daemon=True
            ).start()

    def _linger(self, seconds: float, may_stop: Callable[[int], bool]) -> None:
        until = time.monotonic() + seconds
        before: Any = None
        # They may have been stopped meanwhile: whichever thread finds that everything is written stops all of
        # them (``Kernel._written_out``).
        while time.monotonic() < until and not all(thread.stopping for thread in self.apart().values()):
            counts = self._counts()
            # After the counts here: what passes a link in between is counted at one end only
            # (``_passed_on``).
            answers = self._ask()
            still = answers is not None and answers == before and self._passed_on(answers, counts)
            # One tuple, replaced as a whole: each closing thread reads it, when it asks whether the other
            # processes have anything to write.
            self._rest = (answers, counts) if still else None
            before = answers
            if still:
                # Each of them, since it also notes what that thread has moved.
                over = [may_stop(thread.number) for thread in self.apart().values()]
                if all(over):
                    return
            time.sleep(_ROUND)
        for thread in self.apart().values():
            thread.stop()

    def _counts(self) -> dict[str, tuple[int, int]]:
        return {name: end.counts() for name, (end, _) in list(self._ends.items())}

    def _ask(self) -> dict[str, dict[str, Any]] | None:
        """Ask all processes for their states; None if one of them is not at rest."""
        answers: SimpleQueue[tuple[str, dict[str, Any] | None]] = SimpleQueue()
        asked = [
            name
            for name, thread in self.apart().items()
            if thread.look(lambda answer, name=name: answers.put((name, answer)))  # type: ignore[misc]
        ]
        states: dict[str, dict[str, Any]] = {}
        for _ in asked:
            try:
                name, state = answers.get(timeout=_ANSWER)
            except Empty:
                # It may hang.  The next round asks again, and the time to linger bounds them all.
                return None
            if state is None:
                return None
            states[name] = state
        return states

    def _passed_on(self, states: dict[str, dict[str, Any]], here: dict[str, tuple[int, int]]) -> bool:
        """Whether each link has received what was sent."""
        for link in list(self._links.values()):
            counts = []
            for number, place in enumerate(link.places):
                known = here if place == HERE else states.get(place, {}).get("links", {})
                counts.append(known.get(link.name, (0, 0))[number])
            # A process that has ended has nothing to receive.
            if counts[0] != counts[1] and all(place == HERE or place in states for place in link.places):
                return False
        return True


def is_apart(kind: str, registry: PluginRegistry) -> bool:
    """Whether threads of a kind are other processes."""
    # An unknown kind is complained of where threads are checked (``check.py``).
    installed = registry.thread_kinds.get(kind)
    return installed is not None and bool(installed.kind.apart)


def needs_thread(plan: Plan, registry: PluginRegistry) -> bool:
    """Whether a plan has no thread in the process of the kernel, and so gets one."""
    return all(is_apart(thread.kind, registry) for thread in plan.threads)


def _leg_name(crossing: Crossing, number: int) -> str:
    # Unique for as long as the crossing is kept, which is as long as its legs are there.
    return f"leg {id(crossing)}/{number}"
