"""Child processes: each side of a measurement runs in processes of its own, which are always reaped."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import resource
import signal
import threading
import time
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection, wait
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from benchmarks.scenario import Figures, Unavailable

TIMEOUT = 120.0
"""Seconds after which a measurement that does not end is given up."""

WARM = 500
"""Round trips that are made before the clock counts."""

_CONTEXT = multiprocessing.get_context("spawn")  # a fresh interpreter each: nothing is inherited
PR_SET_PDEATHSIG = 1

Role = Callable[..., Any]
"""Runs in the child; its first argument is the connection to the parent."""


class Child:
    """A process that runs a role.  Leaving the ``with`` block ends it."""

    def __init__(self, role: Role, *arguments: Any, cpu: int | None = None) -> None:
        """``cpu``: which of the processors that there are it runs on, the first being 0 and the last -1."""
        self._link, theirs = _CONTEXT.Pipe()
        self._process = _CONTEXT.Process(target=_run, args=(role, theirs, arguments, cpu), daemon=True)
        self._process.start()
        theirs.close()
        self.role = role.__name__

    @property
    def pid(self) -> int:
        """The number of the process."""
        assert self._process.pid is not None
        return self._process.pid

    def hear(self, partner: Child | None = None, seconds: float = TIMEOUT) -> Any:
        """Return the next thing that the child says; give up when its partner fails."""
        sources: list[Any] = [self._link, partner._process.sentinel] if partner else [self._link]
        ready = wait(sources, seconds)
        if partner and self._link not in ready:
            partner._check()
            ready = wait([self._link], seconds)
        if not ready:
            raise Unavailable(f"{self.role}: no answer within {seconds:.0f} s")
        try:
            said = self._link.recv()
        except EOFError:
            self._process.join(5)
            raise Unavailable(f"{self.role}: ended with status {self._process.exitcode}") from None
        if isinstance(said, Unavailable):
            raise said
        return said

    def say(self, what: Any) -> None:
        """Tell the child something; harmless when it is gone."""
        try:
            self._link.send(what)
        except OSError:
            pass

    def _check(self) -> None:
        """Raise if the process has failed."""
        if self._link.poll():
            self.hear()  # it may say why
        if self._process.exitcode:
            raise Unavailable(f"{self.role}: ended with status {self._process.exitcode}")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.say(None)  # for those that wait for the end
        self._process.join(0 if error else 10)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()
        self._link.close()


def _run(role: Role, link: Connection, arguments: Sequence[Any], cpu: int | None) -> None:
    if cpu is not None and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, processor(cpu))
    end_with_parent()
    try:
        role(link, *arguments)
    except (Unavailable, ImportError) as why:
        link.send(Unavailable(str(why)))


def processor(cpu: int) -> set[int]:
    """Return one processor of those that there are, the first being 0 and the last -1.  Linux."""
    return {sorted(os.sched_getaffinity(0))[cpu]}


def end_with_parent() -> None:
    """Have this process killed when its parent is: no benchmark stays behind and disturbs the next."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def allow_descriptors(count: int) -> None:
    """Let this process, and those that it starts, open so many connections."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = count + 200
    if soft < wanted:
        if hard != resource.RLIM_INFINITY and hard < wanted:
            raise Unavailable(f"{wanted} descriptors are needed, the system allows {hard}")
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def resident() -> int:
    """Return the bytes of this process that are in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def one_way(receiver: Role, sender: Role, *arguments: Any) -> Figures:
    """Run a receiver and a sender; return the rate that the receiver saw.

    The receiver says where it listens, then how many messages a second it got from its first to its last.
    """
    with Child(receiver, *arguments) as receiving:
        place = receiving.hear()
        with Child(sender, place, *arguments) as sending:
            return {"rate": receiving.hear(sending)}


def round_trip(echo: Role, asker: Role, *arguments: Any) -> Figures:
    """Run an echo and an asker; return the percentiles of what the asker measured.

    Each has its own processor if there are two, as two computers would have: if the system puts both on one,
    the result differs by a factor of three and more, for every side alike.
    """
    with Child(echo, *arguments, cpu=-1) as echoing:
        place = echoing.hear()
        with Child(asker, place, *arguments, cpu=0) as asking:
            return percentiles(asking.hear(echoing))


class Arrivals:
    """Messages that a client library hands over in its own thread: they are counted, and the time taken."""

    def __init__(self, count: int) -> None:
        self._count = self._left = count
        self._first = self._last = 0.0
        self._done = threading.Event()

    def one_more(self) -> None:
        """Count one."""
        if self._left == self._count:
            self._first = time.perf_counter()
        self._left -= 1
        if not self._left:
            self._last = time.perf_counter()
            self._done.set()

    def rate(self, seconds: float) -> float:
        """Wait for all of them; return how many came in a second, from the first on."""
        if not self._done.wait(seconds):
            raise Unavailable(f"{self._left} of {self._count} messages have not come within {seconds:g} s")
        return (self._count - 1) / (self._last - self._first)


def percentiles(nanoseconds: list[int]) -> Figures:
    """Return the median, and the 99th and 99.9th percentile, in microseconds."""
    ordered = sorted(nanoseconds)
    parts = {"p50": 0.50, "p99": 0.99, "p999": 0.999}
    return {name: ordered[int(len(ordered) * part)] / 1000 for name, part in parts.items()}


def time_calls(call: Callable[[], Any], count: int, warm: int = WARM) -> list[int]:
    """Call something ``count`` times, after ``warm`` calls; return the nanoseconds of each counted call."""
    clock = time.perf_counter_ns
    for _ in range(warm):
        call()
    taken = []
    for _ in range(count):
        start = clock()
        call()
        taken.append(clock() - start)
    return taken
