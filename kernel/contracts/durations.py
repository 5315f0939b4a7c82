"""Durations, as errors and reports show them."""

from __future__ import annotations


def in_seconds(seconds: float) -> str:
    """Return a duration for people, with its unit and at most three significant digits.

    What is left of a timeout has sixteen.
    """
    # ``g`` would write 1000 as 1e+03.
    return f"{seconds:.0f} s" if seconds >= 999.5 else f"{seconds:.3g} s"
