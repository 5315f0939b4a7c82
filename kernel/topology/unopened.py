"""What only an application can bring into a topology, and ``kernel run`` has none.

An engine of an API's kind, such as ``native``, is opened by application code.  Until then messages for it
wait, and with them, on a route with ``confirm``, their publishers.
"""

from __future__ import annotations

from collections.abc import Iterator

from kernel.plugins import PluginRegistry
from kernel.topology.guests import is_guest
from kernel.topology.plan import EnginePlan, Plan, ThreadPlan


def unopened(plan: Plan, registry: PluginRegistry) -> Iterator[tuple[EnginePlan, str]]:
    """Return the engines to which routes lead and that only an application can open; and the warning."""
    # One from which routes begin is left out: without an application it sends nothing, and nobody waits.
    ends = {name for route in plan.routes for name in (*route.targets, *filter(None, (route.dead_letters,)))}
    for engine in plan.engines:
        if engine.name in ends and engine.kind in registry.apis:
            yield (
                engine,
                "is opened by application code, which `kernel run` does not have; its messages wait. Run the "
                "file from a Python program (Kernel.from_file), or name another engine in the route",
            )


def guests(plan: Plan, registry: PluginRegistry) -> Iterator[tuple[ThreadPlan, str]]:
    """Return the threads that only ``async with kernel`` has; and the warning."""
    for thread in plan.threads:
        if is_guest(thread, registry):
            yield (
                thread,
                f"is of kind {thread.kind!r}, which needs a program with `async with kernel`; `kernel run` "
                "refuses it",
            )
