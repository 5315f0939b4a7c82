"""Report: the table for the terminal, and the tables of ``docs/measured.md`` between their markers."""

from __future__ import annotations

import re
from collections import Counter
from itertools import groupby
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from benchmarks.results import Result, keeps

PAGE = Path(__file__).parents[1] / "docs" / "measured.md"
BEGIN = "<!-- benchmarks: written by `make bench`, do not edit from here -->"
END = "<!-- benchmarks: up to here -->"

CHARTS = "<!-- charts: written by `make bench`, do not edit from here -->"
CHARTS_END = "<!-- charts: up to here -->"
_WRITTEN = "Written by"

_EMPTY_PAGE = f"""# Measured

{CHARTS}
{CHARTS_END}

{BEGIN}
{END}
"""


def show(console: Console, results: list[Result]) -> None:
    """Print the table with what keeps to its bar and what does not."""
    table = Table(title="Side by side, medians of interleaved rounds", box=SIMPLE_HEAD)
    table.add_column("row", no_wrap=True)
    for heading in ("ours", "peer"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("unit", no_wrap=True)
    table.add_column("peer's name", overflow="fold")
    for heading in ("ratio", "bar"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True, min_width=4)
    for result in results:
        verdict = {True: "[green]pass", False: "[red]miss", None: "[yellow]-"}[result.passed]
        table.add_row(
            result.name,
            number(result.ours),
            number(result.peer),
            result.unit,
            result.peer_name,
            number(result.ratio),
            result.bar,
            verdict,
        )
    console.print(table)
    for result in results:
        if result.missing:
            console.print(f"[yellow]{result.name}[/]: {result.missing}")
        for remark in result.remarks:
            console.print(f"{result.scenario}: {remark}", highlight=False)


def write_page(
    rows: list[dict[str, Any]],
    written: str | None,
    charts: list[tuple[str, str]],
    plots: list[str],
    page: Path = PAGE,
) -> None:
    """Put the charts and the tables into the page; what people wrote around the markers stays.

    ``written``: the line that says when and where this was measured; None: the one that is there stays.
    """
    page.parent.mkdir(exist_ok=True)
    text = page.read_text() if page.exists() else _EMPTY_PAGE
    if BEGIN not in text or END not in text:
        text += f"\n{BEGIN}\n{END}\n"
    pictures = "\n\n".join(f"![{title}]({path})" for title, path in charts)
    text = re.sub(
        f"({re.escape(CHARTS)}).*?({re.escape(CHARTS_END)})",
        lambda found: f"{found[1]}\n\n{pictures}\n\n{found[2]}",
        text,
        flags=re.DOTALL,
    )
    machines = Counter(row["machine"] for row in rows if row.get("machine"))
    usual = machines.most_common(1)[0][0] if machines else ""
    before, _, rest = text.partition(BEGIN)
    tables, _, after = rest.partition(END)
    if written is None:
        written = next((line for line in tables.splitlines() if line.startswith(_WRITTEN)), "")
    lines = [written, f"Where a row says nothing else: {usual}." if usual else "", ""]
    lines += [f"![{Path(plot).stem.replace('_', ' ')}]({plot})" for plot in plots]
    for scenario, group in groupby(rows, key=lambda row: row.get("scenario") or "others"):
        lines += ["", f"### {scenario}", "", *_table(list(group), usual)]
    page.write_text(f"{before}{BEGIN}\n\n" + "\n".join(lines) + f"\n\n{END}{after}")


def written_by(command: str, date: str) -> str:
    """Return the line that says when this was measured last.  The rows say where."""
    return f"{_WRITTEN} `{command}` on {date}."


def _table(rows: list[dict[str, Any]], usual: str) -> list[str]:
    lines = [
        "| row | what | ours | peer | unit | peer's name | ratio | bar | |",
        "| --- | --- | ---: | ---: | --- | --- | ---: | ---: | --- |",
    ]
    for row in rows:
        verdict = {True: "pass", False: "**miss**", None: "-"}[keeps(row["ratio"], row["bar"])]
        cells = [
            f"`{row['name']}`",
            row.get("what", ""),
            number(row["ours"]),
            number(row["peer"]),
            row["unit"],
            row["peer_name"],
            number(row["ratio"]),
            row["bar"],
            verdict,
        ]
        lines.append("| " + " | ".join(cells) + " |")
    notes = [f"`{row['name']}`: {row['missing']}" for row in rows if row.get("missing")]
    notes += [remark for row in rows for remark in row.get("remarks", ())]
    notes += [
        f"`{row['name']}`, also: "
        + "; ".join(f"{name} {number(value)}" for name, value in row["also"].items())
        for row in rows
        if row.get("also")
    ]
    notes += [
        f"`{row['name']}`: rounds of one side differ by {spread(row):.0%}."
        for row in rows
        if spread(row) > 0.25
    ]
    notes += sorted({_when_and_where(row, usual) for row in rows if row.get("measured")})
    return [*lines, "", *(f"- {note}" for note in notes)]


def _when_and_where(row: dict[str, Any], usual: str) -> str:
    machine = row.get("machine")
    where = "" if machine == usual else f", {machine or 'on a machine that was not noted'}"
    return f"Measured {row['measured']}{where}."


def spread(row: dict[str, Any]) -> float:
    """Return by how much the rounds of one side differ at the most, as a share of the smallest."""
    widest = 0.0
    for side in ("ours", "peer"):
        values = [run[side] for run in row.get("runs", ()) if run.get(side)]
        if values:
            widest = max(widest, max(values) / min(values) - 1)
    return widest


def number(value: float | None) -> str:
    """Four digits that count, thousands apart."""
    if value is None:
        return "-"
    if value >= 1000:
        return f"{value:,.0f}".replace(",", " ")
    return f"{value:.4g}" if value >= 0.001 or value == 0 else f"{value:.1e}"
