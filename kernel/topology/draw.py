"""Draws a plan: as Mermaid for pages, as SVG for everything else, and as the matrix of threads.

Threads are boxes, engines stand in the box of their thread, routes are arrows.  A plan does not say in which
thread an engine without ``thread`` will run: the kernel chooses the least loaded one when it starts.  If
there are several threads, such engines are drawn together in a box of their own.  APIs are drawn in the box
of the application's threads.

The SVG is written by hand and needs no layout program: one column for each thread, one row for each engine.
"""

from __future__ import annotations

from collections.abc import Collection
from html import escape

import msgspec

from kernel.topology.plan import DEFAULT_THREAD, EnginePlan, Plan, RoutePlan

CALLERS = "application threads"

# In pixels.  ``_BOX_WIDTH`` has room for the 34 letters of ``_shortened`` at 11 px.
_BOX_WIDTH = 210
_BOX_HEIGHT = 46
_GAP = 26
_COLUMN_GAP = 190
_MARGIN = 24
_TITLE = 30


class ThreadBox(msgspec.Struct, frozen=True):
    """One thread and what is drawn in it."""

    name: str
    engines: tuple[EnginePlan, ...]


def boxes(plan: Plan, apis: Collection[str]) -> list[ThreadBox]:
    """Say which engine is drawn in which thread; ``apis`` are the kinds that application code opens."""
    names = [thread.name for thread in plan.threads] or [DEFAULT_THREAD]
    anywhere = names[0] if len(names) == 1 else "least loaded of " + ", ".join(names)
    placed: dict[str, list[EnginePlan]] = {CALLERS: [], **{name: [] for name in names}}
    for engine in plan.engines:
        home = CALLERS if engine.kind in apis else engine.thread or anywhere
        placed.setdefault(home, []).append(engine)
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


def svg(plan: Plan, apis: Collection[str] = ()) -> str:
    """Return a drawing as one SVG text: threads side by side, engines below each other, routes as curves."""
    drawn = boxes(plan, apis)
    corners: dict[str, tuple[int, int]] = {}
    parts: list[str] = []
    tallest = 0
    for column, box in enumerate(drawn):
        x = _MARGIN + column * (_BOX_WIDTH + 2 * _GAP + _COLUMN_GAP)
        height = _TITLE + max(1, len(box.engines)) * (_BOX_HEIGHT + _GAP) + _GAP // 2
        tallest = max(tallest, height)
        parts += _rectangle("thread", x, _MARGIN, _BOX_WIDTH + 2 * _GAP, height)
        parts.append(_text("title", x + _GAP, _MARGIN + 21, box.name))
        for row, engine in enumerate(box.engines):
            corner = (x + _GAP, _MARGIN + _TITLE + _GAP // 2 + row * (_BOX_HEIGHT + _GAP))
            corners[engine.name] = corner
            parts += _rectangle("engine", *corner, _BOX_WIDTH, _BOX_HEIGHT)
            parts.append(_text("name", corner[0] + 12, corner[1] + 19, engine.name))
            parts.append(_text("kind", corner[0] + 12, corner[1] + 36, _shortened(_detail(engine))))
    # After all boxes: what comes later in an SVG is drawn on top.
    arrows = _arrows(plan)
    for arrow in arrows:
        parts += _curve(corners[arrow.source], corners[arrow.target], arrow)
    width = 2 * _MARGIN + len(drawn) * (_BOX_WIDTH + 2 * _GAP + _COLUMN_GAP) - _COLUMN_GAP
    # An arrow within the last column bends to the right of it.
    width += _COLUMN_GAP if any(corners[each.source][0] == corners[each.target][0] for each in arrows) else 0
    return _document(width, tallest + 2 * _MARGIN, parts)


def _document(width: int, height: int, parts: list[str]) -> str:
    size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size}>'
    # Everything in the file itself, so that a page may embed it, and its fonts and colours come along.
    # Labels have a white outline, because other routes may pass behind them.
    style = (
        "<style>text{font-family:system-ui,sans-serif;font-size:13px;fill:#1f2937}"
        ".title{font-weight:600;fill:#475569}.name{font-weight:600}.kind,.label{font-size:11px;fill:#475569}"
        ".label{paint-order:stroke;stroke:#fff;stroke-width:4px}"
        ".thread{fill:#f1f5f9;stroke:#94a3b8;rx:10px}.engine{fill:#fff;stroke:#334155;rx:6px}"
        ".route{fill:none;stroke:#2563eb;stroke-width:1.6}.confirmed{stroke-width:3.2}"
        ".refused{stroke-dasharray:5 4}</style>"
    )
    marker = (
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="9" markerHeight="9" '
        'markerUnits="userSpaceOnUse" orient="auto"><path d="M0 0 8 4 0 8z" fill="#2563eb"/></marker></defs>'
    )
    background = f'<rect width="{width}" height="{height}" fill="#fff"/>'
    return "\n".join([head, style, marker, background, *parts, "</svg>"]) + "\n"


def _rectangle(style: str, x: int, y: int, width: int, height: int) -> list[str]:
    return [f'<rect class="{style}" x="{x}" y="{y}" width="{width}" height="{height}"/>']


def _text(style: str, x: int, y: int, text: str, anchor: str = "start") -> str:
    return f'<text class="{style}" x="{x}" y="{y}" text-anchor="{anchor}">{escape(text)}</text>'


def _curve(start: tuple[int, int], end: tuple[int, int], arrow: _Arrow) -> list[str]:
    """Draw one arrow.

    Each route leaves and arrives at a height of its own, so that arrows do not cover each other.
    """
    # 9 pixels from one route to the next, and again from the top at the lower edge of the box.
    shift = 10 + (arrow.number * 9) % (_BOX_HEIGHT - 18)
    y1, y2 = start[1] + shift, end[1] + shift
    if start[0] < end[0]:
        x1, x2, bend = start[0] + _BOX_WIDTH, end[0], 90
        c1, c2 = x1 + bend, x2 - bend
    elif start[0] > end[0]:
        x1, x2, bend = start[0], end[0] + _BOX_WIDTH, 90
        c1, c2 = x1 - bend, x2 + bend
    else:
        x1 = x2 = start[0] + _BOX_WIDTH
        c1 = c2 = x1 + 120
        # From an engine to itself: both ends at one height would make the curve a line there and back.
        y2 += 8 if y1 == y2 else 0
    style = f"route {arrow.style}".rstrip()
    path = f'<path class="{style}" d="M{x1} {y1}C{c1} {y1} {c2} {y2} {x2} {y2}" marker-end="url(#tip)"/>'
    # The middle of a cubic Bézier curve, (p0 + 3 p1 + 3 p2 + p3) / 8.  Its heights are those of the two
    # ends.
    middle_x, middle_y = (x1 + 3 * c1 + 3 * c2 + x2) // 8, (y1 + y2) // 2 - 6
    return [path, _text("label", middle_x, middle_y, arrow.label, "middle")] if arrow.label else [path]


def _caption(engine: EnginePlan) -> str:
    return f"{engine.name}\n{_detail(engine)}"


def _detail(engine: EnginePlan) -> str:
    address = engine.options.get("address", "")
    return f"{engine.kind} {address}".rstrip()


def _shortened(text: str) -> str:
    """Cut to what fits into a box."""
    return text if len(text) <= 34 else text[:33] + "…"


def _quoted(text: str) -> str:
    """Escape for a string of Mermaid, which has HTML entities and no backslash."""
    # "&" first, or the entities that the other replacements make would be escaped again.
    escaped = text.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;").replace(">", "&gt;")
    return escaped.replace("\n", "<br>")
