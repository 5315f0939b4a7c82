"""Draws a plan as SVG: threads side by side, engines below each other, routes as lines with right angles.

No layout program is needed, and nothing overlaps, whatever the plan.  This follows from where things may be:

* Between two columns of boxes is a *gutter*.  Its first part belongs to the labels of routes that leave the
  left column to the right, its last part to those that leave the right column to the left.  Between them are
  *tracks*: vertical lines, each of one route.
* Every end of a route has a height of its own in its gutter.  So a horizontal line in the part of the labels
  is the only one at its height, and a label stands above the line of its own route.
* A route to a column that is not the next one takes a horizontal track below all boxes.

Lines cross each other, but no label and no box.  The font has a fixed width, so that the width of a text is
known without a font.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from html import escape

import msgspec

from kernel.topology.draw import ThreadBox, boxes, detail, route_label
from kernel.topology.plan import EnginePlan, Plan, RoutePlan

# In pixels.  A fixed-width font is 0.6 of its size wide; a little more is taken.
_LETTER = 0.62
_NAME_SIZE = 13
_TEXT_SIZE = 11
_LINE = 16
_PADDING = 12
_BAND = 20
"""From one end of a route to the next on the same side of a box: room for a label above the line."""
_TRACK = 10
_GAP = 22
_TITLE = 32
_MARGIN = 24
_LEAST_WIDTH = 120


class _End(msgspec.Struct):
    """One end of an arrow: at a side of an engine's box, and later a point."""

    engine: str
    right: bool
    y: int = 0


class _Arrow(msgspec.Struct):
    """A line from one engine to another."""

    source: _End
    target: _End
    label: str
    style: str


class _Column(msgspec.Struct):
    """A thread's box and its engines' boxes, from top to bottom."""

    box: ThreadBox
    x: int = 0
    width: int = 0
    height: int = 0
    tops: dict[str, int] = {}
    heights: dict[str, int] = {}


class _Gutter(msgspec.Struct):
    """The space left of a column, or right of the last one."""

    x: int = 0
    leaving: int = _GAP
    """Width of the labels of routes that leave the column on the left of the gutter."""
    arriving: int = _GAP
    """The same of the column on the right."""
    tracks: int = 0

    @property
    def width(self) -> int:
        return self.leaving + (self.tracks + 1) * _TRACK + self.arriving

    def next_track(self) -> int:
        """Return the number of a track that no route has."""
        self.tracks += 1
        return self.tracks

    def track(self, number: int) -> int:
        """Return where a track is."""
        return self.x + self.leaving + number * _TRACK


def svg(plan: Plan, apis: Collection[str] = ()) -> str:
    """Return a drawing as one SVG text."""
    return _Drawing(plan, apis).text()


