"""Spark's Python workers: makes their garbage collection cheap, and ends them quietly.

A worker runs one task after the other.

After each task Spark runs a full garbage collection in the worker.  It takes 25 ms and more, to visit some
80,000 objects of the modules of Spark, Arrow and pandas, none of which is garbage.  A micro-batch has four of
these tasks (plan the write, read, write, commit), and reading a DataFrame three (describe, plan, read).
``gc.freeze`` excludes the loaded modules.

It is called at the end of a worker's first task of each sort, when the modules of that sort have been loaded.
Other processes are left alone: whether to freeze objects is for the user's program to decide.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from typing import Any

_DAEMON = "pyspark.daemon"
_frozen: set[str] = set()


def freeze_loaded(work: str) -> None:
    """Exclude the present objects of this worker from later collections.

    Only once for each sort of task (``work``): cycles among frozen objects are never freed.
    """
    if work not in _frozen and in_worker():
        _frozen.add(work)
        gc.freeze()


def freeze_after(work: str, batches: Iterator[Any]) -> Iterator[Any]:
    """Yield batches, and call ``freeze_loaded`` after the last one."""
    yield from batches
    freeze_loaded(work)


def end_quietly() -> None:
    """End this worker if Spark has closed the connection to it, which is how a query ends.

    Called where Spark's loop calls ``stop``.  Spark takes the end of the connection for an error,
    and reports it into that connection: a traceback about a broken pipe is on the terminal after a
    query that has succeeded.
    """
    # In ``finally`` this is the exception on its way.  Any other one has to be reported.
    if isinstance(sys.exc_info()[1], EOFError) and in_worker():
        os._exit(0)


def in_worker() -> bool:
    """Return whether this process is one of Spark's Python workers."""
    # A worker is forked by Spark's daemon, which is started as ``python -m pyspark.daemon``.
    return getattr(getattr(sys.modules.get("__main__"), "__spec__", None), "name", "") == _DAEMON
