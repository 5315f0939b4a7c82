"""``kernel tour``: one message through every hop, with file, line and time, from a live run.

A walk says what is sent and which functions are worth a look; plugins bring them (``register_walks``).  The
tracer notes *every* call into the project's code between the sending and the arrival, so that no hop between
two that are shown can hide: their number stands beside each hop, and ``--all`` prints them.
"""

from __future__ import annotations

import sys
import threading
import time
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import click

from kernel.contracts.errors import UnknownName
from kernel.contracts.walk import Hop, Walk

QUIET = 0.05
"""Seconds without a call after which the system has gone to sleep, and the walk may begin."""
LONGEST_WAIT = 5.0


class Call(NamedTuple):
    """One call, or return, that was noted."""

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
    """The calls into the project's code since the hop before, in the thread of this hop: what lies on the
    way.

    What the thread before does after it has handed the message over (it looks for more, and goes to sleep)
    does not."""


class Tracer:
    """Notes calls into the project's code, in every thread that is started while it is installed."""

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
        """For ``sys.setprofile``."""
        if event not in ("call", "return") or self._ended:
            return
        code = frame.f_code
        file = self._file(code.co_filename)
        if file is None:
            return
        self._last = moment = time.perf_counter()
        if self._begun is None or code.co_name in ("<listcomp>", "<genexpr>", "<setcomp>", "<dictcomp>"):
            return  # a comprehension is a call in some versions of Python only
        function = code.co_qualname.replace(".<locals>", "")
        if event == "call" or (file, function) in self._returns:
            name = threading.current_thread().name
            self.calls.append(Call(moment, event, file, function, code.co_firstlineno, name))

    def begin(self) -> None:
        """Start taking notes, in this thread too, as soon as the system sleeps."""
        deadline = time.perf_counter() + LONGEST_WAIT
        while (now := time.perf_counter()) < min(self._last + QUIET, deadline):
            time.sleep(max(self._last + QUIET - now, 0.001))
        self._begun = time.perf_counter()
        sys.setprofile(self)

    def end(self) -> None:
        """Stop taking notes."""
        self._ended = True
        sys.setprofile(None)

    def seen(self) -> list[Seen]:
        """Find the hops in what was noted, each after the one before.

        Those behind a hop that is missing are left out.
        """
        found: list[Seen] = []
        between: list[Call] = []
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
        if path not in self._files:
            package = next((package for package in self._packages if path.startswith(package)), None)
            mine = package is not None and not path.endswith("kernel/cli/tour.py")
            self._files[path] = path[len(str(Path(package).parent)) + 1 :] if package and mine else None
        return self._files[path]


def follow(walk: Walk) -> list[Seen]:
    """Send one message and return its hops."""
    tracer = Tracer(walk)
    threading.setprofile(tracer)
    try:
        walk.follow(tracer.begin, tracer.end)
    finally:
        tracer.end()
        threading.setprofile(None)
    return tracer.seen()


def size_of(seen: list[Seen]) -> tuple[int, int]:
    """Return how many calls lie on the way, the hops among them, and in how many files."""
    calls = sum(len(one.between) + (not one.hop.at_return) for one in seen)
    return calls, len({call.file for one in seen for call in one.between} | {one.hop.file for one in seen})


def _packages(walk: Walk) -> tuple[str, ...]:
    """Return the folders of the packages that the walk leads through, as their functions name them."""
    names = sorted({"kernel", *(hop.file.partition("/")[0] for hop in walk.hops)})
    return tuple(f"{folder}/" for name in names for folder in import_module(name).__path__)


@click.command(short_help="Follow one message through every hop.")
@click.argument("name", metavar="[WALK]", default="native")
@click.option("--all", "every", is_flag=True, help="Print every call between the hops as well.")
def command(name: str, every: bool) -> None:
    """Send one message and print the functions that see it, with the number of calls between them.

    `kernel plugins` lists the walks; without one it is `native`: from an application to another, between two
    kernels in this process with a tcp connection between them.  Tracing makes it several times slower than it
    is.
    """
    from kernel.plugins import PluginRegistry
    from kernel.topology.option_check import nearest

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
        calls = f"{len(between)} call{'s' * (len(between) != 1)} in between"
        click.echo(f"   {hop.what}   ({thread}, {microseconds:,.0f} µs, {calls})")
    if len(seen) < len(walk.hops):
        raise click.ClickException(f"lost sight of the message before {walk.hops[len(seen)].function}")
    total, files = size_of(seen)
    click.echo(f"{total} calls in {files} files")
