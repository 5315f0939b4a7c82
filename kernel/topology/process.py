"""The process of a process thread: ``python -m kernel.topology.process DESCRIPTOR NAME``.

It has a kernel of its own, with one poll thread that hosts the engines, the legs of routes and the link ends
that ``kernel/threads/process_thread.py`` tells it of.  The main thread carries out what comes over the
control wire.  The answers of engines and their events are sent by the threads that they come from.

The life of a process
    ``main`` waits for the first message, ``begin``, which has all that a plan would say of the thread.
    ``Process`` makes the kernel and says ``up``.  Then it hosts and removes what it is told to, one message
    after the other, until ``close`` comes or the wire ends.  It decides nothing by itself: after its end the
    keeper tells the same to its successor.

Who calls what
    The methods in ``_MESSAGES`` run in the main thread.  They call the kernel as an application would.  What
    engines answer comes in the poll thread (``_answer``).  ``_on_event`` is called by the thread
    of the event.

Invariants
    1.  Each message with a number gets an ``answer`` or ``gone`` with it, also if the kernel refuses:
        somebody in the other process waits for it.
    2.  Each message with a descriptor claims it, also if nobody wants it: descriptors are
        claimed in their order.
    3.  A second leg and its port stay until their link has passed on what had come (``_remove_link``).
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from kernel.contracts.engine import EngineEvent
from kernel.contracts.errors import KernelError
from kernel.contracts.thread import Done, EngineThread, Shown
from kernel.hosting.link import LinkEnd, LinkEngine
from kernel.plugins import Origin, PluginRegistry
from kernel.threads.control_wire import ControlWire
from kernel.topology.border import LET_LINK_LINGER, link_protocol
from kernel.topology.collecting import begin_start, end_start
from kernel.topology.lingering import Lingering
from kernel.topology.plan import EnginePlan, Plan, RoutePlan, ThreadPlan
from kernel.topology.system import LINGER, Kernel

# A terminal or a service manager sends them to all processes of a group. When this one has to stop, the
# process of the kernel says so.
_IGNORED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_LAST_SECONDS = 10.0
"""Seconds beyond the time to linger after which a process ends in any case."""


class _Records(logging.Handler):
    """Sends the records of the log to the process of the kernel."""

    def __init__(self, wire: ControlWire) -> None:
        super().__init__()
        self._wire = wire

    def emit(self, record: logging.LogRecord) -> None:
        """Send a record as text."""
        # As text, since the arguments of a record need not be plain data.
        text = record.getMessage()
        if record.exc_info and record.exc_info[0] is not None:
            text += "\n" + "".join(traceback.format_exception(*record.exc_info)).rstrip()
        self._wire.send(
            "log",
            {"name": record.name, "levelno": record.levelno, "levelname": record.levelname, "msg": text},
        )


class ProcessKernel(Kernel):
    """The kernel of a process: legs and links in place of the routes of a plan."""

    def add_leg(self, name: str, label: str, plan: RoutePlan) -> None:
        """Add a leg."""
        self._parts.add_leg(name, label, plan)

    def remove_leg(self, name: str) -> None:
        """Remove a leg."""
        self._parts.remove_leg(name)

    def thread(self) -> EngineThread:
        """Return its only thread."""
        return self._threads()[0]

    def lingering(self, moved: Callable[[int], dict[Any, int]]) -> Lingering:
        """Return what finds out whether the process is at rest."""
        return Lingering(self._dispatcher.pipes, self._threads, moved)


class Process:
    """What the main thread does."""

    def __init__(self, wire: ControlWire, begin: dict[str, Any]) -> None:
        self._wire = wire
        self._registry = _registry(begin["plugins"])
        self._links: dict[str, LinkEnd] = {}
        self._second_legs: dict[str, list[str]] = {}
        """Legs by the link that they begin at."""
        self._kernel = ProcessKernel(
            Plan(threads=(ThreadPlan(name=begin["name"], kind="poll", options=begin["options"]),)),
            self._registry,
        )
        # Before the start, so that no event is missed.
        self._kernel.events.append(self._on_event)
        self._lingering = self._kernel.lingering(self._moved)

    def run(self) -> None:
        """Carry out messages until the wire ends, or the kernel was closed."""
        self._kernel.start()
        # Before any engine runs: the border gives sockets to processes that are up, and links wait for them.
        self._wire.send("up")
        while True:
            messages = self._wire.turn(None)
            if messages is None:
                # The process of the kernel has ended, without having closed this one.
                self._close(LINGER)
                return
            for what, *arguments in messages:
                # Not in the table: what stands behind it is not carried out any more.
                if what == "close":
                    self._close(*arguments)
                    return
                try:
                    _MESSAGES[what](self, *arguments)
                # One message that fails must not end what the others have made.
                except Exception:
                    logging.getLogger(__name__).exception("%s", what)

    def _close(self, linger: float) -> None:
        # A fault of an engine's code must not keep a process that nobody waits for.
        # ``os._exit``, since an exception ends only the thread that raises it.
        last = threading.Timer(linger + _LAST_SECONDS, os._exit, (1,))
        last.daemon = True
        last.start()
        self._kernel.close(linger)
        # Events of engines that end are sent meanwhile.
        while not self._kernel.join(0.05):
            self._wire.turn(0)
        for end in self._links.values():
            end.close()
        self._wire.flush(1.0)

    # ------------------------------------------------------------------ what to host

    def _add_engine(self, data: dict[str, Any]) -> None:
        plan = msgspec.convert(data, EnginePlan, strict=False)
        try:
            self._kernel.add_engine(plan)
        except Exception as error:
            # Its plan was checked, so a plugin is missing here, or its options are not plain data.
            detail = f"{type(error).__name__}: {error}"
            state = {
                "state": "failed",
                "address": "",
                "failures": 1,
                "last_failure": detail,
                "next_try": None,
                "came_up": False,
            }
            event = EngineEvent(engine=plan.name, what="failed", detail=detail)
            self._wire.send("event", msgspec.to_builtins(event), state)

    def _remove_engine(self, number: int, name: str, linger: float) -> None:
        gone = partial(self._wire.send, "gone", number)
        try:
            self._kernel.remove_engine(name, linger, gone)
        except KernelError:
            # It could not be added, and somebody waits for its end all the same.
            gone()

    def _add_leg(self, name: str, label: str, data: dict[str, Any]) -> None:
        plan = msgspec.convert(data, RoutePlan, strict=False)
        if plan.source in self._links:
            # The end of the link removes it, see ``_remove_leg``.
            self._second_legs.setdefault(plan.source, []).append(name)
        self._kernel.add_leg(name, label, plan)

    def _remove_leg(self, name: str) -> None:
        # A second leg goes when its link has passed on what came (``_remove_link``).
        if not any(name in legs for legs in self._second_legs.values()):
            self._kernel.remove_leg(name)

    def _add_link(self, name: str, port: str, peer: str, side: Any) -> None:
        # Only the end that sends asks for new sockets (``Border.renew``).
        on_lost = partial(self._wire.send, "lost", name) if side == "client" else None
        end = self._links[name] = LinkEnd(name, port, peer, side, on_lost)
        protocol, options = link_protocol(self._registry)
        self._kernel.host(name, partial(LinkEngine, end=end, protocol=protocol, options=options))

    def _remove_link(self, name: str) -> None:
        end = self._links.pop(name)
        legs = self._second_legs.pop(name, [])
        end.close()
        if end.side == "client":
            self._kernel.remove_engine(name, LET_LINK_LINGER)
            return

        def over() -> None:
            # The kernel may have been closed meanwhile.
            with contextlib.suppress(KernelError):
                for leg in legs:
                    self._kernel.remove_leg(leg)
                self._kernel.remove_engine(name)

        end.when_over(over)

    def _give(self, name: str, pair: int) -> None:
        # Claimed first, also for a link that was removed: the next message has the next descriptor.
        connected = socket.socket(fileno=self._wire.claim())
        end = self._links.get(name)
        if end is None:
            connected.close()
        else:
            end.give(connected, pair)

    def _hand_over(self, engine: str, what: dict[str, Any]) -> None:
        connected = socket.socket(fileno=self._wire.claim())
        try:
            self._kernel.thread().hand_over(engine, what, connected)
        except KernelError as error:
            logging.getLogger(__name__).warning("%s", error)
            connected.close()

    # ------------------------------------------------------------------ questions

    def _answer(self, number: int, done: Done) -> None:
        answer, failure = done
        if failure is not None:
            self._wire.send("answer", number, None, [type(failure).__name__, str(failure)])
            return
        try:
            self._wire.send("answer", number, answer, None)
        except (TypeError, ValueError, OverflowError) as error:
            self._wire.send("answer", number, None, ["KernelError", f"the answer is no plain data: {error}"])

    def _statistics(self, number: int) -> None:
        self._answer(number, (msgspec.to_builtins(self._kernel.statistics(), enc_hook=str), None))

    def _inspect(self, number: int, what: str) -> None:
        def answer(shown: Shown) -> None:
            self._answer(number, (shown, None))

        self._kernel.thread().inspect(what, answer)

    def _operate(self, number: int, engine: str, what: str, argument: Any) -> None:
        try:
            self._kernel.thread().operate(engine, what, argument, partial(self._answer, number))
        except KernelError as error:
            self._answer(number, (None, error))

    def _take_options(self, number: int, engine: str, options: Any) -> None:
        try:
            self._kernel.change_options(engine, options, partial(self._answer, number))
        except (KernelError, msgspec.ValidationError) as error:
            self._answer(number, (None, error))

    def _look(self, number: int) -> None:
        """Say whether the process is at rest, and what it has moved."""
        thread = self._kernel.thread()

        def answer(_: Shown) -> None:
            # In the thread, between two calls of its engines: none has a message in its hands.
            state = None
            if self._lingering.is_over(thread.number):
                links = {name: end.counts() for name, end in list(self._links.items())}
                state = {"moved": self._lingering.moved(), "links": links}
            failure = None if state is not None else KernelError("not at rest")
            self._answer(number, (state, failure))

        thread.inspect("", answer)

    def _moved(self, number: int) -> dict[Any, int]:
        return {end: end.moved for end in list(self._links.values())}

    def _on_event(self, event: EngineEvent) -> None:
        # The end of a link in the other process has told of it, unless this one is broken.
        if event.engine in self._links and event.what != "failed":
            return
        # The first engine that runs ends the start (``collecting.py``).  Later calls do nothing.
        if event.what == "running":
            end_start()
        found = next((state for state in self._kernel.engine_states() if state.name == event.engine), None)
        state = None
        if found is not None:
            state = {
                "state": found.state,
                "address": found.address,
                "failures": found.failures,
                "last_failure": found.last_failure,
                "next_try": found.next_try,
                "came_up": found.came_up(),
            }
        # With the state: whoever hears of the event in the other process finds there what belongs to it.
        self._wire.send("event", msgspec.to_builtins(event), state)


_MESSAGES: dict[str, Callable[..., Any]] = {
    "engine": Process._add_engine,
    "remove": Process._remove_engine,
    "leg": Process._add_leg,
    "remove leg": Process._remove_leg,
    "link": Process._add_link,
    "remove link": Process._remove_link,
    "socket": Process._give,
    "connection": Process._hand_over,
    "statistics": Process._statistics,
    "inspect": Process._inspect,
    "operate": Process._operate,
    "options": Process._take_options,
    "look": Process._look,
}


def _registry(plugins: dict[str, str]) -> PluginRegistry:
    """Load what is installed, and what the other process has besides."""
    import importlib

    registry = PluginRegistry.load()
    for name, module in plugins.items():
        # What is installed was found here, too. The rest was added by code there.
        if name not in registry.plugins:
            try:
                registry.add(importlib.import_module(module), Origin(name, "the main process", ""))
            except Exception as error:
                logging.getLogger(__name__).warning("plugin %s: %s", name, error)
    return registry


def main() -> None:
    """Run until the process of the kernel says so, or has ended."""
    begin_start()
    for number in _IGNORED:
        signal.signal(number, signal.SIG_IGN)
    # Blocked by the process of the kernel until they are ignored.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _IGNORED)
    descriptor = int(sys.argv[1])
    # Programs that engines start must not have the wire: its end is how both sides hear that the other has
    # ended.
    os.set_inheritable(descriptor, False)
    wire = ControlWire(socket.socket(fileno=descriptor), descriptors=True)
    messages: list[list[Any]] | None = []
    while not messages:
        messages = wire.turn(None)
        if messages is None:
            return
    # The first read may have brought more than ``begin``.
    wire.put_back(messages[1:])
    begin = messages[0][1]
    # Programs that engines start get the path that the user has set, and not the one of ``_spawn``.
    if begin["pythonpath"] is None:
        os.environ.pop("PYTHONPATH", None)
    else:
        os.environ["PYTHONPATH"] = begin["pythonpath"]
    root = logging.getLogger()
    root.addHandler(_Records(wire))
    # That of the process of the kernel: records below it would cross the wire for nothing.
    root.setLevel(begin["log_level"])
    Process(wire, begin).run()
    wire.close()


if __name__ == "__main__":
    main()
