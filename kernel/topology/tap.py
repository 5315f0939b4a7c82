"""Tap: see the messages that pass, without touching them.

There are two sorts, which are used in the same way.  A *route tap* is a route from an engine, added while
the system runs, with ``when_full = "drop-newest"`` and the router ``tap``.  Its pipe holds little, so that
a flow that is faster than the watcher costs its source no more than a counter.  An *engine tap* is for
what passes inside an engine: the engine notes messages (operation ``tap``), and is asked for them.  What it
can be asked to show is announced by its kind (``kernel.topology.asking``).

What a tap may cost: a watcher's thread competes for the interpreter's lock with the threads that it watches.
So a route tap works for a fiftieth of the time at most and rests otherwise; what passes meanwhile is dropped
and counted.  Without a tap there is no route, and nothing to pay.

A tap belongs to the thread that has opened it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast
from typing import Protocol as Interface

import msgspec

from kernel.contracts.errors import KernelClosed, KernelError, UnknownName, nearest
from kernel.contracts.shown import Row, Selection, Selector, shown
from kernel.dispatcher.dispatcher import Dispatcher
from kernel.pipes.water_marks import WaterMarks
from kernel.threads.caller_thread import CallerThread
from kernel.topology.asking import argument_for, engines_asked, fields_of, only_engine
from kernel.topology.plan import RoutePlan

if TYPE_CHECKING:
    from kernel.topology.parts import Parts
    from kernel.topology.system import Kernel

_MARKS = WaterMarks(high=1024, high_bytes=8 * 1024 * 1024, when_full="drop-newest")
_AT_ONCE = 1000
"""Messages that are looked at before the next rest."""
_SHARE = 0.02
"""The part of the time that a route tap works."""
_LONGEST_REST = 1.0
_PERIOD = 0.1
"""Seconds between two questions of an engine tap."""
MOST_ROWS = 200
"""Messages that one ``read`` returns; more that came with them are counted as dropped."""


class TapWanted(Selection, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What to watch, besides which of the messages."""

    source: str = ""
    """An engine: what it sends on its routes; with options of its kind, what passes inside it."""
    target: str = ""
    """An engine: what the routes bring that lead there."""
    asked: dict[str, Any] = {}
    """What an engine is asked to show: options that its kind brings (``EngineKind.asked``)."""


class Tap(Interface):
    """An open tap."""

    def read(self, timeout: float) -> list[Row]:
        """Return the selected messages that have passed; wait for some, at most ``timeout`` seconds.

        Raises ``KernelClosed``, or another ``KernelError`` if what is watched has gone.
        """
        ...

    def dropped(self) -> int:
        """Return how many messages have passed without having been looked at."""
        ...

    def close(self) -> None:
        """Remove it.  The second time it does nothing."""
        ...


def open_tap(
    kernel: Kernel,
    parts: Parts,
    dispatcher: Dispatcher,
    wanted: TapWanted,
    entered: Callable[[RouteTap], Any],
) -> Tap:
    """Open a tap in the calling thread.

    ``entered`` is called with one that has to hear when the kernel closes.
    """
    # Here, so that a malformed pattern changes nothing.
    Selector(wanted)
    engine = _looked_into(kernel, wanted)
    if engine is not None:
        return EngineTap(kernel, engine, wanted)
    tap = RouteTap(kernel, parts, dispatcher, wanted)
    entered(tap)
    return tap


def _looked_into(kernel: Kernel, wanted: TapWanted) -> str | None:
    """Return the engine that is asked for what passes inside it; None: its routes are watched."""
    if wanted.target or (wanted.source and not wanted.asked):
        return None
    if wanted.source:
        return wanted.source if wanted.source in engines_asked(kernel, "tap", wanted.asked) else None
    if not wanted.asked and not wanted.keys:
        raise KernelError("say what to watch: an engine, a pattern of keys, or what a kind of engine has")
    return only_engine(kernel, "tap", wanted.asked, "watch routes: --from ENGINE or --to ENGINE")


