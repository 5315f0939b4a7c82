"""Plots of what ``results.json`` holds, for ``docs/measured.md``."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[1] / "docs" / "measured"

_OURS, _PEER, _MISS = "#2a6f97", "#b8b8b8", "#c1121f"


def draw(rows: list[dict[str, Any]], folder: Path = FOLDER) -> list[str]:
    """Write the plots; return their paths for the page beside the folder.  Empty without matplotlib."""
    try:
        import matplotlib
    except ImportError:
        return []
    matplotlib.use("svg")
    # the same figures give the same file: no dates, no random names inside
    matplotlib.rcParams.update({"svg.hashsalt": "measured", "font.size": 9, "axes.axisbelow": True})
    folder.mkdir(parents=True, exist_ok=True)
    rows = [row for row in rows if row["ours"] is not None and row["peer"]]
    drawn = []
    for name, draw_one, chosen in (
        ("against_the_bar", _against_the_bar, [row for row in rows if _bar(row)]),
        ("throughput", _side_by_side, [row for row in rows if row["unit"] == "msg/s"]),
        ("latency", _side_by_side, [row for row in rows if row["unit"] == "µs"]),
    ):
        if chosen:
            draw_one(chosen, folder / f"{name}.svg")
            drawn.append(f"{folder.name}/{name}.svg")
    return drawn


def _bar(row: dict[str, Any]) -> tuple[str, float] | None:
    match = re.fullmatch(r"([<>])=\s*([0-9.]+)", row["bar"])
    return (match[1], float(match[2])) if match else None


def _against_the_bar(rows: list[dict[str, Any]], path: Path) -> None:
    """How far each row is on the good side of its bar: 1 is just on it."""
    margins = []
    for row in rows:
        direction, limit = _bar(row) or (">", 1.0)
        margins.append(row["ratio"] / limit if direction == ">" else limit / max(row["ratio"], limit / 100))
    figure, axes = _axes(len(rows))
    positions = list(range(len(rows)))
    axes.barh(positions, margins, color=[_OURS if margin >= 1 else _MISS for margin in margins])
    axes.axvline(1, color="black", linewidth=1)
    axes.set_xscale("log")
    axes.set_xlabel("times better than the bar asks for (1: just on it)")
    _finish(figure, axes, rows, path)


def _side_by_side(rows: list[dict[str, Any]], path: Path) -> None:
    """Ours and the peer's figure of each row."""
    figure, axes = _axes(2 * len(rows))
    positions = list(range(len(rows)))
    axes.barh(
        [at - 0.2 for at in positions], [row["ours"] for row in rows], 0.38, color=_OURS, label="kernel"
    )
    axes.barh([at + 0.2 for at in positions], [row["peer"] for row in rows], 0.38, color=_PEER, label="peer")
    for at, row in enumerate(rows):
        axes.text(row["peer"], at + 0.2, f" {row['peer_name']}", va="center", fontsize=7)
    axes.set_xscale("log")
    low, high = axes.get_xlim()
    axes.set_xlim(low, high * 4)  # room for the names
    axes.set_xlabel(rows[0]["unit"])
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, 1.0), ncols=2, frameon=False)
    axes.set_ylim(len(rows) - 0.5, -1.3)
    _finish(figure, axes, rows, path)


def _axes(lines: int) -> tuple[Any, Any]:
    from matplotlib import pyplot

    return pyplot.subplots(figsize=(8, 1 + 0.22 * lines), layout="constrained")


def _finish(figure: Any, axes: Any, rows: list[dict[str, Any]], path: Path) -> None:
    from matplotlib import pyplot

    axes.set_yticks(range(len(rows)), [row["name"] for row in rows])
    if axes.get_ylim()[0] < axes.get_ylim()[1]:
        axes.invert_yaxis()
    axes.grid(axis="x", alpha=0.3)
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)
