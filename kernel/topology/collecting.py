"""Garbage collection around the start of a process that is the kernel's own.

A start makes 60,000 to 130,000 objects that stay: modules, classes, functions, engines.  Each full collection
would look through them again, in a pause of 12 to 50 ms for all engines (2026-11-24, a link and
``examples/everyone.toml``).  So what is there when everything is up is left out for ever (``gc.freeze``).
Until then the collector works seldom.  It does work: some of what a start drops is in cycles, such as the
classes that attrs makes twice for trio, and without collections a broker would begin with 0.8 MB more.

Cycles among what was left out that are dropped later, such as an engine that a reload removes, are not freed
any more.  That happens once for each, so it is bounded.
"""

from __future__ import annotations

import gc

_AT_START = 5_000
"""New objects between two collections during the start.  Python's 700 frees as much, in more turns."""
# When this is imported, which is before ``begin_start``: the values that the user or Python has set.
_USUAL = gc.get_threshold()


def begin_start() -> None:
    """Collect seldom from now on."""
    gc.set_threshold(_AT_START, *_USUAL[1:])


def end_start() -> None:
    """Everything is up: collect as usual, but leave out what is there."""
    # Only after ``begin_start``, and once. A kernel in a process of somebody else leaves the collector alone.
    if gc.get_threshold()[0] == _AT_START:
        gc.freeze()
        gc.set_threshold(*_USUAL)
