"""Seconds as an option: neither "nan" nor more than the system can wait."""

from __future__ import annotations

import math
from typing import Any

import click

MOST = 366 * 86_400.0
"""A year."""


class Seconds(click.FloatRange):
    """``min`` is the least."""

    def __init__(self, min: float, *, min_open: bool = False) -> None:  # noqa: A002 - as click calls it
        super().__init__(min=min, max=MOST, min_open=min_open)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Read it."""
        seconds = super().convert(value, param, ctx)
        if math.isnan(seconds):  # which is neither less nor more than anything
            self.fail(f"{value!r} is not a number of seconds.", param, ctx)
        return seconds
