"""Loan: lend a buffer to the kernel, and learn when the kernel no longer uses it.

It replaces the free function of ØMQ 0.x.
"""

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
    # In bytes, whatever the items of the buffer are. A slice of the view refers to the buffer, not to the
    # view. So code that cuts the view has to keep the view itself until the last slice is written
    # (``drop_sent`` in ``kernel/hosting/wire.py``).
    view = memoryview(buffer).cast("B")
    # At the end of the process the finalizer would otherwise call it for views that are still in use.
    weakref.finalize(view, on_returned).atexit = False
    return view
