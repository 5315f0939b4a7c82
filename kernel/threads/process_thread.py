"""Process thread: a thread that hosts engines in a process of its own, as the process of the kernel sees it.

A small thread here, the *keeper*, starts the process, talks with it over a control wire, and starts it again
when it has ended.  What the process has to host (engines, legs of routes, link ends) is kept here as data,
and told to each new process.  The other half is ``kernel/topology/process.py``.

The process is started as a new interpreter, never forked: a fork would copy threads, locks and descriptors of
a running kernel.  Its command line has the name of the thread and the number of a descriptor.  All else it
gets over the wire, secrets included.  It ignores the signals that a terminal or a service manager sends to
all processes of a group, and stops when it is told to, or when the wire ends because this process has.

Threads: any thread calls the methods of ``ThreadApart``.  They change the data under the lock and send what
has changed to the present process, if there is one.  The keeper owns the wire and the process.
"""

from __future__ import annotations

import itertools
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

import msgspec

from kernel.contracts import errors
from kernel.contracts.engine import Engine, EngineEvent
from kernel.contracts.errors import KernelError
from kernel.contracts.protocol import Side
from kernel.contracts.thread import Done, Shown, ThreadSetup
from kernel.dispatcher.dispatcher import ThreadSlot
from kernel.hosting.backoff import Backoff
from kernel.pipes.mailbox import Mailbox
from kernel.threads.control_wire import ControlWire
from kernel.threads.options import ProcessOptions
from kernel.threads.supervisor import EngineState

if TYPE_CHECKING:
    from kernel.topology.plan import EnginePlan, RoutePlan

MODULE = "kernel.topology.process"
"""What the process runs."""

