"""Context: a kernel for the sockets of an application, and what a socket needs of it."""

from __future__ import annotations

import errno
import math
import threading
from collections.abc import Callable, Sequence
from itertools import count
from types import TracebackType
from typing import TYPE_CHECKING, Any, cast

from kernel import EnginePlan, Kernel, Plan, PluginRegistry, RoutePlan, ThreadPlan, WaterMarks
from kernel.contracts.errors import KernelClosed, KernelError, PlanError
from kernel.hosting.forking import OfThisProcess, call_in_children
from kernel.hosting.uninterrupted import UNINTERRUPTED
from plugins.apis.sockets.end import End, PublishingEnd
from plugins.apis.sockets.errors import ContextClosed, EngineOptionError, OptionError, PlaceError
from plugins.apis.sockets.monitor import SocketEvent, Watch
from plugins.apis.sockets.options import TYPES, UNLIMITED, UNLIMITED_BYTES, TypeName, Values
from plugins.apis.sockets.patterns import PATTERNS, Pattern
from plugins.apis.sockets.socket import UNSET, Socket
from plugins.apis.sockets.statistics import PeerStatistics, SocketStatistics

if TYPE_CHECKING:
    from plugins.apis.sockets.authentication import Decide
    from plugins.apis.sockets.tasks import TaskSocket


RELAY_MARKS = WaterMarks()
"""What may wait for the thread that chooses the peers of a PUB, if no more may wait for a peer."""

AT_EXIT = 5.0
"""Seconds for which a process that ends without closing its context goes on to write, at the most."""

A_TURN = 0.001
"""Seconds in which that thread passes on what was sent before the end without time to linger."""


