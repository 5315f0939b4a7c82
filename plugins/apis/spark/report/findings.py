"""The parts of a report: figures for people, tables, lines over time, and heat maps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, TypeAlias

Unit: TypeAlias = Literal["", "messages", "messages/s", "bytes", "bytes/s", "seconds", "share"]
"""The unit of a number, which decides how it is written (12.3 M, 4.1 KiB, 250 ms, 12 %)."""


@dataclass(frozen=True, kw_only=True)
class Figure:
    """One number at the top of the page."""

    label: str
    value: float | str
    unit: Unit = ""
    bad: bool = False
    """Whether the page emphasizes it."""


@dataclass(frozen=True, kw_only=True)
class Table:
    """Rows as they came from Spark; also written as ``NAME.csv``."""

    name: str
    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    units: Mapping[str, Unit]
    """Units by column; the values of other columns are shown as they are."""
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Lines:
    """One or more quantities over time."""

    title: str
    times: Sequence[datetime]
    series: Mapping[str, Sequence[float | None]]
    """By name, a value for each time; None interrupts the line."""
    unit: Unit
    marks: Sequence[tuple[datetime, str]] = ()
    """Times that are marked in the chart, each with a text."""
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class HeatMap:
    """A quantity by two others, which are the columns and the rows."""

    title: str
    columns: Sequence[str]
    rows: Sequence[str]
    """From top to bottom."""
    values: Sequence[Sequence[float]]
    """``values[row][column]``, none negative; cells with 0 are not drawn."""
    unit: Unit
    column_title: str = ""
    row_title: str = ""
    note: str = ""


Part: TypeAlias = Table | Lines | HeatMap


@dataclass(frozen=True, kw_only=True)
class Report:
    """The result of a job."""

    title: str
    figures: Sequence[Figure]
    parts: Sequence[Part]
    note: str = ""
