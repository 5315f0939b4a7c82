"""Rates: how fast figures grow, from the times at which somebody has asked for them.

RabbitMQ takes a sample every five seconds.  Here nothing is done while nobody asks: a rate is that between
two requests which are at least ``INTERVAL`` apart.
"""

from __future__ import annotations

from typing import Any, TypeAlias

INTERVAL = 1.0
"""Seconds between two samples at least."""

MOST = 200_000
"""Figures that are remembered."""

Sample: TypeAlias = tuple[float, int, float]
"""When, the figure, and the rate up to then."""


class Rates:
    """Remembers the last sample of each figure."""

    def __init__(self) -> None:
        self._samples: dict[tuple[str, ...], Sample] = {}

    def of(self, key: tuple[str, ...], figure: int, now: float) -> float:
        """Return the rate of a figure, which is negative if it shrinks; 0.0 at the first time."""
        before = self._samples.get(key)
        # The old sample stays: if each request took a new one, two tools that ask in turn would both get
        # rates over very short times.
        if before is not None and now - before[0] < INTERVAL:
            return before[2]
        rate = 0.0 if before is None else round((figure - before[1]) / (now - before[0]), 1)
        # All at once: things that are gone need not be looked for.
        if before is None and len(self._samples) >= MOST:
            self._samples.clear()
        self._samples[key] = now, figure, rate
        return rate

    def with_rates(self, key: tuple[str, ...], figures: dict[str, int], now: float) -> dict[str, Any]:
        """Return the figures, and ``NAME_details`` of each, as RabbitMQ has them."""
        found: dict[str, Any] = {}
        for name, figure in figures.items():
            found[name] = figure
            found[f"{name}_details"] = {"rate": self.of((*key, name), figure, now)}
        return found