class Place:
    """The engine of a socket, made at the first place, and the routes between the two."""

    def __init__(self, kernel: Kernel, name: str, values: Values, authenticator: Callable[[], str]) -> None:
        """``authenticator`` returns who decides on logins if the options name nobody."""
        self.engine = f"{name}.net"
        self._authenticator = authenticator
        self.pattern: Pattern
        """Set by whoever makes both."""
        self._kernel = kernel
        self._name = name
        self._values = values
        self._routes: list[RoutePlan] = []

    def add(self, what: str, place: str) -> str:
        """Bind or connect; return the place."""
        if not self._values.fixed:
            self._begin()
        return self._operate(what, place)

    def name_peer(self, identity: bytes) -> bytes:
        """Choose the identity of the peer of the next connect place; empty: have it made up.  Return it."""
        if not self._values.fixed:
            self._begin()
        return self._operate("name_peer", identity.decode("latin-1")).encode("latin-1")

    def remove(self, what: str, place: str) -> None:
        """Unbind or disconnect."""
        if not self._values.fixed:
            raise PlaceError(f"{what}: socket {self._name!r} has no place yet", errno.ENOENT)
        self._operate(what, place, errno.ENOENT)

    def _operate(self, what: str, place: str, number: int | None = None) -> str:
        done: str = self._call(what, place, number)
        return done

    def _call(self, what: str, argument: Any, number: int | None = None) -> Any:
        try:
            return self._kernel.operate(self.engine, what, argument)
        except KernelClosed as error:
            raise ContextClosed(str(error)) from error
        except KernelError as error:
            raise PlaceError(str(error), _number_of(error) or number) from error

    def _begin(self) -> None:
        values, pattern = self._values, self.pattern
        again = values["reconnect"]
        options: dict[str, Any] = {
            "type": pattern.kind,
            "places_later": True,
            "key_part": False,
            "immediate": values["immediate"],
            "max_message": values["maxmsgsize"],
            "heartbeat": float(values["heartbeat"]),
            "heartbeat_timeout": float(values["heartbeat_timeout"]),
            "heartbeat_ttl": float(values["heartbeat_ttl"]),
            "authenticator": self._authenticator(),
            **pattern.engine_options(),
        }
        if values["identity"]:
            options["identity"] = values["identity"].decode("utf-8", "surrogateescape")
        if values["hello"] is not None:
            options["hello"] = values["hello"].decode("utf-8", "surrogateescape")
        options |= values["engine"]
        if again is None:
            options["again"] = "never"
        else:
            most = max(again, float(values["reconnect_max"]))
            options.setdefault("reconnect", {"first": float(again), "most": most})
        try:
            # Before the routes: it has no port yet that could need them.
            self._kernel.add_engine(EnginePlan(name=self.engine, kind="zmq", options=options))
        except PlanError as error:
            raise EngineOptionError(
                f"socket {self._name!r} cannot be made with its option 'engine': {error}"
            ) from error
        if pattern.gives and not pattern.relayed:
            full = "drop-oldest" if values["conflate"] else pattern.when_full
            self._route(self._name, self.engine, pattern.router, values["sndhwm"], full)
        if pattern.takes or pattern.publishes:
            full = "drop-oldest" if values["conflate"] else "block"
            self._route(self.engine, self._name, "fan-out", values["rcvhwm"], full)
        values.fixed = True
        # Its operations can be called only when it runs.
        self._kernel.wait_running(engine=self.engine)
        if pattern.relayed:
            self._begin_relay()

    def _begin_relay(self) -> None:
        """Have the thread of the engine choose the peers of what is sent."""
        pattern, end = self.pattern, self.pattern.end
        assert isinstance(end, PublishingEnd)
        high = self._values["sndhwm"] or UNLIMITED
        end.room = high
        end.relay = self._call("relay", (end.hear, high))
        self._route(end.relay.name, self.engine, pattern.router, high, pattern.when_full)
        # More than may wait for one peer: this is only what the thread has not looked at yet, and what it
        # passes on at once does not wait for a peer.
        most = max(high, RELAY_MARKS.high)
        octets = most * RELAY_MARKS.bare_limit if most < UNLIMITED else UNLIMITED_BYTES
        marks = WaterMarks(high=most, high_bytes=octets, stall_timeout=math.inf)
        self._add_route(
            RoutePlan(source=self._name, targets=(end.relay.name,), router="fan-out", marks=marks)
        )

    def _route(self, source: str, target: str, router: str, high: int, when_full: Any) -> None:
        if self._values["conflate"]:
            high = 1
        # A mark of ØMQ counts messages only.
        marks = WaterMarks(
            high=high or UNLIMITED,
            high_bytes=UNLIMITED_BYTES,
            when_full=when_full,
            stall_timeout=math.inf,
        )
        self._add_route(RoutePlan(source=source, targets=(target,), router=router, marks=marks))

    def _add_route(self, route: RoutePlan) -> None:
        self._kernel.add_route(route)
        self._routes.append(route)

    def watch(self, tell: Callable[[SocketEvent], Any]) -> Watch:
        """Have ``tell`` called with what happens to places and connections.  Any thread."""
        return Watch(self.engine, self._kernel.events, tell)

    def close(self, linger: float | None) -> None:
        """Remove the engine when it has written what waits, and the routes behind it."""
        kernel, routes = self._kernel, self._routes
        seconds = math.inf if linger is None else linger
        if self.pattern.relayed:
            seconds = max(seconds, A_TURN)

        def gone() -> None:
            try:
                for route in routes:
                    kernel.remove_route(route)
                kernel.remove_engine(self._name)
            except KernelError:
                # The kernel is closing, or has closed: then they are gone as well.
                return

        if not self._values.fixed:
            gone()
            return
        try:
            kernel.remove_engine(self.engine, seconds, gone)
        except KernelError:
            return

    def statistics(self, dropped: int) -> SocketStatistics:
        """Return the figures of the pipes to and from each peer."""
        peers: dict[str, dict[str, int]] = {}
        beginning = f"{self.engine}/"
        relay, lost = self._at_relay()
        behind = 0
        for pipe in self._kernel.statistics().pipes:
            source, _, target = pipe.name.partition(" > ")
            if target == relay:
                behind = pipe.depth
            for name, figures in (
                (target, {"sent": pipe.taken, "waiting": pipe.depth, "dropped": pipe.dropped}),
                (source, {"received": pipe.written, "unread": pipe.depth}),
            ):
                if name.startswith(beginning):
                    peers.setdefault(name.removeprefix(beginning), {}).update(figures)
        for name, figures in peers.items():
            if relay and "sent" in figures:
                # Who gets which of them is not known before they are looked at.
                figures["waiting"] += behind
                figures["dropped"] += lost.get(beginning + name, 0)
        nothing = dict.fromkeys(("sent", "waiting", "dropped", "received", "unread"), 0)
        return SocketStatistics(
            name=self._name,
            peers=tuple(PeerStatistics(peer=peer, **{**nothing, **each}) for peer, each in peers.items()),
            dropped=dropped,
        )

    def _at_relay(self) -> tuple[str, dict[str, int]]:
        """Return the name of the relay, and how many messages it has not counted as dropped yet, by peer."""
        end = self.pattern.end
        if not isinstance(end, PublishingEnd) or end.relay is None:
            return "", {}
        return end.relay.name, {outlet.target: count for outlet, count in end.lost.items()}


