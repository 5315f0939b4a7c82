"""Thread: what hosts engines, as the system sees it.

Whatever the system wants of a thread and its engines goes through these methods, and what comes back is data.  So a
thread need not be in this process: nobody else touches its engines, its mailbox or its ports.
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
"""What a thread's engines have to show: its name; rows, each of which begins with the name of its engine; and, in words,
which engine could not answer."""
Done: TypeAlias = tuple[Any, Exception | None]
"""What came of an operation, or what the engine raised."""


class EngineStatus(Interface):
    """How an engine is doing.  Written by its thread, read by any."""

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
        """Where it listens or what it says of itself; empty until it runs."""
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
        """Whether it is running, or was and has come to a good end."""
        ...


class EngineThread(Interface):
    """A thread that hosts engines.  Any thread may call its methods; none of them waits, but ``join``."""

    name: str

    @property
    def number(self) -> int:
        """Its row and column in the matrix of pipes."""
        ...

    @property
    def states(self) -> Mapping[str, EngineStatus]:
        """How its engines are doing, by name."""
        ...

    @property
    def turns(self) -> int:
        """How often it was awake and looked around."""
        ...

    def start(self) -> None:
        """Begin to host."""
        ...

    def add(self, name: str, make_engine: Callable[[], Engine], *, plan: EnginePlan | None = None) -> object:
        """Host one more engine.

        ``make_engine`` is called in this thread, again for each new life.  A thread in another process cannot call it: it
        makes the engine from ``plan``, and refuses with ``KernelError`` an engine that has none, being made by code.
        """
        ...

    def remove(self, name: str, on_gone: Callable[[], Any] | None = None, linger: float = 0.0) -> None:
        """Let an engine go.  Another one of that name may be added at once; it waits for the end of this one.

        The engine has ``linger`` seconds to write what it has.  ``on_gone()`` is called when it has gone, from any thread.
        """
        ...

    def counters(self, engine: str) -> dict[str, Any]:
        """Return what an engine counts itself; empty while it does not live."""
        ...

    def inspect(self, what: str, answer: Callable[[Shown], Any]) -> None:
        """Ask all engines for the rows of a table.  ``answer`` is called once, from any thread."""
        ...

    def operate(self, engine: str, what: str, argument: Any, answer: Callable[[Done], Any]) -> None:
        """Have an engine do something.  ``answer`` is called once, from any thread.

        ``KernelError`` at once if the engine is not there or has no operations.
        """
        ...

    def pending(self) -> bool:
        """Whether an engine still has something to write.  A guess while it works."""
        ...

    def linger(self, seconds: float, may_stop: Callable[[], bool]) -> None:
        """Stop as soon as ``may_stop()``, which is asked after each piece of work; at the latest in ``seconds``."""
        ...

    def stop(self) -> None:
        """Leave at the end of the present turn."""
        ...

    def join(self, timeout: float | None = None) -> bool:
        """Wait until the thread is gone; False when it is not in ``timeout`` seconds."""
        ...

    def dispose(self) -> None:
        """Give back the descriptors of a thread that is gone, while the rest of the system goes on."""
        ...


class GuestThread(EngineThread, Interface):
    """A thread that lives in the application's own trio run."""

    async def serve(self, *, task_status: trio.TaskStatus[None]) -> None:
        """Host engines until the kernel is closed."""
        ...


class ThreadSetup(msgspec.Struct, frozen=True, kw_only=True):
    """All that ``ThreadKind.create`` is told."""

    name: str
    """The thread's name in the topology."""
    options: Any
    """An instance of the kind's options class."""
    dispatcher: Dispatcher
    """The matrix of this process; ``kernel.threads.engine_thread.EngineThread`` joins it."""
    report: Callable[[EngineEvent], Any]
    """Tells the log and the listeners of ``kernel.events``.  Any thread."""
