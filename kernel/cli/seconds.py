"""Seconds as an option of a command: neither "nan" nor more than the system can wait."""

from __future__ import annotations

import math
from typing import Any

import click

MOST = 366 * 86_400.0
"""A year.  Functions of the system that wait overflow at some value, and raise ``OverflowError``."""


class Seconds(click.FloatRange):
    """A number of seconds that is at least ``min``, or more than ``min`` if ``min_open``."""

    def __init__(self, min: float, *, min_open: bool = False) -> None:  # noqa: A002 - as click calls it
        super().__init__(min=min, max=MOST, min_open=min_open)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the number that ``value`` is, or fail with click's usage error."""
        seconds = super().convert(value, param, ctx)
        # ``FloatRange`` lets "nan" pass: each comparison with it is false.
        if math.isnan(seconds):
            self.fail(f"{value!r} is not a number of seconds.", param, ctx)
        return seconds
