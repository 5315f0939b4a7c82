"""Counts, as errors and reports show them."""

from __future__ import annotations


def counted(count: int, one: str, many: str = "") -> str:
    """Return a count and what is counted: ``1 message``, ``2,000 messages``.

    ``many``: the plural, where it is not the singular with an ``s``.
    """
    return f"{count:,} {one if count == 1 else many or f'{one}s'}"
