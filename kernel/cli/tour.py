"""``kernel tour``: follows one message through a running system; prints each hop with file, line and time.

A walk says what is sent and which functions are shown; plugins bring walks (``register_walks``).  The tracer
records *every* call into the project's code between the sending and the arrival, and not only calls of the
functions that are shown.  So no part of the path is hidden: the number of calls in between stands beside each
hop, and ``--all`` prints them.

Threads call the tracer through ``sys.setprofile``, which costs a message several times its normal time.  The
order of the calls and their number are exact; the times compare hops with each other, and no more.
docs/follow_one_message.md has the walks of this project, and a test holds its numbers.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from kernel.contracts.counts import counted
from kernel.contracts.errors import KernelClosed, TimedOut, UnknownName, nearest
from kernel.contracts.walk import Hop, Walk

if TYPE_CHECKING:
    from kernel.topology.system import Kernel

QUIET = 0.05
"""Seconds without a call after which the system has gone to sleep, and the walk may begin."""
LONGEST_WAIT = 5.0
"""Seconds after which the walk begins although something still runs, such as a timer."""
ARRIVAL_TIMEOUT = 10.0
"""Seconds that a message may take to an application."""


class Call(NamedTuple):
    """One call, or return, that was recorded."""

    moment: float
    """Seconds of ``time.perf_counter``."""
    event: str
    """``call`` or ``return``."""
    file: str
    function: str
    line: int
    thread: str


class Seen(NamedTuple):
    """A hop as it happened."""

    hop: Hop
    line: int
    thread: str
    microseconds: float
    """Since the message was sent; tracing makes it several times longer than it is."""
    between: list[Call]
    """The calls into the project's code since the hop before, in the thread of this hop.

    They are what lies on the way.  What the thread of the hop before does after it has handed the message
    over (it looks for more, and goes to sleep) does not."""


class Tracer:
    """Records calls into the project's code, in every thread that is started while it is installed.

    Many threads call it at the same time.  Each step is one operation on a dictionary or a list, which the
    interpreter does as a whole: a lock would make the threads wait for each other and change what is seen.
    """

    def __init__(self, walk: Walk) -> None:
        self.walk = walk
        self.calls: list[Call] = []
        self._packages = _packages(walk)
        self._files: dict[str, str | None] = {}
        self._last = time.perf_counter()
        self._begun: float | None = None
        self._ended = False
        self._returns = {(hop.file, hop.function) for hop in walk.hops if hop.at_return}

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        """Record one event.  For ``sys.setprofile``; runs in the thread that is traced."""
        # The other events are calls of C functions.
        if event not in ("call", "return") or self._ended:
            return
        code = frame.f_code
        file = self._file(code.co_filename)
        if file is None:
            return
        # Before ``begin`` too: it waits until no thread has made a call for a while.
        self._last = moment = time.perf_counter()
        # A comprehension is a call of its own up to Python 3.11 only (PEP 709).
        if self._begun is None or code.co_name in ("<listcomp>", "<genexpr>", "<setcomp>", "<dictcomp>"):
            return
        function = code.co_qualname.replace(".<locals>", "")
        if event == "call" or (file, function) in self._returns:
            name = threading.current_thread().name
            self.calls.append(Call(moment, event, file, function, code.co_firstlineno, name))

    def begin(self) -> None:
        """Record calls from now on, in this thread too, as soon as the system sleeps.

        Otherwise the rest of an earlier message would be among the calls, and no thread would have to be
        woken, which is a part of the way.
        """
        deadline = time.perf_counter() + LONGEST_WAIT
        while (now := time.perf_counter()) < min(self._last + QUIET, deadline):
            time.sleep(max(self._last + QUIET - now, 0.001))
        self._begun = time.perf_counter()
        sys.setprofile(self)

    def end(self) -> None:
        """Record no more."""
        # The other threads go on calling the tracer: ``sys.setprofile`` is for this thread only.
        self._ended = True
        sys.setprofile(None)

    def seen(self) -> list[Seen]:
        """Find the hops in what was recorded, each after the one before.

        The hops after a missing one are left out.
        """
        found: list[Seen] = []
        between: list[Call] = []
        # One iterator for all hops, so that the search for a hop begins behind the one before: a function may
        # be a hop twice, as the doorbell of each thread is.
        calls = iter(self.calls)
        for hop in self.walk.hops:
            for call in calls:
                wanted = "return" if hop.at_return else "call"
                if (call.file, call.function, call.event) == (hop.file, hop.function, wanted):
                    microseconds = (call.moment - (self._begun or call.moment)) * 1e6
                    mine = [one for one in between if one.thread == call.thread]
                    found.append(Seen(hop, call.line, call.thread, microseconds, mine))
                    between = []
                    break
                if call.event == "call":
                    between.append(call)
            else:
                break
        return found

    def _file(self, path: str) -> str | None:
        """Return the name of a file of the project from its package's folder on; None for other files."""
        # Remembered, since a file is looked up at every call of a traced thread.
        if path not in self._files:
            package = next((package for package in self._packages if path.startswith(package)), None)
            # What this module does for a walk is not on the message's way.
            mine = package is not None and not path.endswith("kernel/cli/tour.py")
            self._files[path] = path[len(str(Path(package).parent)) + 1 :] if package and mine else None
        return self._files[path]

    @contextlib.contextmanager
    def application(self, kernel: Kernel, name: str) -> Iterator[_Application]:
        """Have an application receive in a thread of its own; close ``kernel`` at the end of the block."""
        application = _Application(kernel, name)
        application.thread.start()
        try:
            yield application
        finally:
            # The application waits in ``receive``, which raises ``KernelClosed`` now.
            kernel.close(linger=0)
            application.thread.join()