_GRACE = 5.0
"""Seconds that a process may take to end, beyond the time to linger, before it is killed."""
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""What a terminal or a service manager may send to all processes of a group."""

_log = logging.getLogger(__name__)


class ProcessThread:
    """``kernel.contracts.thread.ThreadApart``."""

    def __init__(self, setup: ThreadSetup) -> None:
        self.name: str = setup.name
        self._interpreter = _interpreter(setup.name)
        self.mailbox: Mailbox = Mailbox()
        self.slot: ThreadSlot = setup.dispatcher.add_thread(setup.name, self.mailbox)
        """Its row and column in the matrix.  No pipe of this process leads there."""
        self.states: dict[str, EngineState] = {}
        self._setup = setup
        self._options: ProcessOptions = setup.options
        self._lock = threading.RLock()
        # The working directory of this moment, from which relative paths of its engines begin.
        self._folder: str = _working_directory()
        # What the process has to host. Dicts keep the order in which it was added.
        self._engines: dict[str, dict[str, Any]] = {}
        self._legs: dict[str, tuple[str, Any]] = {}
        self._links: dict[str, tuple[str, str, str]] = {}
        self._wire: ControlWire | None = None
        self._up = False
        self._pid = 0
        self._numbers = itertools.count(1)
        self._calls: dict[int, Callable[[Done], Any]] = {}
        self._gone: dict[int, Callable[[], Any]] = {}
        self._woken = threading.Event()
        self.stopping: bool = False
        self._linger_until = 0.0
        self._end_by: float | None = None
        self._turns = 0
        self._keeper = threading.Thread(target=self._keep, name=f"kernel {setup.name}", daemon=True)

    # ------------------------------------------------------------------ for the system

    @property
    def number(self) -> int:
        """Its row and column in the matrix of pipes."""
        return self.slot.number

    @property
    def turns(self) -> int:
        """How many turns the thread in the process had taken when its figures were asked for last."""
        return self._turns

    @property
    def pid(self) -> int:
        """The number of the process; 0 while there is none.  Any thread."""
        return self._pid

    def start(self) -> None:
        """Start the process, and keep it running."""
        self._keeper.start()

    def add(self, name: str, make_engine: Callable[[], Engine], *, plan: EnginePlan | None = None) -> object:
        """Have the process host one more engine, which it makes from ``plan``."""
        if plan is None:
            raise KernelError(
                f"engine {name!r} is made by code of this process, and thread {self.name!r} is another process; "
                "name a thread of another kind"
            )
        with self._lock:
            # The data and the message under one lock: ``_begin`` tells a new process all data under it, so
            # that each process is told of an engine once.
            state = self.states[name] = EngineState(name)
            data = self._engines[name] = _data(plan)
            self._send("engine", data)
        return state

    def remove(self, name: str, on_gone: Callable[[], Any] | None = None, linger: float = 0.0) -> None:
        """Have the process stop an engine."""
        with self._lock:
            self.states.pop(name, None)
            self._engines.pop(name, None)
            number = next(self._numbers)
            if self._wire is not None:
                if on_gone is not None:
                    self._gone[number] = on_gone
                self._wire.send("remove", number, name, linger)
                return
        # Without a process nothing of the engine is left anywhere.  Outside of the lock, since this is code
        # of others.
        if on_gone is not None:
            on_gone()

    def add_leg(self, name: str, label: str, plan: RoutePlan) -> None:
        """Add a leg of a route there."""
        with self._lock:
            self._legs[name] = (label, _data(plan))
            self._send("leg", name, *self._legs[name])

    def remove_leg(self, name: str) -> None:
        """Remove a leg."""
        with self._lock:
            del self._legs[name]
            self._send("remove leg", name)

    def add_link(self, name: str, port: str, peer: str, side: Side) -> None:
        """Make a link end there."""
        with self._lock:
            self._links[name] = (port, peer, side)
            self._send("link", name, port, peer, side)

    def remove_link(self, name: str) -> None:
        """Remove a link end."""
        with self._lock:
            del self._links[name]
            self._send("remove link", name)

    def give(self, link: str, pair: int, connected: socket.socket) -> None:
        """Hand a socket over."""
        with self._lock:
            if self._wire is None:
                # No socket is kept for later: the border makes new pairs when the next process has come up.
                connected.close()
            else:
                self._wire.send("socket", link, pair, descriptor=connected.detach())

    def counters(self, engine: str) -> dict[str, Any]:
        """Return nothing: the counters of its engines come with its statistics."""
        return {}

    def statistics(self, timeout: float) -> dict[str, Any] | None:
        """Ask the process for its figures."""
        answers: SimpleQueue[Done] = SimpleQueue()
        # Before it is up the process does not read, and the caller would wait for the whole time.
        if not self._up or not self._call(answers.put, "statistics"):
            return None
        try:
            answer, failure = answers.get(timeout=timeout)
        # The answer may still come.  Then it goes into a queue that nobody reads.
        except Empty:
            return None
        if failure is not None:
            return None
        self._turns = sum(row["turns"] for row in answer["threads"])
        figures: dict[str, Any] = answer
        return figures

    def inspect(self, what: str, answer: Callable[[Shown], Any]) -> None:
        """Ask the process; if there is none, the answer says so."""

        def shown(done: Done) -> None:
            rows, failure = done
            if failure is not None:
                answer((self.name, [], [f"thread {self.name}: {failure}"]))
            else:
                answer((self.name, rows[1], rows[2]))

        # An empty name is no question, but wakes a thread (``Lingering``).
        if not what:
            answer((self.name, [], []))
        elif not self._call(shown, "inspect", what):
            answer((self.name, [], [f"thread {self.name}: its process does not run now"]))

    def operate(self, engine: str, what: str, argument: Any, answer: Callable[[Done], Any]) -> None:
        """Pass the operation on."""
        state = self.states.get(engine)
        if state is None:
            raise KernelError(f"there is no engine {engine!r}")
        if state.state != "running" or not self._call(answer, "operate", engine, what, argument):
            raise KernelError(f"engine {engine!r} ({state.state}) has no operations to ask for")

    def hand_over(self, engine: str, what: Mapping[str, Any], connected: socket.socket) -> None:
        """Pass the connection on.  If the process ends before it has it, the peer sees the end."""
        state = self.states.get(engine)
        with self._lock:
            if state is None or state.state != "running" or self._wire is None:
                # Raised before ``detach``: the socket is still that of the caller, who has to close it.
                raise KernelError(f"engine {engine!r} is not running")
            self._wire.send("connection", engine, what, descriptor=connected.detach())

    def take_options(self, engine: str, options: Any, answer: Callable[[Done], Any]) -> None:
        """Pass changed options on."""
        state = self.states.get(engine)
        data = msgspec.to_builtins(options)
        with self._lock:
            # Also if the process cannot be asked now: the next one begins with these options.
            if engine in self._engines:
                self._engines[engine]["options"] = data
        if state is None or state.state != "running" or not self._call(answer, "options", engine, data):
            raise KernelError(f"engine {engine!r} is not running, or takes no options while it runs")

    def look(self, answer: Callable[[dict[str, Any] | None], Any]) -> bool:
        """Ask whether the process is at rest."""
        # One that is not up hosts nothing yet: what it was sent is carried out behind that.
        return self._up and self._call(lambda done: answer(None if done[1] else done[0]), "look")

    def pending(self) -> bool:
        """Whether a process may still have something to write."""
        return self._keeper.is_alive() and not self._setup.at_rest()

    def linger(self, seconds: float, may_stop: Callable[[], bool]) -> None:
        """Do not start the process again.  The border of the kernel asks it, and calls ``stop``."""
        self._linger_until = time.monotonic() + seconds
        self._woken.set()

    def stop(self) -> None:
        """Have the process end; it is killed if it does not."""
        with self._lock:
            if self.stopping:
                return
            self.stopping = True
            left = max(self._linger_until - time.monotonic(), 0.0)
            self._end_by = time.monotonic() + left + _GRACE
            self._send("close", left)
        self._woken.set()

    def join(self, timeout: float | None = None) -> bool:
        """Wait until the process has ended."""
        # A thread that was never started cannot be joined.  It is one of a plan whose start has failed.
        if self._keeper.ident is not None:
            self._keeper.join(timeout)
        return not self._keeper.is_alive()

    def dispose(self) -> None:
        """Close the descriptors."""
        self.mailbox.bell.close()

    # ------------------------------------------------------------------ questions

    def _send(self, *message: Any) -> None:
        """Send to the present process, if there is one.  Under the lock."""
        if self._wire is not None:
            self._wire.send(*message)

    def _call(self, answer: Callable[[Done], Any], *question: Any) -> bool:
        """Ask the process; ``answer`` is called by the keeper.  False: there is no process."""
        with self._lock:
            if self._wire is None:
                return False
            number = next(self._numbers)
            # ``_forget`` takes the calls under this lock.  So each call is answered by the process or by
            # ``_forget``.
            self._calls[number] = answer
            self._wire.send(question[0], number, *question[1:])
            return True

    # ------------------------------------------------------------------ the keeper

    def _keep(self) -> None:
        # The process inherits this, until it ignores these signals itself. Python calls handlers in the main
        # thread.
        signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        backoff = Backoff(self._options.restart)
        while not self._over():
            began = time.monotonic()
            try:
                reason = self._live()
            except Exception as error:
                # A fault of the kernel: the process is started again all the same.
                _log.exception("thread %s", self.name)
                reason = f"{type(error).__name__}: {error}"
            # Its end was wanted, so it is no failure of its engines.
            if self._over():
                break
            backoff.lasted(time.monotonic() - began)
            wait = backoff.next_wait()
            self._tell_lost(reason, wait)
            self._woken.wait(wait)
        # A copy: another thread may be removing an engine.
        for state in list(self.states.values()):
            if state.state != "ended":
                state.state = "stopped"

    def _over(self) -> bool:
        return self.stopping or self._linger_until > 0

    def _live(self) -> str:
        """Start a process, serve it until it ends, and return why it has ended."""
        ours, theirs = socket.socketpair()
        try:
            process = self._spawn(theirs)
        except OSError as error:
            ours.close()
            # There may be no memory or no descriptor now.  It is tried again like one that has ended.
            return f"its process cannot be started: {error}"
        finally:
            # The process has a copy.  With this one open the wire would not end with the process.
            theirs.close()
        wire = ControlWire(ours, descriptors=False)
        try:
            self._begin(wire, process.pid)
            late = self._serve(wire, process)
        except KernelError as error:
            # It is not asked to end: nothing that it says can be relied on.
            process.kill()
            late = f"its process ({process.pid}) was ended: {error}"
        finally:
            self._forget(wire)
            code = _ended(process)
        if late:
            return late
        return f"its process ({process.pid}) {_why(code)}"

    def _spawn(self, theirs: socket.socket) -> subprocess.Popen[bytes]:
        descriptor = theirs.fileno()
        return subprocess.Popen(
            # -P: no folder is put in front of the path. The path is that of this process.
            [self._interpreter, "-P", "-m", MODULE, str(descriptor), self.name],
            stdin=subprocess.DEVNULL,
            pass_fds=(descriptor,),
            cwd=self._folder if os.path.isdir(self._folder) else None,
            # An empty entry of the path stands for the working directory.
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path or self._folder for path in sys.path)},
        )

    def _begin(self, wire: ControlWire, pid: int) -> None:
        with self._lock:
            wire.send(
                "begin",
                {
                    "name": self.name,
                    "options": _of_its_thread(self._options),
                    "pythonpath": os.environ.get("PYTHONPATH"),
                    "plugins": dict(self._setup.plugins),
                    "log_level": logging.getLogger().getEffectiveLevel(),
                },
            )
            # Links before legs: one that begins at a link is a second leg (``Process._add_leg``).  Legs
            # before engines, whose first messages need the routes.
            for link, end in self._links.items():
                wire.send("link", link, *end)
            for leg, plan in self._legs.items():
                wire.send("leg", leg, *plan)
            for name, engine in self._engines.items():
                state = self.states[name]
                state.state, state.running_since = "starting", None
                wire.send("engine", engine)
            # Last: from now on other threads send what changes, behind all of that.
            self._wire, self._pid = wire, pid
            if self.stopping:
                # ``stop`` had no wire to say it on.
                wire.send("close", 0.0)

    def _serve(self, wire: ControlWire, process: subprocess.Popen[bytes]) -> str:
        """Carry out what the process sends until it ends.

        Return why it had to be killed; empty if it was not.  Raises ``KernelError`` if it
        sends what is no message.
        """
        start_by: float | None = time.monotonic() + self._options.start_timeout
        late = ""
        while True:
            if self._up:
                start_by = None
            deadlines = [each for each in (start_by, self._end_by) if each is not None]
            left = min(deadlines) - time.monotonic() if deadlines else None
            # ``stop`` sends a message, which wakes the wire, and sets ``_end_by`` before.
            messages = wire.turn(left)
            if messages is None:
                return late
            for message in messages:
                self._carry_out(message)
            now = time.monotonic()
            if start_by is not None and now >= start_by and not self._up:
                late = f"its process ({process.pid}) did not come up within {self._options.start_timeout:g} s"
                process.kill()
                start_by = None
            if self._end_by is not None and now >= self._end_by:
                # An engine does not end when it is told to.  The wire ends with the process, and so does this
                # loop.
                process.kill()
                self._end_by = None

    def _carry_out(self, message: list[Any]) -> None:
        what, *arguments = message
        try:
            _MESSAGES[what](self, *arguments)
        except Exception:
            # Of a callback: it must not end the keeper, which serves others too.
            _log.exception("thread %s: %s", self.name, what)

    def _on_up(self) -> None:
        self._up = True
        self._setup.changed("up")

    def _on_lost_link(self, link: str, pair: int) -> None:
        self._setup.renew(link, pair)

    def _on_event(self, event: dict[str, Any], state: dict[str, Any] | None) -> None:
        mine = self.states.get(event["engine"])
        if mine is not None and state is not None:
            mine.address, mine.failures = state["address"], state["failures"]
            mine.last_failure, mine.next_try = state["last_failure"], state["next_try"]
            mine.running_since = time.monotonic() if state["came_up"] else None
            # Last: whoever sees the state finds the rest.
            mine.state = state["state"]
        # Also of an engine that was removed meanwhile: its end is an event, too.
        self._setup.report(msgspec.convert(event, EngineEvent))

    def _on_answer(self, number: int, answer: Any, failure: list[str] | None) -> None:
        with self._lock:
            call = self._calls.pop(number, None)
        if call is not None:
            call((answer, None if failure is None else _error(*failure)))

    def _on_gone(self, number: int) -> None:
        with self._lock:
            gone = self._gone.pop(number, None)
        if gone is not None:
            gone()

    def _on_log(self, record: dict[str, Any]) -> None:
        made = logging.makeLogRecord(record)
        logger = logging.getLogger(made.name)
        # The process knows the level of the root logger only.  Those of others are set here.
        if logger.isEnabledFor(made.levelno):
            logger.handle(made)

    def _forget(self, wire: ControlWire) -> None:
        """There is no process any more: answer for it."""
        with self._lock:
            self._wire, self._up, self._pid = None, False, 0
            calls, self._calls = self._calls, {}
            gone, self._gone = self._gone, {}
        wire.close()
        self._setup.changed("down")
        for call in calls.values():
            self._guard(partial(call, (None, KernelError(f"the process of thread {self.name!r} has ended"))))
        for on_gone in gone.values():
            self._guard(on_gone)

    def _guard(self, call: Callable[[], Any]) -> None:
        try:
            call()
        except Exception:
            _log.exception("thread %s", self.name)

    def _tell_lost(self, reason: str, wait: float) -> None:
        for state in list(self.states.values()):
            state.state, state.next_try, state.running_since = "failed", wait, None
            state.failures += 1
            state.last_failure = reason
            self._setup.report(EngineEvent(engine=state.name, what="failed", detail=reason, next_try=wait))
        # The thread has no engine that could have failed, and an operator has to learn of it all the same.
        if not self.states:
            self._setup.report(EngineEvent(engine=self.name, what="failed", detail=reason, next_try=wait))


_MESSAGES: dict[str, Callable[..., Any]] = {
    "up": ProcessThread._on_up,
    "lost": ProcessThread._on_lost_link,
    "event": ProcessThread._on_event,
    "answer": ProcessThread._on_answer,
    "gone": ProcessThread._on_gone,
    "log": ProcessThread._on_log,
}


def _data(plan: Any) -> dict[str, Any]:
    """Return a plan as plain data."""
    data: dict[str, Any] = msgspec.to_builtins(plan, builtin_types=_BUILT_IN)
    return data


_BUILT_IN = (bytes, bytearray)
"""Types that msgpack has and JSON has not."""


def _error(kind: str, text: str) -> Exception:
    """Return the error that an engine has raised: of its own class if it is one of the kernel's."""
    found = getattr(errors, kind, None)
    # A ``PlanError`` is made from a list of complaints, and here is one text.
    if isinstance(found, type) and issubclass(found, KernelError) and found is not errors.PlanError:
        return found(text)
    return KernelError(text if kind == "KernelError" else f"{kind}: {text}")


