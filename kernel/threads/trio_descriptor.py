"""The descriptor that trio sleeps on: the one thing that is taken from behind trio's public face.

Without it everything works, with one more scheduler pass a wake-up; so whatever may change in a later trio, the answer
is then None and nothing breaks.
"""

from __future__ import annotations


def trio_descriptor() -> int | None:
    """Return the epoll descriptor of the trio run that we are in; None when it has none to show."""
    try:
        from trio._core._run import GLOBAL_RUN_CONTEXT

        return int(GLOBAL_RUN_CONTEXT.runner.io_manager._epoll.fileno())
    except (ImportError, AttributeError, ValueError):
        return None
