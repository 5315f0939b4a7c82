"""Makes garbage collection cheap in Spark's Python workers, which run one task after the other.

After each task Spark runs a full garbage collection in the worker.  It takes 25 ms and more, to visit some
80,000 objects of the modules of Spark, Arrow and pandas, none of which is garbage.  A micro-batch has four of
these tasks (plan the write, read, write, commit), and reading a DataFrame three (describe, plan, read).
``gc.freeze`` excludes the loaded modules.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from typing import Any

_DAEMON = "pyspark.daemon"
_frozen: set[str] = set()


def freeze_loaded(work: str) -> None:
    """Exclude the present objects of this worker from later collections, after its first task of the sort ``work``.

    Only once for each sort of task: frozen objects are never freed.
    """
    if work not in _frozen and in_worker():
        _frozen.add(work)
        gc.freeze()


def freeze_after(work: str, batches: Iterator[Any]) -> Iterator[Any]:
    """Yield batches, and call ``freeze_loaded`` after the last one."""
    yield from batches
    freeze_loaded(work)


def in_worker() -> bool:
    """Return whether this process is one of Spark's Python workers."""
    return getattr(getattr(sys.modules.get("__main__"), "__spec__", None), "name", "") == _DAEMON
