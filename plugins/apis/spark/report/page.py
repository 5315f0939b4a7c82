"""A report as one HTML file that loads nothing else: no script, no font, no image."""

from __future__ import annotations

from datetime import UTC, datetime
from html import escape
from pathlib import Path

from plugins.apis.spark.report.drawing import draw_heat_map, draw_lines
from plugins.apis.spark.report.findings import Figure, HeatMap, Lines, Part, Report, Table
from plugins.apis.spark.report.quantities import spell

ROWS_SHOWN = 200
"""The largest number of rows of a table on the page; its CSV file has all rows."""


def page(report: Report, *, subtitle: str = "", made: datetime | None = None) -> str:
    """Return the whole page; ``made`` is the time that its foot shows, by default now."""
    made = made or datetime.now(UTC)
    style = Path(__file__).with_name("page.css").read_text(encoding="utf-8")
    figures = "".join(map(_figure, report.figures))
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(report.title)}</title><style>{style}</style></head><body><main>"
        f"<h1>{escape(report.title)}</h1>"
        f'<p class="note">{escape(" · ".join(text for text in (subtitle, report.note) if text))}</p>'
        f'<dl class="figures">{figures}</dl>'
        f"{''.join(map(_section, report.parts))}"
        f"<footer>Written {spell(made)} UTC by <code>kernel pipeline</code>; all times are UTC.</footer>"
        "</main></body></html>\n"
    )


def _figure(figure: Figure) -> str:
    attention = ' class="bad"' if figure.bad else ""
    value = escape(spell(figure.value, figure.unit))
    return f"<div{attention}><dt>{escape(figure.label)}</dt><dd>{value}</dd></div>"


def _section(part: Part) -> str:
    note = f'<p class="note">{escape(part.note)}</p>' if part.note else ""
    return f"<section><h2>{escape(part.title)}</h2>{note}{_body(part)}</section>"


def _body(part: Part) -> str:
    if isinstance(part, Lines):
        return draw_lines(part)
    if isinstance(part, HeatMap):
        axes = " by ".join(title for title in (part.row_title, part.column_title) if title)
        return draw_heat_map(part) + (f'<p class="note">{escape(axes)}</p>' if axes else "")
    return _table(part)


def _table(table: Table) -> str:
    if not table.rows:
        return '<p class="nothing">None.</p>'
    # A column is aligned as numbers only if all of its values are numbers, or missing.
    numeric = [
        all(row[index] is None or isinstance(row[index], int | float) for row in table.rows)
        for index in range(len(table.columns))
    ]
    heads = "".join(
        f"<th{_class(number)}>{escape(name)}</th>"
        for name, number in zip(table.columns, numeric, strict=True)
    )
    rows = "".join(
        "<tr>"
        + "".join(
            f"<td{_class(number)}>{escape(spell(value, table.units.get(name, '')))}</td>"
            for name, number, value in zip(table.columns, numeric, row, strict=True)
        )
        + "</tr>"
        for row in table.rows[:ROWS_SHOWN]
    )
    more = len(table.rows) - ROWS_SHOWN
    rest = f'<p class="note">… and {spell(more)} more in {escape(table.name)}.csv</p>' if more > 0 else ""
    return (
        f'<div class="scroll"><table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table></div>{rest}'
    )


def _class(number: bool) -> str:
    return ' class="number"' if number else ""
