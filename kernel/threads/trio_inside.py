"""Trio inside: the two things that are read from trio's private attributes.

They save one pass through trio's scheduler for each wake-up.  If a later version of trio has changed them,
``trio_inside`` returns None and the loop runs as an ordinary task.
"""

from __future__ import annotations

from collections.abc import Callable, Sized

import msgspec


class TrioInside(msgspec.Struct, frozen=True):
    """What we know of the trio run that we are in."""

    descriptor: int
    """The epoll descriptor that it sleeps on."""
    wanted: Callable[[], int]
    """How many tasks wait for their turn (the public way to ask costs 1.9 us, this one 0.03)."""


def trio_inside() -> TrioInside | None:
    """Look into the trio run that we are in; None when it does not look as expected."""
    try:
        from trio._core._run import GLOBAL_RUN_CONTEXT

        runner = GLOBAL_RUN_CONTEXT.runner
        # ``fileno`` raises ``ValueError`` when the epoll object is closed. On macOS there is no ``_epoll``.
        descriptor = int(runner.io_manager._epoll.fileno())
        waiting: Sized = runner.runq
        # ``runq`` stays the same object for the whole run. Its own method is no call of Python.
        return TrioInside(descriptor, waiting.__len__)
    except (ImportError, AttributeError, ValueError, TypeError):
        return None