class RouteTap:
    """Watches what an engine sends.  It is the owner of its port, and an ``Api`` for the kernel."""

    def __init__(self, kernel: Kernel, parts: Parts, dispatcher: Dispatcher, wanted: TapWanted) -> None:
        self._kernel = kernel
        self._dispatcher = dispatcher
        self._selector = Selector(wanted)
        self._closed = ""
        self._woken = threading.Event()
        self._leaving = threading.Lock()
        self._worked_at = time.thread_time()
        self._unshown = 0
        # Under the lock, so that no other tap chooses the same name.
        with parts.changing:
            self.name: str = _free_name(kernel)
            self._routes = _routes(kernel, wanted, self.name)
            self._past = self._dropped_before()
            for route in self._routes:
                kernel.add_route(route)
        try:
            self._caller = CallerThread(dispatcher, self.name, self)
        except BaseException:
            self._remove_routes()
            raise

    def read(self, timeout: float) -> list[Row]:
        """Return what has passed."""
        self._rest()
        self._check()
        caller = self._caller
        caller.wait_until(lambda: bool(self._closed) or caller.port.has_input(), timeout)
        self._check()
        self._stay()
        taken = caller.port.take(_AT_ONCE)
        rows: list[Row] = []
        source = caller.port.origin[0]
        for batch in taken.batches:
            for body in self._selector.bodies(batch):
                if len(rows) >= MOST_ROWS:
                    self._unshown += 1
                else:
                    rows.append({"from": source, **shown(batch.envelope, body)})
        return rows

    def dropped(self) -> int:
        """Return what the pipes have dropped since the tap was opened, and what was not shown."""
        return self._dropped_before() - self._past + self._unshown

    def close(self) -> None:
        """Remove the routes, and leave the matrix."""
        if not self._caller.port.closed:
            self._remove_routes()
            self.dispose()

    def _rest(self) -> None:
        """Rest for so long that all work since the last rest is a small share of the time."""
        worked = time.thread_time() - self._worked_at
        self._woken.wait(min(worked * (1 / _SHARE - 1), _LONGEST_REST))
        self._worked_at = time.thread_time()

    def _stay(self) -> None:
        """Add the routes again, if a changed topology file has removed them: it does not have them."""
        plan = self._kernel.plan
        for route in self._routes:
            if not any(each is route for each in plan.routes):
                self._kernel.add_route(route)

    def _remove_routes(self) -> None:
        for route in self._routes:
            try:
                self._kernel.remove_route(route)
            except (UnknownName, KernelClosed):
                # A changed topology has removed it, or the kernel has removed everything.
                continue

    def _dropped_before(self) -> int:
        labels = {route.label for route in self._routes}
        past = sum(self._dispatcher.past.of_route(label)["dropped"] for label in labels)
        return past + sum(
            pipe.dropped for _, _, spec, pipe in self._dispatcher.pipes() if spec.name in labels
        )

    def _check(self) -> None:
        if self._closed:
            raise KernelClosed(self._closed)

    # The port's owner.  ``read`` looks itself when it was woken.

    def on_output(self) -> None:
        """Something has passed."""

    def on_writable(self) -> None:
        """Nothing is sent from here."""

    def on_confirmed(self, position: int) -> None:
        """Nothing is sent from here."""

    # The kernel's side

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._caller.port.closed

    def kernel_closed(self, reason: str) -> None:
        """Wake ``read``.  Any thread."""
        self._closed = reason
        self._woken.set()
        self._caller.post(lambda: None)

    def dispose(self) -> None:
        """Leave the matrix.  The thread of the tap, and the one that joins the kernel."""
        # A place in the matrix that was given back twice would be given to two others.
        with self._leaving:
            if not self._caller.port.closed:
                self._caller.close()