def _of_its_thread(options: ProcessOptions) -> dict[str, Any]:
    """Return the options of the poll thread there."""
    spin = {} if options.spin is None else {"spin": options.spin}
    return {"cpus": options.cpus, **spin}


def _interpreter(thread: str) -> str:
    """Return the path of the interpreter; ``KernelError`` if there is none."""
    # A program that embeds Python says with ``multiprocessing.set_executable`` what is to be started.  If it
    # has, the module is there; to import it here would take 8 ms.
    spawn = sys.modules.get("multiprocessing.spawn")
    program = os.fsdecode((spawn.get_executable() if spawn else sys.executable) or "")
    if not program or (getattr(sys, "frozen", False) and program == sys.executable):
        # A frozen program would start itself, and that one again itself.
        raise KernelError(
            f'thread {thread!r}: kind = "process" starts a Python interpreter, and '
            f"{program or 'this program'} is none; name one with multiprocessing.set_executable, or take another kind"
        )
    return program


def _working_directory() -> str:
    try:
        return os.getcwd()
    except OSError:  # it was removed
        return ""


def _ended(process: subprocess.Popen[bytes]) -> int:
    """Wait for the end of a process whose wire has ended, and return its code."""
    try:
        return process.wait(_GRACE)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()


def _why(code: int) -> str:
    if code >= 0:
        return f"has ended with exit status {code}"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"
