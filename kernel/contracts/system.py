"""System: what an engine may read and change in the kernel that hosts it (``EngineSetup.system``).

No method waits.  An answer that needs other threads is given to a callback, in the thread of the engine that
asked. If the call waited instead, it could wait for its own thread and never return.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any
from typing import Protocol as Interface

from kernel.contracts.engine import EngineEvent, Host
from kernel.contracts.errors import KernelError

if TYPE_CHECKING:
    import socket

    from kernel.topology.inspection import Inspection
    from kernel.topology.plan import EnginePlan, Plan, RoutePlan
    from kernel.topology.statistics import SystemStatistics

NO_TABLE = ""
"""A table that no engine has.  Whoever asks for it learns which threads answer, and engines do nothing."""


class System(Interface):
    """The kernel as its engines see it."""

    @property
    def plan(self) -> Plan:
        """Threads, engines and routes at this moment.  Any thread."""
        ...

    def planned_engines(self) -> tuple[EnginePlan, ...]:
        """Return the engines of the plan, with those that are about to be started.  Any thread.

        ``plan`` has only those that were started before, which an engine that starts cannot rely on.
        """
        ...

    def engines_with(self, operation: str) -> list[str]:
        """Return the names of the engines whose kind has an operation, as ``Kernel.engines_with``.

        Any thread.
        """
        ...

    def statistics(self) -> SystemStatistics:
        """Return the figures of this moment, as ``Kernel.statistics``.  Any thread.

        Those of many things, such as queues, are ``LazyFigures``: whoever reads them does it in pieces.
        """
        ...

    def inspect(
        self, what: str, host: Host, on_answer: Callable[[Inspection], Any], timeout: float = 2.0
    ) -> None:
        """Ask all engines for their rows of the table ``what``.  The thread of ``host``.

        ``on_answer`` is called in a later turn, at the latest after ``timeout`` seconds; threads that have
        not answered by then are named in ``failed``.
        """
        ...

    def operate(
        self,
        engine: str,
        what: str,
        argument: Any,
        host: Host,
        on_done: Callable[[Any, KernelError | None], Any],
        timeout: float = 30.0,
    ) -> None:
        """Call an operation of an engine (``Operable``).  The thread of ``host``.

        ``on_done(answer, failure)`` is called in a later turn, at the latest after ``timeout`` seconds.  An
        operation that takes longer is not cancelled; its answer is dropped.
        """
        ...

    def hand_over(self, engine: str, what: Mapping[str, Any], connected: socket.socket) -> None:
        """Give another engine a connection (``TakesOver``), with what it has to know, as plain data.

        Any thread.

        The socket is not the caller's any more.  ``KernelError``: the engine does not exist, is not running
        or takes none; then it still is.
        """
        ...

    def add_route(self, plan: RoutePlan) -> None:
        """Connect engines, as ``Kernel.add_route``.  Any thread; ``KernelClosed`` once the kernel is closing.

        The route stays until it is removed, even if the engine that added it fails and is started again.
        """
        ...

    def remove_route(self, plan: RoutePlan) -> None:
        """Disconnect, as ``Kernel.remove_route``.  Any thread; ``UnknownName`` if there is no such route."""
        ...

    # Without the end the kernel would keep an engine that is gone, and go on posting to it.
    def subscribe(self, host: Host, on_event: Callable[[EngineEvent], Any]) -> Callable[[], None]:
        """Call ``on_event``, in the thread of ``host``, with each event that an engine reports from now on.

        Returns a function that ends the subscription.  The engine has to call it when it ends.
        """
        ...