def _number_of(error: BaseException) -> int | None:
    """Return the number of what has made an operation of an engine fail; None if none is known."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, (OSError, ValueError)):
        cause = cause.__cause__
    if isinstance(cause, OSError):
        # Names of hosts that are not found have numbers of their own; libzmq has this one for them.
        return cause.errno if cause.errno in errno.errorcode else errno.ENODEV
    return None if cause is None else errno.EINVAL


class Context(OfThisProcess):
    """Makes sockets.  ``with Context() as context:`` closes it, and all of its sockets, at the end.

    The kernel behind it is made with the first socket.  Any thread.
    """

    def __init__(
        self, *, spin: float | None = None, cpus: Sequence[int] = (), registry: PluginRegistry | None = None
    ) -> None:
        """Make it.

        ``spin``: seconds for which its poll thread looks for more work before every sleep; 0: it sleeps at
        once; None: it looks for 60 microseconds, while that pays.  ``cpus``: the processors that the poll
        thread may run on; empty: any.  Its first socket raises ``OptionError`` for values that a thread
        cannot have.  ``registry`` has the kinds that its kernel knows; None: those of all plugins that are
        installed.
        """
        self._registry = registry
        self._thread: dict[str, Any] = {}
        """What of the options of its poll thread is not as by default."""
        if spin is not None:
            self._thread["spin"] = spin
        if cpus:
            self._thread["cpus"] = tuple(cpus)
        self._kernel: Kernel | None = None
        self._lock = threading.Lock()
        self._numbers = count(1)
        self._sockets: set[Socket] = set()
        self._closed = False
        self._authenticator = ""
        call_in_children(self, Context._forked)

    def _forked(self) -> None:
        # A thread of the parent may have held it.
        self._lock = threading.Lock()

    @property
    def kernel(self) -> Kernel:
        """The kernel behind it: statistics, events, routes to other engines."""
        with self._lock:
            if self._closed:
                raise ContextClosed("the context was closed; make another one")
            if self._kernel is None:
                # The thread that a kernel makes if there is none has the options by default.
                threads = (ThreadPlan(name="poll-1", options=self._thread),) if self._thread else ()
                try:
                    self._kernel = Kernel(Plan(threads=threads), self._registry).start()
                except PlanError as error:
                    raise OptionError(f"the poll thread of a context: {error}") from error
                self._kernel.linger_at_exit = lambda: min(self._linger(UNSET), AT_EXIT)
            return self._kernel

    def socket(self, kind: TypeName, **options: Any) -> Socket:
        """Make a socket: ``context.socket("PUSH", sndhwm=10_000)``.  ``OPTIONS`` has what there is."""
        return self._make(kind, options)[0]

    def authenticate(self, decide: Decide) -> None:
        """Have a function decide on the logins of peers of sockets that bind or connect from now on.

        ``decide(login)`` is called in a thread of its own.  It returns the name of the user to let it in;
        None, or a ``KernelError`` that says why, refuses.  ``login.mechanism`` is PLAIN (``user`` and
        ``secret``, the password), CURVE (``user`` is the public key in Z85) or NULL (for sockets with a
        ``zap_domain``); ``login.peer`` is the address.  Received messages have the user in
        ``socket.envelope.properties["user_id"]``.
        """
        from plugins.apis.sockets.authentication import serve
        from plugins.protocols.zmtp.zap import ADDRESS

        rep = self.socket("REP", linger=0)
        try:
            rep.bind(ADDRESS)
        except PlaceError:
            rep.close(0)
            raise
        self._authenticator = ADDRESS
        serve(rep, decide)

    def task_socket(self, kind: TypeName, **options: Any) -> TaskSocket:
        """Make a socket for tasks of the event loop that runs here, trio or asyncio."""
        from plugins.apis.sockets.tasks import TaskSocket, running_loop

        # Before the socket is made: without a loop nobody would close it.
        loop = running_loop()
        socket, end = self._make(kind, options)
        return TaskSocket(socket, end, loop)

    def _make(self, kind: str, options: dict[str, Any]) -> tuple[Socket, End]:
        pattern_kind = PATTERNS.get(kind)
        if pattern_kind is None:
            raise KernelError(f"there is no type of socket {kind!r}; there are: {', '.join(TYPES)}")
        values = Values(kind)
        for name, value in options.items():
            values[name] = value
        made: tuple[Socket, End] | None = None
        try:
            with UNINTERRUPTED:
                made = self._open(pattern_kind, kind, values)
        except BaseException:
            # What a handler of a signal has raised: nobody gets the socket.
            if made is not None:
                made[0].close(0)
            raise
        return made

    def _open(self, pattern_kind: type[Pattern], kind: str, values: Values) -> tuple[Socket, End]:
        kernel = self.kernel
        name = f"{kind.lower()}-{next(self._numbers)}"
        try:
            kernel.add_engine(
                EnginePlan(name=name, kind="sockets", options={"publishes": pattern_kind.publishes})
            )
            end: End = kernel.open(name, api=cast("type[Any]", End))
        except KernelClosed as error:
            # By another thread, just now.
            raise ContextClosed(str(error)) from error
        place = Place(kernel, name, values, lambda: self._authenticator)
        pattern = place.pattern = pattern_kind(end, values, place.engine)
        socket = Socket(end, pattern, values, place, self._sockets.discard)
        self._sockets.add(socket)
        return socket, end

    @property
    def closed(self) -> bool:
        """Whether ``close`` was called."""
        return self._closed

    def close(self, linger: float | None = UNSET) -> None:
        """Close all sockets: calls that wait raise ``ContextClosed``.

        What was sent is still written, for ``linger`` seconds (None: no limit); by default for the longest
        ``linger`` of its open sockets, or 5 seconds for those that are closed already.
        """
        with self._lock:
            self._closed = True
            kernel = self._kernel
        if kernel is None:
            return
        kernel.close(linger=self._linger(linger), reason="the context was closed")
        kernel.join()
        for socket in list(self._sockets):
            socket.stop_watching()

    def _linger(self, wanted: float | None) -> float:
        """Return for how many seconds what was sent is written, of what ``close`` was given."""
        sockets = list(self._sockets)
        if wanted is UNSET:
            each = [socket.options["linger"] for socket in sockets] or [5.0]
            wanted = None if None in each else max(each)
        elif wanted is not None and any(socket.relayed for socket in sockets):
            wanted = max(wanted, A_TURN)
        return math.inf if wanted is None else wanted

    def __enter__(self) -> Context:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(UNSET if error is None else 0)
