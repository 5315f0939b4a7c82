"""Thread: what hosts engines, as the system sees it.

The system uses a thread and its engines through these methods only, and what they return is data.  Nobody
else touches the engines, the mailbox or the ports.  So a thread may also be in another process.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias
from typing import Protocol as Interface

import msgspec

from kernel.contracts.engine import Engine, EngineEvent

if TYPE_CHECKING:
    import socket

    import trio

    from kernel.contracts.protocol import Side
    from kernel.dispatcher.dispatcher import Dispatcher
    from kernel.topology.plan import EnginePlan, RoutePlan


def _ignore(*_: object) -> None:
    """Do nothing."""


def _never() -> bool:
    return False


Rows: TypeAlias = list[dict[str, Any]]
Shown: TypeAlias = tuple[str, Rows, list[str]]
"""The answer of a thread to ``inspect``: its name; the rows, each of which begins with the name of its
engine; and a sentence for each engine that could not answer."""
Done: TypeAlias = tuple[Any, Exception | None]
"""The result of an operation, and what the engine raised, if anything."""


NEVER_STARTED = "its method `run` has not called task_status.started()"
"""Why an engine does not count as running: what the log and errors say."""


class EngineStatus(Interface):
    """The state of an engine.  Written by its thread, read by any thread."""

    @property
    def name(self) -> str:
        """The name of the engine."""
        ...

    @property
    def state(self) -> str:
        """``starting``, ``running``, ``failed`` (waiting for its next try), ``ended`` or ``stopped``."""
        ...

    @property
    def address(self) -> str:
        """The address that the engine reported when it became usable; empty before."""
        ...

    @property
    def failures(self) -> int:
        """How often it has failed."""
        ...

    @property
    def last_failure(self) -> str:
        """Why it failed last."""
        ...

    @property
    def next_try(self) -> float | None:
        """Seconds that it waits, or waited, before the next try."""
        ...

    def came_up(self) -> bool:
        """Return whether it is running, or has run and ended by itself, as a replay does."""
        ...


# Answers come by callbacks, and any thread may call them: those of a thread in another process are read by
# the keeper of that process.
class EngineThread(Interface):
    """A thread that hosts engines.  Any thread may call its methods.  Only ``join`` waits."""

    name: str

    @property
    def number(self) -> int:
        """Its row and column in the matrix of pipes."""
        ...

    @property
    def states(self) -> Mapping[str, EngineStatus]:
        """The states of its engines, by name."""
        ...

    @property
    def turns(self) -> int:
        """The number of turns that it has taken."""
        ...

    def start(self) -> None:
        """Start the thread."""
        ...

    def add(self, name: str, make_engine: Callable[[], Engine], *, plan: EnginePlan | None = None) -> object:
        """Host one more engine.

        ``make_engine`` is called in this thread, again after each failure.  A thread in another process
        cannot call it: it makes the engine from ``plan``, and raises ``KernelError`` if there is none.
        """
        ...

    def remove(self, name: str, on_gone: Callable[[], Any] | None = None, linger: float = 0.0) -> None:
        """Stop an engine.  Another one of that name may be added at once; it starts when this one has ended.

        The engine has ``linger`` seconds to write what it has.  ``on_gone()`` is called by any thread when it
        has ended.
        """
        ...

    def counters(self, engine: str) -> dict[str, Any]:
        """Return the counters of an engine; empty while it is not running."""
        ...

    def inspect(self, what: str, answer: Callable[[Shown], Any]) -> None:
        """Ask all engines for the rows of a table.  ``answer`` is called once, by any thread."""
        ...

    def operate(self, engine: str, what: str, argument: Any, answer: Callable[[Done], Any]) -> None:
        """Call an operation of an engine.  ``answer`` is called once, by any thread.

        Raises ``KernelError`` at once if the engine does not exist or has no operations.
        """
        ...

    def hand_over(self, engine: str, what: Mapping[str, Any], connected: socket.socket) -> None:
        """Give a running engine a connection (``TakesOver``).  It owns the socket from now on.

        Raises ``KernelError`` at once if the engine is not running, or takes none; the socket is the caller's
        then.
        """
        ...

    def take_options(self, engine: str, options: Any, answer: Callable[[Done], Any]) -> None:
        """Give a running engine changed options (``TakesOptions``).

        ``answer`` is called once, by any thread.

        Raises ``KernelError`` at once if the engine is not running.
        """
        ...

    def pending(self) -> bool:
        """Return whether an engine still has something to write.  Not exact while the thread is working."""
        ...

    def linger(self, seconds: float, may_stop: Callable[[], bool]) -> None:
        """Stop as soon as ``may_stop()`` is true, at the latest after ``seconds``.

        It is called after each turn.
        """
        ...

    def stop(self) -> None:
        """Stop at the end of the present turn."""
        ...

    def join(self, timeout: float | None = None) -> bool:
        """Wait until the thread has ended; False if it has not within ``timeout`` seconds."""
        ...

    def dispose(self) -> None:
        """Close the descriptors of a thread that has ended, while the rest of the system goes on."""
        ...


class GuestThread(EngineThread, Interface):
    """A thread that is a task in the application's own trio run."""

    async def serve(self, *, task_status: trio.TaskStatus[None]) -> None:
        """Host engines until the kernel is closed."""
        ...