class _Drawing:
    """The places of everything.  The order of the steps is that of ``__init__``."""

    def __init__(self, plan: Plan, apis: Collection[str]) -> None:
        self._columns = [_Column(box) for box in boxes(plan, apis)]
        self._homes = {
            engine.name: number
            for number, column in enumerate(self._columns)
            for engine in column.box.engines
        }
        self._gutters = [_Gutter() for _ in range(len(self._columns) + 1)]
        # Arrows before boxes: the labels say how wide a gutter is, and the ends how high a box.
        self._arrows = [arrow for route in plan.routes for arrow in self._arrows_of(route)]
        self._paths = [self._tracks_of(arrow) for arrow in self._arrows]
        self._place_boxes()
        self._place_columns()
        self._below = 0

    def _arrows_of(self, route: RoutePlan) -> Iterable[_Arrow]:
        label = route_label(route)
        style = "route confirmed" if route.confirm else "route"
        for target in route.targets:
            yield self._arrow(route.source, target, label, style)
        if route.dead_letters is not None:
            yield self._arrow(route.source, route.dead_letters, "refused", "route refused")

    def _arrow(self, source: str, target: str, label: str, style: str) -> _Arrow:
        here, there = self._homes[source], self._homes[target]
        # Within a column both ends are on the right.
        out = _End(source, there >= here)
        arrow = _Arrow(out, _End(target, there <= here), label, style)
        gutter = self._gutters[here + 1 if out.right else here]
        width = _width(label, _TEXT_SIZE) + 2 * _PADDING
        if out.right:
            gutter.leaving = max(gutter.leaving, width)
        else:
            gutter.arriving = max(gutter.arriving, width)
        return arrow

    def _tracks_of(self, arrow: _Arrow) -> list[tuple[int, int]]:
        """Return the tracks of an arrow: one, or two with a track below all boxes between them."""
        first = self._gutter_at(arrow.source)
        last = self._gutter_at(arrow.target)
        tracks = [(first, self._gutters[first].next_track())]
        if last != first:
            tracks.append((last, self._gutters[last].next_track()))
        return tracks

    def _gutter_at(self, end: _End) -> int:
        return self._homes[end.engine] + (1 if end.right else 0)

    def _place_boxes(self) -> None:
        """Say how large boxes are and where, within their columns; and at which height each route ends."""
        ends: dict[tuple[str, bool], list[_End]] = {}
        for arrow in self._arrows:
            for end in (arrow.source, arrow.target):
                ends.setdefault((end.engine, end.right), []).append(end)
        for column in self._columns:
            texts = [_width(column.box.name, _NAME_SIZE) + 2 * _GAP, _LEAST_WIDTH]
            y = _MARGIN + _TITLE
            for engine in column.box.engines:
                # Rounded up: in all columns the ends on the right are at multiples of ``_BAND``, and those on
                # the left half of it below them.
                y = -(-y // _BAND) * _BAND
                lines = _lines(engine)
                texts += [_width(engine.name, _NAME_SIZE), *(_width(line, _TEXT_SIZE) for line in lines)]
                sides = [ends.get((engine.name, right), []) for right in (False, True)]
                height = max(_PADDING + _LINE * (1 + len(lines)) + 6, _BAND * (max(map(len, sides)) + 2))
                column.tops[engine.name], column.heights[engine.name] = y, height
                # The two sides of a gutter have different heights, so that no two lines share one.
                for side, offset in zip(sides, (_BAND // 2, 0), strict=True):
                    for number, end in enumerate(side, 1):
                        end.y = (y // _BAND + number) * _BAND + offset
                y += height + _GAP
            column.width = max(texts) + 2 * _PADDING
            column.height = max(y, _MARGIN + _TITLE + 2 * _LINE) - _MARGIN

    def _place_columns(self) -> None:
        x = _MARGIN
        for number, column in enumerate(self._columns):
            gutter = self._gutters[number]
            # The outer gutters are only as wide as what is in them.
            gutter.x = x
            x += gutter.width if number or gutter.tracks else 0
            column.x = x
            x += column.width + 2 * _GAP
        last = self._gutters[-1]
        last.x = x
        self._width = x + (last.width if last.tracks else 0) + _MARGIN
        tallest = max(column.height for column in self._columns)
        self._bottom = _MARGIN + tallest

    # ------------------------------------------------------------------ the text

    def text(self) -> str:
        """Return the SVG."""
        parts: list[str] = []
        for column in self._columns:
            width = column.width + 2 * _GAP
            parts.append(_rectangle("thread", column.x, _MARGIN, width, column.height))
            parts.append(_text("title", column.x + _GAP, _MARGIN + 21, column.box.name))
            for engine in column.box.engines:
                parts += self._engine(column, engine)
        # Behind everything else in the text, so that no line is drawn over a label.
        labels: list[str] = []
        for arrow, tracks in zip(self._arrows, self._paths, strict=True):
            points = self._points(arrow, tracks)
            way = "".join(f"{'L' if number else 'M'}{x} {y}" for number, (x, y) in enumerate(points))
            parts.append(f'<path class="{arrow.style}" d="{way}" marker-end="url(#tip)"/>')
            if arrow.label:
                (x, y), _ = points[:2]
                anchor, shift = ("start", 6) if arrow.source.right else ("end", -6)
                labels.append(_text("label", x + shift, y - 6, arrow.label, anchor))
        height = self._bottom + (self._below + 1) * _TRACK + _MARGIN
        return _document(self._width, height, [*parts, *labels])

    def _engine(self, column: _Column, engine: EnginePlan) -> list[str]:
        x, y = column.x + _GAP, column.tops[engine.name]
        parts = [_rectangle("engine", x, y, column.width, column.heights[engine.name])]
        parts.append(_text("name", x + _PADDING, y + _PADDING + 8, engine.name))
        for number, line in enumerate(_lines(engine), 1):
            parts.append(_text("kind", x + _PADDING, y + _PADDING + 8 + number * _LINE, line))
        return parts

    def _points(self, arrow: _Arrow, tracks: list[tuple[int, int]]) -> list[tuple[int, int]]:
        """Return the corners of an arrow."""
        start, end = self._edge(arrow.source), self._edge(arrow.target)
        first = self._gutters[tracks[0][0]].track(tracks[0][1])
        if len(tracks) == 1:
            return [start, (first, start[1]), (first, end[1]), end]
        last = self._gutters[tracks[1][0]].track(tracks[1][1])
        # Each of them has a track of its own below the boxes. They are counted here, while the text is
        # written.
        self._below += 1
        below = self._bottom + self._below * _TRACK
        return [start, (first, start[1]), (first, below), (last, below), (last, end[1]), end]

    def _edge(self, end: _End) -> tuple[int, int]:
        column = self._columns[self._homes[end.engine]]
        return column.x + _GAP + (column.width if end.right else 0), end.y


def _lines(engine: EnginePlan) -> list[str]:
    """Return what stands below the name of an engine: its kind, and its address on a line of its own."""
    return detail(engine).split(" ", 1)


def _width(text: str, size: int) -> int:
    """Return how wide a text is at the most."""
    # Letters of East Asia are twice as wide in a font of fixed width.
    letters = sum(2 if ord(letter) > 0x1100 else 1 for letter in text)
    return round(letters * size * _LETTER + 0.5)


def _document(width: int, height: int, parts: list[str]) -> str:
    size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size}>'
    # Everything in the file itself, so that a page may embed it, and its fonts and colours come along.
    style = (
        "<style>text{font-family:ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace;font-size:13px;"
        "fill:#1f2937}.title{font-weight:600;fill:#475569}.name{font-weight:600}"
        ".kind,.label{font-size:11px;fill:#475569}"
        ".thread{fill:#f1f5f9;stroke:#94a3b8;rx:10px}.engine{fill:#fff;stroke:#334155;rx:6px}"
        ".route{fill:none;stroke:#2563eb;stroke-width:1.4;stroke-linejoin:round}.confirmed{stroke-width:2.8}"
        ".refused{stroke-dasharray:4 3}</style>"
    )
    marker = (
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="9" markerHeight="9" '
        'markerUnits="userSpaceOnUse" orient="auto"><path d="M0 0 8 4 0 8z" fill="#2563eb"/></marker></defs>'
    )
    background = f'<rect width="{width}" height="{height}" fill="#fff"/>'
    return "\n".join([head, style, marker, background, *parts, "</svg>"]) + "\n"


def _rectangle(style: str, x: int, y: int, width: int, height: int) -> str:
    return f'<rect class="{style}" x="{x}" y="{y}" width="{width}" height="{height}"/>'


def _text(style: str, x: int, y: int, text: str, anchor: str = "start") -> str:
    return f'<text class="{style}" x="{x}" y="{y}" text-anchor="{anchor}">{escape(text)}</text>'
