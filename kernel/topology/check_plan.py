"""Checks a plan made in Python as a topology file is checked.

There is one difference: a route may begin or end at a name that is not an engine of the plan.  In a file that
is a mistake.  In Python the name may be opened (``kernel.open(name)``) or added (``kernel.add_engine``)
later.

The plan is turned into the values that a file with this plan would have, and these are checked.  So there is
one set of checks.  Complaints about types use the words of TOML, then: "a table", not ``dict``.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from kernel.contracts.errors import PlanError
from kernel.plugins import PluginRegistry
from kernel.topology.check import Checker
from kernel.topology.file import TopologyFile
from kernel.topology.plan import Plan, RoutePlan
from kernel.topology.toml_lines import Path


class _PlanAsFile(TopologyFile, kw_only=True):
    """A plan in the form of a file's values.  Complaints have the name of their route instead of a line."""

    labels: list[str]

    def complain(self, path: Path, text: str) -> None:
        """Add a complaint."""
        if len(path) > 1 and path[0] == "routes" and isinstance(path[1], int):
            text = f"route {self.labels[path[1]]}: {text}"
        self.complaints.append(text)


def check_plan(plan: Plan, registry: PluginRegistry) -> None:
    """Raise ``PlanError`` with all mistakes of a plan, if there are any."""
    file = _PlanAsFile(
        name="",
        values=_values(plan),
        lines={},
        from_environment=set(),
        complaints=[],
        from_python=True,
        labels=[route.label for route in plan.routes],
    )
    for noun, names in (
        ("threads", [thread.name for thread in plan.threads]),
        ("engines", [engine.name for engine in plan.engines]),
    ):
        # A file cannot have this mistake: a table that is written twice is not TOML.  So the checker does not
        # look for it, and could not find it: ``_values`` has only the last one of each name.
        file.complaints += [
            f"there are {count} {noun} with the name {name!r}; names must be unique"
            for name, count in Counter(names).items()
            if count > 1
        ]
    # For its complaints only.  The plan itself stays as the program made it.
    Checker(file, registry).plan()
    if not file.complaints:
        file.complaints += registry.check_plan(plan)
    if file.complaints:
        raise PlanError(file.complaints)


def _values(plan: Plan) -> dict[str, Any]:
    return {
        "threads": {thread.name: {**thread.options, "kind": thread.kind} for thread in plan.threads},
        "engines": {
            engine.name: {
                **engine.options,
                "kind": engine.kind,
                # No key for None, as in a file: the kernel chooses the thread.
                **({"thread": engine.thread} if engine.thread else {}),
            }
            for engine in plan.engines
        },
        "routes": list(map(_route, plan.routes)),
    }


def _route(route: RoutePlan) -> dict[str, Any]:
    table = {
        "from": route.source,
        "to": list(route.targets),
        "match": list(route.match),
        "exchange": route.exchange,
        "router": route.router,
        "options": route.router_options,
        "confirm": route.confirm,
        "echo": route.echo,
        "dead_letters": route.dead_letters,
        "when_full": route.marks.when_full,
        "high": route.marks.high,
        "high_bytes": route.marks.high_bytes,
        "stall_timeout": route.marks.stall_timeout,
    }
    # TOML has no null: what is None in Python is a key that a file does not have.
    return {key: value for key, value in table.items() if value is not None}
