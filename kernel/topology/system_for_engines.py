"""System for engines: what an engine may read and change in the kernel that hosts it.

An object between ``Kernel`` and engines, because the methods of ``Kernel`` that wait must not be called in an
engine's thread.  It has their forms that call back, and otherwise only what an engine may do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from kernel.contracts.engine import EngineEvent, Host
from kernel.contracts.errors import KernelError
from kernel.contracts.thread import EngineThread
from kernel.topology.inspection import Inspection, inspect_soon
from kernel.topology.operation import home_of, operate_soon
from kernel.topology.plan import EnginePlan, Plan, RoutePlan
from kernel.topology.statistics import SystemStatistics

if TYPE_CHECKING:
    import socket

    from kernel.topology.system import Kernel


class SystemForEngines:
    """Implements ``kernel.contracts.system.System``."""

    def __init__(
        self,
        kernel: Kernel,
        threads: Callable[[], list[EngineThread]],
        statistics: Callable[[], SystemStatistics],
        planned_engines: Callable[[], tuple[EnginePlan, ...]],
    ) -> None:
        # ``threads`` is a function, because threads are added and removed while the system runs.
        self._kernel = kernel
        self._threads = threads
        self._statistics = statistics
        self._planned_engines = planned_engines

    @property
    def plan(self) -> Plan:
        """Threads, engines and routes at this moment."""
        return self._kernel.plan

    def planned_engines(self) -> tuple[EnginePlan, ...]:
        """Return the engines of the plan, with those that are about to be started."""
        return self._planned_engines()

    def engines_with(self, operation: str) -> list[str]:
        """Return the names of the engines whose kind has an operation."""
        return self._kernel.engines_with(operation)

    def statistics(self) -> SystemStatistics:
        """Return the statistics of this moment."""
        return self._statistics()

    def inspect(
        self, what: str, host: Host, on_answer: Callable[[Inspection], Any], timeout: float = 2.0
    ) -> None:
        """Ask all engines for a table; ``on_answer`` is called in a later turn."""
        inspect_soon(self._threads(), what, timeout, host, on_answer)

    def operate(
        self,
        engine: str,
        what: str,
        argument: Any,
        host: Host,
        on_done: Callable[[Any, KernelError | None], Any],
        timeout: float = 30.0,
    ) -> None:
        """Call an operation of an engine; ``on_done`` is called in a later turn."""
        operate_soon(self._threads(), engine, what, argument, timeout, host, on_done)

    def hand_over(self, engine: str, what: Mapping[str, Any], connected: socket.socket) -> None:
        """Give another engine a connection."""
        home_of(self._threads(), engine).hand_over(engine, what, connected)

    def add_route(self, plan: RoutePlan) -> None:
        """Connect engines."""
        self._kernel.add_route(plan)

    def remove_route(self, plan: RoutePlan) -> None:
        """Disconnect."""
        self._kernel.remove_route(plan)

    def subscribe(self, host: Host, on_event: Callable[[EngineEvent], Any]) -> Callable[[], None]:
        """Pass events on to the thread of ``host``, until the function that is returned is called."""
        # Events are reported in the thread of the engine that they concern.  So one may be on its way to the
        # mailbox of ``host`` when the subscription ends there: ``deliver`` looks once more.
        ended = False

        def deliver(event: EngineEvent) -> None:
            if not ended:
                on_event(event)

        def pass_on(event: EngineEvent) -> None:
            host.post(partial(deliver, event))

        def end() -> None:
            nonlocal ended
            if not ended:
                ended = True
                self._kernel.events.remove(pass_on)

        # One append, and one ``remove`` in ``end``: other threads loop over a copy (``Kernel._report``).
        self._kernel.events.append(pass_on)
        return end
