"""The parts of a report: figures for people, tables, lines over time, and heat maps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, TypeAlias

Unit: TypeAlias = Literal["", "messages", "messages/s", "bytes", "bytes/s", "seconds", "share"]
"""What a number is; it says how it is written (12.3 M, 4.1 KiB, 250 ms, 12 %)."""


@dataclass(frozen=True, kw_only=True)
class Figure:
    """One number on top of the page."""

    label: str
    value: float | str
    unit: Unit = ""
    bad: bool = False
    """To be shown as something to look at."""


@dataclass(frozen=True, kw_only=True)
class Table:
    """Rows as they came from Spark; also written as CSV, under ``name``."""

    name: str
    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    units: Mapping[str, Unit]
    """Of columns; those that are not named are shown as they are."""
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Lines:
    """One or more quantities over time."""

    title: str
    times: Sequence[datetime]
    series: Mapping[str, Sequence[float | None]]
    """By name, a value for each time; None leaves a hole."""
    unit: Unit
    marks: Sequence[tuple[datetime, str]] = ()
    """Moments to look at, each with what there is to see."""
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class HeatMap:
    """How much there is of something, by two others."""

    title: str
    columns: Sequence[str]
    rows: Sequence[str]
    """From top to bottom."""
    values: Sequence[Sequence[float]]
    """``values[row][column]``, none negative; 0 stays blank."""
    unit: Unit
    column_title: str = ""
    row_title: str = ""
    note: str = ""


Part: TypeAlias = Table | Lines | HeatMap


@dataclass(frozen=True, kw_only=True)
class Report:
    """All that a job says."""

    title: str
    figures: Sequence[Figure]
    parts: Sequence[Part]
    note: str = ""
