"""Charts as SVG.  Colours are CSS variables of the page, so that they suit its light and its dark mode.

Coordinates are pixels of a drawing that is ``WIDTH`` wide; the page scales it to its own width.  As in all of
SVG, y grows downwards, so the largest value has the smallest y.  ``LEFT``, ``RIGHT``, ``TOP`` and ``BOTTOM``
are the margins around the field in which values are drawn; they have room for labels.

There is no script in the page.  What shows a value under the mouse is ``<title>``, the tool tip of SVG.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime
from html import escape

from plugins.apis.spark.report.findings import HeatMap, Lines
from plugins.apis.spark.report.quantities import moment, spell, ticks, time_ticks

WIDTH = 960
HEIGHT = 280
LEFT, RIGHT, TOP, BOTTOM = 76, 16, 14, 34
SERIES_COLOURS = 6
"""The page has ``--line-0`` to ``--line-5``."""
SLANTED = 24
"""Up to this number of columns each one has a label, slanted if it would not fit otherwise; with more
columns, some labels are left out."""
_LETTER = 6.6
"""Approximate width of a letter of the charts' font, in pixels."""


def draw_lines(chart: Lines) -> str:
    """Draw quantities over time, with an axis that begins at 0.  The area below a single one is filled."""
    known = [value for values in chart.series.values() for value in values if value is not None]
    if not chart.times or not known:
        return _empty()
    first, last = chart.times[0], chart.times[-1]
    # Not 0, by which ``x`` would divide: a chart may have a single time.
    seconds = max((last - first).total_seconds(), 1e-9)
    levels = ticks(max(known), chart.unit)

    def x(when: datetime) -> float:
        return LEFT + (when - first).total_seconds() / seconds * (WIDTH - LEFT - RIGHT)

    def y(value: float) -> float:
        return HEIGHT - BOTTOM - value / levels[-1] * (HEIGHT - TOP - BOTTOM)

    parts = [_level(y(level), spell(level, chart.unit)) for level in levels]
    parts += [
        _label(x(when), HEIGHT - 12, moment(when, last - first), "middle") for when in time_ticks(first, last)
    ]
    places = [x(when) for when in chart.times]
    for number, (name, values) in enumerate(chart.series.items()):
        segments = _unbroken(
            [
                (place, y(value)) if value is not None else None
                for place, value in zip(places, values, strict=True)
            ]
        )
        if len(chart.series) == 1:
            parts += [_area(segment, y(0)) for segment in segments]
        parts += [_polyline(segment, number, name) for segment in segments]
    # In this order: what comes later is above, and only what is above gets the mouse.
    parts += _hover(chart, places)
    parts += [_mark(x(when), text) for when, text in chart.marks]
    return _svg(HEIGHT, parts, chart.title) + _legend(chart.series)


def draw_heat_map(chart: HeatMap) -> str:
    """Draw a field of cells.  The largest value has the full colour.

    The opacity grows with the square root of the value, so that a small value is visible beside a large one.
    """
    most = max((value for row in chart.values for value in row), default=0)
    if not most:
        return _empty()
    # Rows have 300 pixels together, and each of them between 11, the height of a letter, and 30.
    left = min(260.0, max(LEFT, 14 + _LETTER * max(len(row) for row in chart.rows)))
    width = (WIDTH - left - RIGHT) / len(chart.columns)
    height = min(30.0, max(11.0, 300.0 / len(chart.rows)))
    letters = _LETTER * max(len(column) for column in chart.columns)
    slanted = width < letters and len(chart.columns) <= SLANTED
    every = math.ceil((letters + 12) / width) if width < letters and not slanted else 1
    bottom = TOP + height * len(chart.rows)
    parts = []
    for row, (name, values) in enumerate(zip(chart.rows, chart.values, strict=True)):
        top = TOP + row * height
        # Two labels are at least 12 pixels apart; of lower rows only some have one.
        if row % max(1, math.ceil(12 / height)) == 0:
            parts.append(_label(left - 8, top + height / 2 + 4, _cut(name, left), "end"))
        for column, value in enumerate(values):
            if value:
                told = f"{name} · {chart.columns[column]}: {spell(value, chart.unit)}"
                parts.append(_cell(left + column * width, top, width, height, math.sqrt(value / most), told))
    drop = 0.0  # the height that slanted labels need below the field
    for column in range(0, len(chart.columns), every):
        place = left + (column + 0.5) * width
        parts.append(_column_label(place, bottom + 14, chart.columns[column], slanted=slanted))
        # 0.7: a little more than the sine of 40 degrees, by which ``_column_label`` turns them.
        drop = max(drop, len(chart.columns[column]) * _LETTER * 0.7 if slanted else 0)
    # At the beginning: SVG draws in order, and this is the background of the cells.
    background = f'x="{left:.1f}" y="{TOP}" width="{WIDTH - left - RIGHT:.1f}" height="{bottom - TOP:.1f}"'
    parts.insert(0, f'<rect class="field" {background}/>')
    return _svg(bottom + 26 + drop, parts, chart.title)


