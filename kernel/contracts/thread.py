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
    import trio

    from kernel.dispatcher.dispatcher import Dispatcher
    from kernel.topology.plan import EnginePlan

Rows: TypeAlias = list[dict[str, Any]]
Shown: TypeAlias = tuple[str, Rows, list[str]]
"""The answer of a thread to ``inspect``: its name; the rows, each of which begins with the name of its
engine; and a sentence for each engine that could not answer."""
Done: TypeAlias = tuple[Any, Exception | None]
"""The result of an operation, and what the engine raised, if anything."""


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

    def take_options(self, engine: str, options: Any, answer: Callable[[Done], Any]) -> None:
        """Give a running engine changed options (``TakesOptions``).  ``answer`` is called once, by any thread.

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
