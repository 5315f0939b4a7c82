"""A report in a folder: ``index.html`` for people, and each table as CSV for programs."""

from __future__ import annotations

import csv
from datetime import datetime
from pathlib import Path
from typing import Any

from plugins.apis.spark.report.findings import Report, Table
from plugins.apis.spark.report.page import page


def write_report(report: Report, folder: Path, *, subtitle: str = "") -> Path:
    """Write the page and the tables; return the page's path."""
    folder.mkdir(parents=True, exist_ok=True)
    for part in report.parts:
        if isinstance(part, Table):
            _write_table(part, folder / f"{part.name}.csv")
    index = folder / "index.html"
    index.write_text(page(report, subtitle=subtitle), encoding="utf-8")
    return index


def _write_table(table: Table, path: Path) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(table.columns)
        writer.writerows([_plain(value) for value in row] for row in table.rows)


def _plain(value: Any) -> Any:
    return value.isoformat() if isinstance(value, datetime) else value
