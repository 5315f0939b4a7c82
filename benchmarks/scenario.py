"""Scenario: sides that are measured by turns, and the rows that are made of their medians."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

Figures = dict[str, float]
"""What one run of one side found out, by name: ``{"rate": 2.1e6}``, ``{"p50": 61.5, "p99": 120.0}`` ..."""


class Unavailable(Exception):
    """A side cannot be measured here; its text says why."""


@dataclass(frozen=True)
class Side:
    """Something to measure: the kernel, or a peer, in one way of using it."""

    name: str
    measure: Callable[[float], Figures]
    """Run once; the argument scales how many messages are sent (1.0: a run takes one to two seconds)."""


@dataclass(frozen=True)
class Row:
    """One line of the results: a figure of one side, compared with the best of others."""

    name: str
    what: str
    figure: str
    unit: str
    bar: str
    ours: str
    """Name of the side that is measured."""
    peers: tuple[str, ...]
    """Names of the sides that it is compared with; of several the better one counts."""
    also: tuple[str, ...] = ()
    """Names of sides whose figures are only printed."""

    @property
    def more_is_better(self) -> bool:
        """Whether a larger figure is the better one."""
        return self.bar.startswith(">")


@dataclass(frozen=True)
class Scenario:
    """Sides measured in the same run, in turns (A B A B ...), and the rows that come of them."""

    name: str
    sides: tuple[Side, ...]
    rows: tuple[Row, ...]
    remarks: Callable[[Measured], list[str]] = lambda measured: []
    """Sentences for people about figures that are in no row."""


@dataclass
class Measured:
    """What the rounds found out."""

    runs: dict[tuple[str, str], list[float]] = field(default_factory=dict)
    """(side, figure) to its value in each round."""
    missing: dict[str, str] = field(default_factory=dict)
    """Sides that could not be measured, and why."""

    def median(self, side: str, figure: str) -> float | None:
        """Return the median over the rounds; None when the side was not measured."""
        values = self.runs.get((side, figure))
        return statistics.median(values) if values else None

    def best(self, row: Row) -> str | None:
        """Return the name of the peer that did best."""
        known = [name for name in row.peers if self.median(name, row.figure) is not None]
        choose = max if row.more_is_better else min
        return choose(known, key=lambda name: self.median(name, row.figure) or 0.0) if known else None


def run_rounds(scenario: Scenario, rounds: int, scale: float, tell: Callable[[str], Any]) -> Measured:
    """Measure every side once a round, so that whatever else the machine does meets all of them alike."""
    measured = Measured()
    for number in range(1, rounds + 1):
        for side in scenario.sides:
            if side.name in measured.missing:
                continue
            tell(f"{scenario.name}, round {number} of {rounds}: {side.name}")
            try:
                figures = side.measure(scale)
            except Unavailable as why:
                measured.missing[side.name] = str(why)
                continue
            for name, value in figures.items():
                measured.runs.setdefault((side.name, name), []).append(value)
    for side_name, figure in list(measured.runs):
        if side_name in measured.missing:  # fell away in a later round: half a measurement is none
            del measured.runs[side_name, figure]
    return measured
