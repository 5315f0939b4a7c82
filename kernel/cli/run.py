"""``kernel run``: runs a topology file; signals reload it and stop it.

The main thread only waits for requests and carries them out.  Signal handlers and engines' threads put them
into a queue (``Requests``).

The requests are the names of signals; ``look``: an engine's state has changed, so everything may be up; and
``failed``: with ``--fail-fast`` an engine has failed before everything was up.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import logging
import os
import select
import signal
import socket
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import click

from kernel.cli.event_log import RATE, EventLog, LogRecords
from kernel.cli.seconds import Seconds
from kernel.cli.service_manager import ServiceManager
from kernel.contracts.engine import EngineEvent
from kernel.contracts.errors import KernelError, PlanError
from kernel.contracts.system import NO_TABLE
from kernel.plugins import PluginRegistry
from kernel.topology.check import load_plan
from kernel.topology.collecting import end_start
from kernel.topology.plan import Plan
from kernel.topology.system import LINGER, Kernel
from kernel.topology.unopened import unopened

if TYPE_CHECKING:
    from kernel.topology.control import ControlServer

_ECHO = 0.5
"""Seconds in which another signal counts as the first one: a shell and a supervisor both pass on a Ctrl-C."""


@click.command("run")
@click.argument("file", type=click.Path())
@click.option("--json", "as_json", is_flag=True, help="Write the log as JSON, one object a line.")
@click.option(
    "--ready-fd",
    type=click.IntRange(min=0, max=0x7FFF_FFFF),
    metavar="FD",
    help="Write a line to this descriptor, and close it, when all engines are up.",
)
@click.option(
    "--linger",
    type=Seconds(0),
    default=LINGER,
    show_default=True,
    help="Seconds that the system may take at the end to write what is queued.",
)
@click.option(
    "--control",
    metavar="PATH",
    help="The control socket, for `kernel status` and others.  Default: kernel-PID.sock in $XDG_RUNTIME_DIR.",
)
@click.option("--no-control", is_flag=True, help="Have no control socket.")
@click.option(
    "--fail-fast",
    is_flag=True,
    help="End with exit status 1 if an engine fails before all are up, instead of trying again.",
)
@click.option("--verbose", is_flag=True, help="Print the traceback of an engine that fails.")
@click.option(
    "--log-rate",
    type=click.IntRange(min=0),
    default=RATE,
    show_default=True,
    help="Lines a second for events of one engine that are alike; more are counted.  0: any number.",
)
def command(
    file: str,
    as_json: bool,
    ready_fd: int | None,
    linger: float,
    control: str | None,
    no_control: bool,
    fail_fast: bool,
    verbose: bool,
    log_rate: int,
) -> None:
    """Run a topology FILE, and print a line for each event that an operator would want to know.

    Ctrl-C and SIGTERM stop it cleanly; a second one stops it at once.  SIGHUP reads the file again and
    applies what has changed, without touching anything else.  A file with mistakes is refused and changes
    nothing.
    """
    if control and no_control:
        raise click.UsageError("--control and --no-control contradict each other; give one of them")
    if ready_fd is not None:
        _check_ready_fd(ready_fd)
    log = EventLog(as_json=as_json, tracebacks=verbose, rate=log_rate)
    records = LogRecords(log)
    logging.getLogger().addHandler(records)
    try:
        Runner(file, log, ready_fd, control, no_control=no_control, fail_fast=fail_fast).run(linger)
    finally:
        logging.getLogger().removeHandler(records)


def _check_ready_fd(descriptor: int) -> None:
    """Refuse a descriptor to which nothing can be written: who waits for the line would wait for ever."""
    try:
        mode = fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE
    except OSError as error:
        raise click.UsageError(
            f"--ready-fd {descriptor}: {error.strerror}; whoever starts this command has to leave it open"
        ) from None
    # Also one that this process has opened for itself, if it was given none.
    if mode == os.O_RDONLY:
        raise click.UsageError(
            f"--ready-fd {descriptor}: it is open for reading only; give the end of a pipe that is written to"
        )


class Requests:
    """What the main thread is asked to do, in order.

    The main thread sleeps on a socket and not on a lock.  The system may give a signal to any thread.
    Python's handler is called by the main thread only, and a lock is not released by a signal that another
    thread got: the main thread would sleep on, and SIGTERM would do nothing.  Python writes to the socket in
    whichever thread the signal comes (``signal.set_wakeup_fd``).

    ``put`` may be called at any time, also by a signal handler in the middle of a ``put`` or ``get``.
    """

    def __init__(self) -> None:
        # Each call of a deque is one step, so no lock is needed that a handler could find taken.
        self._waiting: deque[str] = deque()
        self._bell, self._ringer = socket.socketpair()
        self._bell.setblocking(False)
        self._ringer.setblocking(False)
        self._poll = select.poll()
        self._poll.register(self._bell, select.POLLIN)

    @property
    def wakeup_fd(self) -> int:
        """The descriptor for ``signal.set_wakeup_fd``."""
        return self._ringer.fileno()

    def put(self, request: str) -> None:
        """Have the main thread carry out a request.  Any thread."""
        self._waiting.append(request)
        # Full: it is rung for already.  Closed: nobody carries out requests any more.
        with contextlib.suppress(OSError):
            self._ringer.send(b"\0")

    def get(self, until: float | None = None) -> str:
        """Wait for the next request, which is empty if none has come ``until`` then (``time.monotonic``).

        The main thread.
        """
        # Python calls the handlers of signals that have come at the end of each round, before it looks again.
        while not self._waiting:
            left = None if until is None else max(0.0, until - time.monotonic()) * 1000
            if not self._poll.poll(left):
                return ""
            with contextlib.suppress(BlockingIOError):
                self._bell.recv(4096)
        return self._waiting.popleft()

    def close(self) -> None:
        """Close the sockets."""
        self._bell.close()
        self._ringer.close()


class Runner:
    """One run of a topology file."""

    def __init__(
        self,
        file: str,
        log: EventLog,
        ready_fd: int | None = None,
        control: str | None = None,
        *,
        no_control: bool = False,
        fail_fast: bool = False,
    ) -> None:
        self._file = file
        self._log = log
        self._ready_fd = ready_fd
        self._control = control
        self._no_control = no_control
        self._fail_fast = fail_fast
        self._failure = ""
        """The first engine that failed before everything was up, and why."""
        self._ready = False
        self._has_hinted = False
        self._told: set[str] = set()
        """Engines of which the log has said that they run: their states say so a moment earlier."""
        # Also for reloads: Python does not load a module twice, so a plugin that is installed or changed
        # later needs a new process.
        self._registry = PluginRegistry.load()
        self._requests = Requests()
        self._manager = ServiceManager()

    def run(self, linger: float) -> None:
        """Start the system, carry out requests, stop it.

        ``KernelError`` with ``fail_fast`` if an engine has failed before all were up.
        """
        # Around everything: their sockets are open already, also if the file cannot be read.
        with contextlib.closing(self._requests):
            self._run(linger)

    def _run(self, linger: float) -> None:
        for refused in self._registry.refused:
            self._log.write("refused", detail=str(refused))
        plan = load_plan(self._file, self._registry)
        self._warn(plan)
        # A file with mistakes has ended the command by now, and nothing has to be taken back.
        kernel = Kernel(plan, self._registry)
        # Before the start, or the first events would be missing in the log.
        kernel.events.append(self._on_event)
        # The signals first: one that comes while engines start is kept and carried out afterwards.
        with _signals(self._requests), self._controlled(kernel):
            kernel.start()
            # A plan without engines reports no event, and is ready at once.
            self._requests.put("look")
            try:
                reason = self._obey(kernel)
                self._manager.stops(f"stopping: {reason}")
                self._log.write("stopping", detail=reason)
                # Before ``close``: engines that have ended have no counters any more.
                self._log.figures(kernel.statistics())
            finally:
                # Nothing has to be written out of a system that never came up.
                kernel.close(linger=0 if self._failure else linger)
                kernel.join()
            self._log.write("stopped")
        if self._failure:
            raise KernelError(self._failure)

    def _warn(self, plan: Plan) -> None:
        """Say what of the file does nothing here."""
        for line in plan.left_out:
            self._log.write("left out", detail=line)
        for engine, text in unopened(plan, self._registry):
            self._log.write(
                "warning",
                engine=engine.name,
                detail=f"{self._file}:{engine.line}: engine {engine.name!r} {text}",
            )

    @contextlib.contextmanager
    def _controlled(self, kernel: Kernel) -> Iterator[None]:
        """Have a control socket meanwhile.

        If it cannot be made at the path that the user has given, that is an error.  At the default path it is
        a line in the log, since the system runs without it.
        """
        server: ControlServer | None = None
        try:
            if not self._no_control:
                from kernel.topology.control import ControlServer, default_path

                server = ControlServer(kernel, self._control or default_path())
                self._log.write("control", detail=server.path)
        except (KernelError, OSError) as error:
            if self._control:
                raise
            self._log.write("error", detail=str(error))
        try:
            yield
        finally:
            if server is not None:
                server.close()

    def _on_event(self, event: EngineEvent) -> None:
        """Log the event, and have the main thread look whether everything is up.  The engine's thread."""
        self._log.event(event)
        # Logged before: whoever learns that the system is ready finds the addresses of all engines in the
        # log.
        if not self._ready:
            if event.what == "running":
                self._told.add(event.engine)
            # It has to be told of again when it runs again: its state says so a moment earlier then, too.
            elif event.what == "failed":
                self._told.discard(event.engine)
                self._on_failed_start(event)
            self._requests.put("look")

    def _on_failed_start(self, event: EngineEvent) -> None:
        """End with ``fail_fast``, and else say once that this is possible.  The engine's thread."""
        if self._fail_fast:
            self._failure = self._failure or f"engine {event.engine!r} cannot start: {event.detail}"
            self._requests.put("failed")
        elif not self._has_hinted:
            self._has_hinted = True
            self._log.record(
                "hint", "an engine that cannot start is tried again; with --fail-fast, `kernel run` ends"
            )

    def _obey(self, kernel: Kernel) -> str:
        """Carry out requests until one of them is to stop; return which one."""
        next_sign: float | None = None
        while True:
            next_sign = self._give_sign_of_life(kernel, next_sign)
            request = self._requests.get(next_sign)
            if not request:
                continue
            if request == "look":
                self._look(kernel)
            elif request == "SIGHUP":
                self._reload(kernel)
            # SIGINT or SIGTERM.  What is behind it in the queue is not carried out any more.
            else:
                return request

    def _give_sign_of_life(self, kernel: Kernel, due: float | None) -> float | None:
        """Tell the service manager, if it is time, that each thread takes its turns; return the next time.

        The log has the threads that do not; then no sign is given.
        """
        every = self._manager.alive_every
        if every is None or (due is not None and time.monotonic() < due):
            return due
        silent = kernel.inspect(NO_TABLE, every / 2).failed
        for line in silent:
            self._log.write("error", detail=f"no sign of life to the service manager: {line}")
        if not silent:
            self._manager.is_alive()
        return time.monotonic() + every

    def _look(self, kernel: Kernel) -> None:
        """Report that everything is up, once."""
        # The state alone is not enough: an engine's state says "running" a moment before its event is logged.
        states = kernel.engine_states()
        if self._ready or not all(state.came_up() and state.name in self._told for state in states):
            return
        self._ready = True
        end_start()
        self._log.write("ready", detail=self._file)
        self._manager.is_ready(f"{self._file}: all engines are up")
        # The parent may have closed its end: the system runs.
        if self._ready_fd is not None:
            with contextlib.suppress(OSError), os.fdopen(self._ready_fd, "w") as ready:
                ready.write("ready\n")

    def _reload(self, kernel: Kernel) -> None:
        """Apply the changes of the file, or log why not."""
        self._manager.reloads()
        try:
            self._apply(kernel)
        finally:
            # Also after mistakes: the system runs as before.
            self._manager.is_ready(f"{self._file}: read again; the log has what has changed")

    def _apply(self, kernel: Kernel) -> None:
        try:
            plan = load_plan(self._file, self._registry)
            self._warn(plan)
            # Here and not in a thread of an engine: it waits for the threads that it removes.
            changes = kernel.apply(plan)
        except PlanError as error:
            for complaint in error.complaints:
                self._log.write("error", detail=complaint)
            self._log.write("unchanged", detail=f"{self._file} has mistakes")
        # In the middle of the changes.  Those before it stay; the next SIGHUP compares with what runs then.
        except KernelError as error:
            self._log.write("error", detail=str(error))
        else:
            for line in changes:
                self._log.write("changed", detail=line)
            self._log.write("reloaded", detail=f"{self._file}: changes: {len(changes)}")


