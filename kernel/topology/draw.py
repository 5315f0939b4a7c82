"""Draws a plan as Mermaid, and as the matrix of threads; says what a drawing shows.  ``svg.py`` draws SVG.

Threads are boxes, engines stand in the box of their thread, routes are arrows.  A plan does not say in which
thread an engine without ``thread`` will run: the kernel chooses the least loaded one when it starts.  If
there are several threads, such engines are drawn together in a box of their own.  APIs are drawn in the box
of the application's threads.  The box of a thread that is a process says so.
"""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from kernel.topology.plan import DEFAULT_THREAD, PROCESS, EnginePlan, Plan, RoutePlan

CALLERS = "application threads"


class ThreadBox(msgspec.Struct, frozen=True):
    """One thread and what is drawn in it."""

    name: str
    engines: tuple[EnginePlan, ...]


def boxes(plan: Plan, apis: Collection[str]) -> list[ThreadBox]:
    """Say which engine is drawn in which thread; ``apis`` are the kinds that application code opens."""
    shown = {
        thread.name: f"{thread.name} (process)" if thread.kind == PROCESS else thread.name
        for thread in plan.threads
    }
    # An engine is in a process only if it says so; a plan without other threads gets one.
    here = [thread.name for thread in plan.threads if thread.kind != PROCESS] or [DEFAULT_THREAD]
    anywhere = here[0] if len(here) == 1 else "least loaded of " + ", ".join(here)
    needed = DEFAULT_THREAD in here and not plan.thread(DEFAULT_THREAD)
    names = [*((DEFAULT_THREAD,) if needed else ()), *shown.values()]
    placed: dict[str, list[EnginePlan]] = {CALLERS: [], **{name: [] for name in names}}
    for engine in plan.engines:
        home = CALLERS if engine.kind in apis else engine.thread or anywhere
        # ``setdefault``: for the box of those that may run in one of several threads, which is not a thread.
        placed.setdefault(shown.get(home, home), []).append(engine)
    # A thread without engines runs all the same, so it is drawn.  Without APIs there is nobody to draw.
    return [ThreadBox(name, tuple(engines)) for name, engines in placed.items() if engines or name != CALLERS]


def route_label(route: RoutePlan) -> str:
    """Return what is written at an arrow: what is matched, who chooses, and what is promised."""
    words = list(route.match)
    if route.exchange is not None:
        words.insert(0, f"exchange {route.exchange}")
    if route.router != "fan-out" or len(route.targets) > 1:
        words.append(route.router)
    if route.confirm:
        words.append("confirmed")
    if route.marks.when_full != "block":
        words.append(route.marks.when_full)
    return ", ".join(words)


class _Arrow(msgspec.Struct, frozen=True):
    """From one engine to another; a route has one for each target."""

    source: str
    target: str
    label: str
    style: str
    """Empty, ``confirmed`` or ``refused``."""
    number: int
    """That of the route in its plan."""


def _arrows(plan: Plan) -> list[_Arrow]:
    arrows: list[_Arrow] = []
    for number, route in enumerate(plan.routes):
        label, style = route_label(route), "confirmed" if route.confirm else ""
        arrows += [_Arrow(route.source, target, label, style, number) for target in route.targets]
        # From the source, and not from the target that refuses: the message goes back to the port that has
        # sent it, which passes it on (``dispatcher/dead_letter.py``).
        if route.dead_letters is not None:
            arrows.append(_Arrow(route.source, route.dead_letters, "refused", "refused", number))
    return arrows


_MERMAID_ARROWS = {"": "-->", "confirmed": "==>", "refused": "-.->"}


def mermaid(plan: Plan, apis: Collection[str] = ()) -> str:
    """Return a Mermaid flow chart."""
    # Names of engines may have any characters, and identifiers of Mermaid may not: they are numbered.
    numbers = {engine.name: f"e{number}" for number, engine in enumerate(plan.engines)}
    lines = ["flowchart LR"]
    for number, box in enumerate(boxes(plan, apis)):
        lines.append(f'  subgraph t{number}["{_quoted(box.name)}"]')
        lines += [f'    {numbers[engine.name]}["{_quoted(_caption(engine))}"]' for engine in box.engines]
        lines.append("  end")
    for arrow in _arrows(plan):
        text = f'|"{_quoted(arrow.label)}"|' if arrow.label else ""
        drawn = f"{_MERMAID_ARROWS[arrow.style]}{text}"
        lines.append(f"  {numbers[arrow.source]} {drawn} {numbers[arrow.target]}")
    return "\n".join(lines) + "\n"


def matrix(plan: Plan, apis: Collection[str] = ()) -> list[list[str]]:
    """Return the dispatcher's matrix as a table: in cell (i, j) the routes from thread i to thread j."""
    drawn = boxes(plan, apis)
    homes = {engine.name: box.name for box in drawn for engine in box.engines}
    rows = [["from \\ to", *(box.name for box in drawn)]]
    for writer in drawn:
        row = [writer.name]
        for reader in drawn:
            pairs = [
                f"{arrow.source} -> {arrow.target}{' (refused)' if arrow.style == 'refused' else ''}"
                for arrow in _arrows(plan)
                if homes.get(arrow.source) == writer.name and homes.get(arrow.target) == reader.name
            ]
            row.append("; ".join(pairs))
        rows.append(row)
    return rows


def matrix_text(plan: Plan, apis: Collection[str] = ()) -> str:
    """Return the matrix as a Markdown table."""
    rows = matrix(plan, apis)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |"
        for row in rows
    ]
    lines.insert(1, "| " + " | ".join("-" * width for width in widths) + " |")
    return "\n".join(lines) + "\n"


def _caption(engine: EnginePlan) -> str:
    return f"{engine.name}\n{detail(engine)}"


def detail(engine: EnginePlan) -> str:
    """Return the kind of an engine, and its address if it has one."""
    address = engine.options.get("address", "")
    return f"{engine.kind} {address}".rstrip()


def _quoted(text: str) -> str:
    """Escape for a string of Mermaid, which has HTML entities and no backslash."""
    # "&" first, or the entities that the other replacements make would be escaped again.
    escaped = text.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;").replace(">", "&gt;")
    return escaped.replace("\n", "<br>")