class _Application:
    """``kernel.contracts.walk.Application``."""

    def __init__(self, kernel: Kernel, name: str) -> None:
        self._kernel = kernel
        self._name = name
        self._arrived = threading.Semaphore(0)
        self.thread = threading.Thread(target=self._receive, name="application there")

    def wait(self) -> None:
        if not self._arrived.acquire(timeout=ARRIVAL_TIMEOUT):
            raise TimedOut(f"no message has arrived at {self._name!r} within {ARRIVAL_TIMEOUT:g} s")

    def _receive(self) -> None:
        # Opened here, because a channel belongs to the thread that opens it.
        with contextlib.suppress(KernelClosed), self._kernel.open(self._name) as channel:
            while True:
                channel.receive()
                self._arrived.release()


def follow(walk: Walk) -> list[Seen]:
    """Send one message and return its hops."""
    tracer = Tracer(walk)
    # For threads that start from now on: the walk starts all threads of its system.  This thread follows in
    # ``begin``, so that what it does before is not recorded.
    threading.setprofile(tracer)
    try:
        walk.follow(tracer)
    finally:
        tracer.end()
        threading.setprofile(None)
    return tracer.seen()


def size_of(seen: list[Seen]) -> tuple[int, int]:
    """Return how many calls lie on the way, the hops among them, and in how many files."""
    calls = sum(len(one.between) + (not one.hop.at_return) for one in seen)
    return calls, len({call.file for one in seen for call in one.between} | {one.hop.file for one in seen})


def _packages(walk: Walk) -> tuple[str, ...]:
    """Return the folders of the packages that the walk leads through, as their functions name them.

    ``__path__`` as it is, and not resolved: a function's file is named as it was imported, also where the
    package lies behind a symbolic link.
    """
    names = sorted({"kernel", *(hop.file.partition("/")[0] for hop in walk.hops)})
    return tuple(f"{folder}/" for name in names for folder in import_module(name).__path__)


@click.command(short_help="Follow one message through every hop.")
@click.argument("name", metavar="[WALK]", default="native")
@click.option("--all", "every", is_flag=True, help="Print every call between the hops as well.")
def command(name: str, every: bool) -> None:
    """Send one message and print the functions that it passes, with the number of calls between them.

    `kernel plugins` lists the walks.  The default is `native`: from an application to another one, in two
    kernels of this process with a TCP connection between them.  Tracing makes the message several times
    slower than it normally is.
    """
    from kernel.plugins import PluginRegistry

    walks = PluginRegistry.load().walks
    if name not in walks:
        raise UnknownName(f"there is no walk {name!r}; {nearest(name, list(walks))}")
    walk: Walk = walks[name].kind.load()
    seen = follow(walk)
    for number, (hop, line, thread, microseconds, between) in enumerate(seen, 1):
        if every:
            for call in between:
                click.echo(
                    click.style(f"     {call.file}:{call.line} {call.function}   ({call.thread})", dim=True)
                )
        click.echo(f"{number}. {click.style(f'{hop.file}:{line}', fg='cyan')} {hop.function}")
        calls = f"{counted(len(between), 'call')} in between"
        click.echo(f"   {hop.what}   ({thread}, {microseconds:,.0f} µs, {calls})")
    if len(seen) < len(walk.hops):
        raise click.ClickException(
            f"the message was not seen in {walk.hops[len(seen)].function}, the hop after the last one shown"
        )
    total, files = size_of(seen)
    click.echo(f"{counted(total, 'call')} in {counted(files, 'file')}")
