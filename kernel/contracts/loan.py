"""Lend a buffer to the kernel, and learn when the kernel no longer uses it (the free function of ØMQ 0.x)."""

from __future__ import annotations

import weakref
from collections.abc import Callable

from kernel.contracts.message import Buffer


def lend(buffer: Buffer, on_returned: Callable[[], object]) -> memoryview:
    """Return a view of ``buffer`` for sending.

    ``on_returned()`` is called when there is no reference to it any more.

    The kernel sends the view without a copy.  It drops the view when the operating system has taken the
    bytes, or when the last receiver inside this process has dropped it.  ``on_returned`` is called exactly
    once, in the thread that drops the last reference.  It must be quick, must not raise and must not call the
    kernel.
    """
    view = memoryview(buffer).cast("B")  # in bytes, whatever its items are
    weakref.finalize(view, on_returned).atexit = False
    return view