@contextlib.contextmanager
def _signals(requests: Requests) -> Any:
    """Turn signals into requests.  A second signal to stop ends the process at once."""
    stopping_since: list[float] = []

    def on_signal(number: int, frame: Any) -> None:
        if number != signal.SIGHUP:
            now = time.monotonic()
            if stopping_since:
                # With the default action the signal ends the process, and its parent sees by which signal.
                if now - stopping_since[0] > _ECHO:
                    signal.signal(number, signal.SIG_DFL)
                    os.kill(os.getpid(), number)
                return
            stopping_since.append(now)
        requests.put(signal.Signals(number).name)

    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, on_signal) for number in numbers}
    # A full socket is no fault: the main thread is rung for already.
    fd_before = signal.set_wakeup_fd(requests.wakeup_fd, warn_on_full_buffer=False)
    try:
        yield
    finally:
        signal.set_wakeup_fd(fd_before, warn_on_full_buffer=False)
        if stopping_since:
            # With the former actions in place, an echo would make a parent believe that the signal has killed
            # a program that has stopped cleanly.
            for number in (signal.SIGINT, signal.SIGTERM):
                before[number] = _after_an_echo(stopping_since[0], before[number])
            atexit.register(_ignore_an_echo, stopping_since[0])
        for number, handler in before.items():
            signal.signal(number, handler)


def _after_an_echo(since: float, handler: Any) -> Callable[[int, Any], None]:
    """Return a signal handler that becomes ``handler`` once the echo of the first signal is over."""

    def on_signal(number: int, frame: Any) -> None:
        if time.monotonic() - since > _ECHO:
            signal.signal(number, handler)
            os.kill(os.getpid(), number)

    return on_signal


def _ignore_an_echo(since: float) -> None:
    # Python's last step before it exits is to give all signals with a handler their default action.
    if time.monotonic() - since <= _ECHO:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