def _free_name(kernel: Kernel) -> str:
    # The lowest number that is free: figures of routes are kept by name for ever.
    plan = kernel.plan
    used = {engine.name for engine in plan.engines}.union(*(route.ends for route in plan.routes))
    return next(name for number in range(1, len(used) + 2) if (name := f"tap-{number}") not in used)


def _routes(kernel: Kernel, wanted: TapWanted, name: str) -> list[RoutePlan]:
    """Return the routes of a tap: from the source, or beside each route that leads to the target."""
    routes = [route for route in kernel.plan.routes if route.router != "tap"]
    ends = sorted({end for route in routes for end in route.ends})
    for end in (wanted.source, wanted.target):
        if end and end not in ends:
            raise UnknownName(f"no route begins or ends at {end!r}; {nearest(end, ends)}")
    exchange = fields_of(kernel, "tap", wanted.source or wanted.target, wanted.asked).get("exchange")
    watched = [
        route
        for route in routes
        if wanted.source in ("", route.source) and (not wanted.target or wanted.target in route.targets)
    ]
    if not watched:
        raise UnknownName(f"no route leads {_way(kernel, wanted)}")
    if not wanted.target:
        return [_route(wanted.source, name, wanted.keys, exchange)]
    # Two routes may have the same filter, and each message is wanted once from each source.
    filters = dict.fromkeys((route.source, route.match, route.exchange or exchange) for route in watched)
    return [_route(source, name, match, chosen) for source, match, chosen in filters]


def _way(kernel: Kernel, wanted: TapWanted) -> str:
    """Say which routes there are none of, and what else there is to watch."""
    ends = (("from", wanted.source), ("to", wanted.target))
    way = " ".join(f"{word} {end!r}" for word, end in ends if end)
    inside = kernel.registry.asked("tap")
    if wanted.target or not inside:
        return way
    return f"{way}; to watch what passes inside an engine: {' | '.join(f'--{name}' for name in inside)}"


def _route(source: str, name: str, match: tuple[str, ...], exchange: str | None) -> RoutePlan:
    return RoutePlan(
        source=source, targets=(name,), match=match, exchange=exchange, router="tap", marks=_MARKS
    )


class EngineTap:
    """Watches what passes inside an engine, by asking it again and again.

    The engine forgets a tap that nobody asks for, so that one whose watcher was killed does not stay.
    """

    def __init__(self, kernel: Kernel, engine: str, wanted: TapWanted) -> None:
        self._kernel = kernel
        self._engine = engine
        asked = argument_for(kernel, "tap", engine, wanted.asked)
        selection = {field: getattr(wanted, field) for field in Selection.__struct_fields__}
        self._number = self._ask("tap", {**asked, **selection})["tap"]
        self._dropped = 0
        self._open = True

    def read(self, timeout: float) -> list[Row]:
        """Return what has passed."""
        deadline = time.monotonic() + timeout
        while True:
            answer = self._ask("tap-read", {"tap": self._number, "most": MOST_ROWS})
            self._dropped = answer["dropped"]
            rows: list[Row] = answer["messages"]
            left = deadline - time.monotonic()
            if rows or left <= 0:
                # Also after an answer with messages: each one is a turn of the engine's thread.
                time.sleep(_PERIOD / 2 if rows else 0)
                return rows
            time.sleep(min(_PERIOD, left))

    def dropped(self) -> int:
        """Return what the engine has dropped."""
        return self._dropped

    def close(self) -> None:
        """Have the engine forget it."""
        if self._open:
            self._open = False
            try:
                self._ask("tap-end", {"tap": self._number})
            except KernelError:
                # The engine has gone, or was started again: then it has forgotten the tap.
                return

    def _ask(self, what: str, argument: dict[str, Any]) -> dict[str, Any]:
        return cast("dict[str, Any]", self._kernel.operate(self._engine, what, argument))


class TapEnd(msgspec.Struct, frozen=True, kw_only=True):
    """The last line of a tap's answer."""

    end: str
    """Why it has ended."""
    shown: int
    dropped: int
    """Messages that passed and were not looked at, because they came too fast."""
