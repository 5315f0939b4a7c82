"""Slices: work that takes several turns.

A slice takes about a millisecond; then other engines of the thread have their turns, and other threads the
interpreter's lock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from kernel.contracts.engine import Host

SLICE = 0.001
"""Seconds that one slice takes."""

Made = TypeVar("Made")


def in_slices(
    host: Host, pieces: Iterator[Made], take: Callable[[Made], Any], done: Callable[[], None]
) -> None:
    """Call ``take`` with each piece as it is made, and ``done`` after the last one.

    The first slice is made now, the others in later turns.
    """

    def go_on() -> None:
        end = host.now() + SLICE
        # An iterator goes on where it was left: the next slice begins behind the last piece.
        for piece in pieces:
            take(piece)
            if host.now() >= end:
                host.soon(go_on)
                return
        done()

    go_on()
