"""Lending a buffer to the kernel, and learning when it is given back (the paper's free function)."""

from __future__ import annotations

import weakref
from collections.abc import Callable

from kernel.contracts.message import Buffer


def lend(buffer: Buffer, on_returned: Callable[[], object]) -> memoryview:
    """Return a view of ``buffer`` to be sent; ``on_returned()`` runs once nobody holds it any more.

    The kernel sends the view without a copy and lets go of it when the operating system has taken
    the bytes, or when the last receiver inside this process has dropped it.  ``on_returned`` runs
    exactly once, in whichever thread dropped the last reference: it must be quick, must not raise
    and must not call into the kernel.
    """
    view = memoryview(buffer).cast("B")  # in bytes, whatever its items are
    weakref.finalize(view, on_returned).atexit = False
    return view