def _unbroken(points: Sequence[tuple[float, float] | None]) -> list[list[tuple[float, float]]]:
    """Return the segments of a line between its missing points."""
    segments: list[list[tuple[float, float]]] = [[]]
    for point in points:
        if point is not None:
            segments[-1].append(point)
        elif segments[-1]:
            segments.append([])
    # The last one is empty if the line ends with missing points.
    return [segment for segment in segments if segment]


def _svg(height: float, parts: Sequence[str], title: str) -> str:
    return (
        f'<svg viewBox="0 0 {WIDTH} {height:.0f}" role="img" aria-label="{escape(title)}">'
        + "".join(parts)
        + "</svg>"
    )


def _level(y: float, text: str) -> str:
    return f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>' + _label(
        LEFT - 8, y + 4, text, "end"
    )


def _label(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _column_label(x: float, y: float, text: str, *, slanted: bool) -> str:
    if not slanted:
        return _label(x, y, text, "middle")
    return f'<text transform="translate({x:.1f} {y:.1f}) rotate(40)">{escape(text)}</text>'


def _path(points: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in points)


def _polyline(points: Sequence[tuple[float, float]], number: int, name: str) -> str:
    colour = f"var(--line-{number % SERIES_COLOURS})"
    # A line of one point is not visible.
    if len(points) == 1:
        ((x, y),) = points
        point = f'cx="{x:.1f}" cy="{y:.1f}" r="2.5" fill="{colour}"'
        return f"<circle {point}><title>{escape(name)}</title></circle>"
    return f'<polyline class="line" stroke="{colour}" points="{_path(points)}"/>'


def _area(points: Sequence[tuple[float, float]], floor: float) -> str:
    closed = [(points[0][0], floor), *points, (points[-1][0], floor)]
    return f'<polygon class="area" points="{_path(closed)}"/>'


def _mark(x: float, text: str) -> str:
    return (
        f'<g class="mark"><line x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}"/>'
        f'<circle cx="{x:.1f}" cy="{TOP}" r="4"/><title>{escape(text)}</title></g>'
    )


def _hover(chart: Lines, places: Sequence[float]) -> list[str]:
    """Return one invisible column for each time, with the values of that time as its tool tip."""
    if len(places) < 2:
        return []
    width = (places[-1] - places[0]) / (len(places) - 1)
    size = f'y="{TOP}" width="{width:.2f}" height="{HEIGHT - TOP - BOTTOM}"'
    return [
        f'<rect class="hover" x="{place - width / 2:.1f}" {size}>'
        f"<title>{escape(_told(chart, index))}</title></rect>"
        for index, place in enumerate(places)
    ]


def _told(chart: Lines, index: int) -> str:
    values = (f"{name}: {spell(values[index], chart.unit)}" for name, values in chart.series.items())
    # The last three digits of microseconds are cut off.
    return "\n".join((f"{chart.times[index]:%Y-%m-%d %H:%M:%S.%f}"[:-3], *values))


def _cell(x: float, y: float, width: float, height: float, share: float, told: str) -> str:
    # 0.6 pixels between two cells; the smallest value still has a little colour.
    return (
        f'<rect class="cell" x="{x:.1f}" y="{y:.1f}" width="{max(width - 0.6, 0.6):.1f}" '
        f'height="{height - 0.6:.1f}" '
        f'fill-opacity="{0.08 + 0.92 * share:.2f}"><title>{escape(told)}</title></rect>'
    )


def _legend(series: object) -> str:
    names = list(series) if isinstance(series, dict) else []
    if len(names) < 2:
        return ""
    items = "".join(
        f'<li><i style="background:var(--line-{number % SERIES_COLOURS})"></i>{escape(name)}</li>'
        for number, name in enumerate(names)
    )
    return f'<ul class="legend">{items}</ul>'


def _cut(text: str, width: float) -> str:
    room = int((width - 14) / _LETTER)
    return text if len(text) <= room else text[: room - 1] + "…"


def _empty() -> str:
    return '<p class="nothing">There is nothing to draw.</p>'
