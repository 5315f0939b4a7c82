"""Trio inside: what is read from trio's private attributes.

It saves one pass through trio's scheduler for each wake-up, and lets a helper call engines in another thread.  If a
later version of trio has changed it, ``trio_inside`` returns None: the loop runs as an ordinary task, and nobody helps.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sized
from typing import Any

import msgspec

_CONTEXT: Any
try:
    _CONTEXT = importlib.import_module("trio._core._run").GLOBAL_RUN_CONTEXT
except (ImportError, AttributeError):
    _CONTEXT = None


class TrioInside(msgspec.Struct, frozen=True):
    """What we know of the trio run that we are in."""

    descriptor: int
    """The epoll descriptor that it sleeps on."""
    wanted: Callable[[], bool]
    """Whether a task waits for its turn (the public way to ask costs 1.9 us, this one 0.05)."""
    runner: Any
    """The run itself."""


def trio_inside() -> TrioInside | None:
    """Look into the trio run that we are in; None when it does not look as expected."""
    try:
        runner = _CONTEXT.runner
        # ``fileno`` raises ``ValueError`` when the epoll object is closed. On macOS there is no ``_epoll``.
        descriptor = int(runner.io_manager._epoll.fileno())
        waiting: Sized = runner.runq
        # ``runq`` stays the same object for the whole run, so the closure may keep it.
        return TrioInside(descriptor, lambda: len(waiting) > 0, runner)
    except (AttributeError, ValueError, TypeError):
        return None


def in_a_run() -> bool:
    """Whether this thread is in a run of trio."""
    return hasattr(_CONTEXT, "runner")


def enter_run(inside: TrioInside) -> None:
    """Have trio's functions that do not wait act on this run, in the present thread, until ``leave_run``."""
    _CONTEXT.runner = inside.runner


def leave_run() -> None:
    """Take back ``enter_run``."""
    del _CONTEXT.runner