class ThreadApart(EngineThread, Interface):
    """A thread in another process (``ThreadKind.apart``).

    It makes its engines from their plans.  Routes that lead there, or begin there, have legs: the part of a
    route in one process.  A link joins two legs; its ends get sockets that the system has made
    (``topology/border.py``).
    """

    @property
    def stopping(self) -> bool:
        """Whether ``stop`` was called.  Any thread."""
        ...

    def add_leg(self, name: str, label: str, plan: RoutePlan) -> None:
        """Add a route between engines and link ends there.

        ``name`` is for ``remove_leg``, ``label`` is shown.
        """
        ...

    def remove_leg(self, name: str) -> None:
        """Remove a leg.  If it begins at a link end, it is removed when that end has passed on what came."""
        ...

    def add_link(self, name: str, port: str, peer: str, side: Side) -> None:
        """Make a link end.  It has the name of an engine; ``port`` is the name of its port."""
        ...

    def remove_link(self, name: str) -> None:
        """Remove a link end, as soon as it has passed on what came."""
        ...

    def give(self, link: str, pair: int, connected: socket.socket) -> None:
        """Give a link end there its socket of a pair.  This process must not use it any more."""
        ...

    def statistics(self, timeout: float) -> dict[str, Any] | None:
        """Return the figures of the process (``SystemStatistics``) as plain data.

        None if it does not answer.
        """
        ...

    def look(self, answer: Callable[[dict[str, Any] | None], Any]) -> bool:
        """Ask whether the process has anything left to write (``topology/border.py``).

        ``answer`` is called by any thread, with None if it has.  False: there is no process to ask.
        """
        ...


class ThreadSetup(msgspec.Struct, frozen=True, kw_only=True):
    """The argument of ``ThreadKind.create``."""

    name: str
    """The thread's name in the topology."""
    options: Any
    """An instance of the kind's options class."""
    dispatcher: Dispatcher
    """The matrix of this process; ``kernel.threads.engine_thread.EngineThread`` joins it."""
    report: Callable[[EngineEvent], Any]
    """Reports an event to the log and to the listeners of ``kernel.events``.  Any thread."""
    changed: Callable[[str], Any] = _ignore
    """For a thread in another process.  ``changed("up")``: the process can take sockets; ``changed("down")``:
    it has ended.  Any thread."""
    renew: Callable[[str, int], Any] = _ignore
    """For a thread in another process.  ``renew(link, pair)``: one of its link ends needs a socket; the last
    that it was given is of that pair (0: it was given none).  Any thread."""
    at_rest: Callable[[], bool] = _never
    """For a thread in another process: whether none has anything left to write.  Any thread."""
    plugins: Mapping[str, str] = {}
    """For a thread in another process: the modules of plugins, by the names of the plugins."""
